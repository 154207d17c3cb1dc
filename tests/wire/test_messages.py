"""The messages as one package: what its files define is what it exports, and each goes the way its file says."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType
from typing import get_args

from remuda.wire import messages
from remuda.wire.messages import (
    AnyMessage,
    ClientMessage,
    CoordinatorMessage,
    Message,
    Rejected,
    WorkerMessage,
    callbacks,
    from_clients,
    from_workers,
    parts,
    to_anybody,
    to_clients,
    to_workers,
)

FILES = (parts, callbacks, from_workers, to_workers, from_clients, to_clients, to_anybody)
UNIONS = {"WorkerMessage", "CoordinatorMessage", "ClientMessage", "AnyMessage"}


def defined(file: ModuleType) -> set[str]:
    """The classes, the types of fields and the functions that a file defines."""
    names: set[str] = set()
    for node in ast.parse(inspect.getsource(file)).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return {name for name in names if not name.startswith("_")}


def said_in(file: ModuleType) -> set[type[Message]]:
    found = (getattr(file, name) for name in defined(file))
    return {kind for kind in found if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message}


def test_the_package_exports_all_that_its_files_define_and_nothing_else() -> None:
    names = {name for file in FILES for name in defined(file)}
    assert set(messages.__all__) == {*names, *UNIONS, "PROTOCOL_VERSION"}
    assert {Path(inspect.getfile(file)).name for file in FILES} | {"__init__.py"} == {
        path.name for path in Path(inspect.getfile(messages)).parent.glob("*.py")
    }


def test_each_union_is_what_the_files_of_its_direction_hold() -> None:
    assert set(get_args(WorkerMessage)) == said_in(from_workers)
    assert set(get_args(ClientMessage)) == said_in(from_clients)
    assert set(get_args(CoordinatorMessage)) == {*said_in(to_workers), *said_in(to_clients), Rejected}
    assert set(get_args(AnyMessage)) == {kind for file in FILES for kind in said_in(file)}
