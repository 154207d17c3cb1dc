"""What the docstring under each setting says, read from the source when somebody asks for it.

pydantic can do this as it makes the classes. That nearly doubles the time in which each process imports the schema, and
most processes never ask.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from remuda.config.section import Section


@cache
def descriptions(section: type[Section]) -> Mapping[str, str]:
    """The docstrings of a section's settings, and of those that it has from the sections it is derived from, by name.

    Empty where there is no source, as for classes that were typed into an interpreter.
    """
    found: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if issubclass(kind, Section):
            found |= _in_module(kind.__module__).get(kind.__qualname__, {})
    return found


@cache
def _in_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Of all classes of a module, by their qualified names."""
    try:
        source = inspect.getsource(sys.modules[name])
    except (KeyError, OSError, TypeError):
        return {}
    return dict(_in_classes(ast.parse(source).body, ""))


def _in_classes(body: list[ast.stmt], outer: str) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[str, dict[str, str]]] = []
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            name = f"{outer}{statement.name}"
            found.append((name, _under_settings(statement.body)))
            found += _in_classes(statement.body, f"{name}.")
        elif isinstance(statement, ast.FunctionDef):
            found += _in_classes(statement.body, f"{outer}{statement.name}.<locals>.")
    return found


def _under_settings(body: list[ast.stmt]) -> dict[str, str]:
    return {
        setting.target.id: inspect.cleandoc(text.value.value)
        for setting, text in pairwise(body)
        if isinstance(setting, ast.AnnAssign)
        and isinstance(setting.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
