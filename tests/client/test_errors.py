"""`except remuda.Error` catches what Remuda's Python interface raises on purpose, and each such class is at the top."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache
from pathlib import Path

import pytest

import remuda
from remuda.client import client
from remuda.evaluator import play_policy
from remuda.policy.files import functions
from remuda.runner import custom_loop
from remuda.tests.test_house import product_files

ROOT = Path(__file__).resolve().parents[2]


@cache
def classes() -> dict[str, set[str]]:
    """The names of the bases of each class, of all classes of this name; not of private ones."""
    found: dict[str, set[str]] = {}
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, set()).update(base.id for base in node.bases if isinstance(base, ast.Name))
    return found


def ancestors(name: str) -> set[str]:
    bases = classes().get(name, set())
    return bases.union(*(ancestors(base) for base in bases))


def is_builtin(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def exceptions() -> set[str]:
    return {name for name in classes() if any(is_builtin(base) for base in ancestors(name))}


def test_every_error_of_remuda_or_its_parent_is_at_the_top() -> None:
    for name in exceptions():
        if "Error" in ancestors(name):
            assert ({name, *ancestors(name)} - {"Error"}) & set(remuda.__all__), name
    for name in exceptions() & set(remuda.__all__):
        assert issubclass(getattr(remuda, name), remuda.Error)


@pytest.mark.parametrize("module", ["remuda.client.api", client, play_policy, functions, custom_loop], ids=str)
def test_what_docstrings_say_is_raised_is_an_error_of_remuda(module: object) -> None:
    name = module if isinstance(module, str) else getattr(module, "__name__", "")
    source = (ROOT / f"{name.removeprefix('remuda.').replace('.', '/')}.py").read_text(encoding="utf-8")
    said = set(re.findall(r"\b[A-Z]\w+Error\b", " ".join(re.findall(r"Raises?:?\s(.*?)\"\"\"", source, re.DOTALL))))
    assert said
    for error in said:
        assert is_builtin(error) or issubclass(getattr(remuda, error), remuda.Error), error


def test_the_page_about_python_lists_every_error() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`remuda\.(\w+Error|Error)`", page))
    assert listed == exceptions() & set(remuda.__all__)
