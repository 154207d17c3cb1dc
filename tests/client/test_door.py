"""`import remuda` and `import remuda.learning`: nothing is loaded before it is used, and checkers know their names."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

import remuda
from remuda import learning
from remuda.tests.imports import imported_by

doors = pytest.mark.parametrize("door", [remuda, learning], ids=["remuda", "remuda.learning"])


@pytest.mark.processes
@doors
def test_the_import_alone_loads_nothing(door: ModuleType) -> None:
    brought = imported_by(f"import {door.__name__}")
    assert "remuda" in brought
    assert brought <= {"remuda", *sys.stdlib_module_names, *imported_by("")}


@doors
def test_a_wrong_name_is_said_to_be_one(door: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{door.__name__}' has no attribute 'trian'"):
        getattr(door, "trian")  # noqa: B009  (checkers would see it)


@doors
def test_checkers_and_python_are_told_the_same(door: ModuleType) -> None:
    """The names that checkers read are imported from where Python gets them."""
    module = ast.parse(Path(str(door.__file__)).read_text(encoding="utf-8"))
    imports = {
        alias.name: node.module
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("remuda.")
        for alias in node.names
    }
    assert imports.keys() == set(door.__all__) - {"__version__"}
    for name, source in imports.items():
        assert getattr(door, name).__module__ == source
