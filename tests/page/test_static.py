"""The files of the browser side: small, complete, from nowhere else, and without a way in which text becomes markup."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "page" / "static"
FILES = sorted(STATIC.iterdir())
SHIPPED = {"uPlot.iife.min.js"}
"""As its project publishes it."""
OWN = [file for file in FILES if file.suffix in {".js", ".css", ".html", ".svg"} and file.name not in SHIPPED]
MOST_BYTES = 180_000
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|srcdoc"
    r"|\beval\b|new Function|javascript:|\bon\w+=|<style|style="
)


def test_all_files_together_are_small() -> None:
    assert sum(file.stat().st_size for file in FILES) <= MOST_BYTES


def test_they_lie_in_one_folder_and_are_shipped() -> None:
    assert all(file.is_file() for file in FILES)
    package_data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "package-data"
    ]
    assert "static/*" in package_data["remuda.page"]


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.name)
def test_text_cannot_become_markup_and_nothing_comes_from_elsewhere(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert UNSAFE.findall(text) == []
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set(), "namespaces are no addresses; everything else is"
    assert not re.search(r"[\"'(]//\w", text)


@pytest.mark.parametrize("file", [file for file in OWN if file.suffix == ".js"], ids=lambda file: file.name)
def test_every_module_says_what_it_is_and_imports_what_is_there(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert re.match(r"// \S.{10,}[.:;]\n", text) or re.match(r"// \S.{10,}\n//", text)
    for names, module in re.findall(r'^import \{ ([^}]+) \} from "\./([^"]+)";$', text, re.M):
        exported = exports(module)
        assert set(names.split(", ")) <= exported, f"{module} has {sorted(exported)}"
    assert len(re.findall(r"^import ", text, re.M)) == len(
        re.findall(r'^import \{ [^}]+ \} from "\./[^"]+";$', text, re.M)
    )


def exports(module: str) -> set[str]:
    """The names that a module exports."""
    text = (STATIC / module).read_text(encoding="utf-8")
    return set(re.findall(r"^export (?:async )?(?:function\*?|const|class) (\w+)", text, re.M))


def test_what_others_have_written_comes_with_its_licence() -> None:
    licence = (ROOT / "page" / "static" / "LICENSE.uPlot").read_text(encoding="utf-8")
    assert "Leon Sorokin" in licence
    assert "MIT License" in licence
    assert "https://github.com/leeoniya/uPlot" in (STATIC / "uPlot.iife.min.js").read_text(encoding="utf-8")[:300]
