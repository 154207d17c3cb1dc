"""`import remuda`: nothing is loaded before it is used, and checkers know its names."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import remuda
from remuda.tests.imports import THIS_CHECKOUT, imported_by
from remuda.tests.patience import HANG_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.processes
def test_the_import_alone_loads_nothing() -> None:
    brought = imported_by("import remuda")
    assert "remuda" in brought
    assert brought <= {"remuda", *sys.stdlib_module_names, *imported_by("")}


@pytest.mark.processes
def test_no_package_of_ours_is_loaded_either() -> None:
    program = "import remuda, sys; print([name for name in sys.modules if name.startswith('remuda.')])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **THIS_CHECKOUT},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.processes
@pytest.mark.parametrize("name", ["train", "launch", "Client", "ExperimentConfig", "ConfigError", "__version__"])
def test_what_needs_no_torch_loads_none(name: str) -> None:
    assert "torch" not in imported_by(f"import remuda; remuda.{name}")


def test_every_name_is_there() -> None:
    for name in remuda.__all__:
        assert getattr(remuda, name) is getattr(remuda, name)
    assert set(remuda.__all__) <= set(dir(remuda))
    assert remuda.__version__ == metadata.version("remuda")


def test_a_wrong_name_is_said_to_be_one() -> None:
    with pytest.raises(AttributeError, match="module 'remuda' has no attribute 'trian'"):
        getattr(remuda, "trian")  # noqa: B009  (checkers would see it)


def test_checkers_and_python_are_told_the_same() -> None:
    """The names that checkers read are imported from where Python gets them."""
    module = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    imports = {
        alias.name: node.module
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("remuda.")
        for alias in node.names
    }
    assert {*imports, "__version__"} == set(remuda.__all__)
    for name, source in imports.items():
        assert getattr(remuda, name).__module__ == source
