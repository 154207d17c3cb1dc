"""The pages of `make site`: every page is in its menu, and every name in the reference of the API can be imported."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
REFERENCES = [
    (page.relative_to(ROOT).as_posix(), name)
    for page in PAGES
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.M)
]


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": ([\w/-]+\.md)$", menu, re.M)
    assert sorted(listed) == [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]


@pytest.mark.parametrize(("page", "name"), REFERENCES)
def test_every_name_of_the_reference_is_there(page: str, name: str) -> None:
    """A module, or a name in one."""
    assert is_there(name), f"{page}: {name}"


def is_there(name: str) -> bool:
    module, _, last = name.rpartition(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        return hasattr(import_module(module), last)
    return True


def test_what_is_not_there_is_noticed() -> None:
    assert is_there("remuda.wire")
    assert is_there("remuda.train")
    assert not is_there("remuda.trian")
