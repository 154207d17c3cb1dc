"""Imports the function that builds a user's own environment from the user's own folder."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.exits import NoExit

# A worker outlives experiments, and two of them may both name a module `my_env`, or the same one edited in between. So
# modules that came from users' folders are remembered as they were on disk, and forgotten by Python when that changed.
_imported: dict[str, tuple[Path, int, int]] = {}


def user_function(make: str, *, source_dir: str | None) -> Callable[..., object]:
    """Return the function named by `make` (`module:function`), with `source_dir` first on sys.path.

    The folder stays on the path, for what the user's code imports later. A module loaded for an earlier experiment is
    imported again if it lay in another folder or its folder's files have changed since.

    Raises EnvironmentBuildError naming module, function and folder.
    """
    module_name, _, function_name = make.partition(":")
    where = f"env.make = {make!r} (folder {source_dir or 'not known: only installed modules are found'})"
    folder = None if source_dir is None else Path(source_dir).resolve()
    if folder is not None:
        _put_first(folder)
    before = set(sys.modules)
    try:
        with NoExit():
            module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises while it is imported
        raise EnvironmentBuildError(
            f"{where}: module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        if folder is not None:
            _remember(folder, set(sys.modules) - before)
    function: object = getattr(module, function_name, None)
    if not callable(function):
        found = getattr(module, "__file__", None) or "built into Python"
        raise EnvironmentBuildError(
            f"{where}: module {module_name!r} ({found}) has no function {function_name!r}; define it there, returning "
            "a gymnasium.Env (and rename the module if another one of that name was found)"
        )
    return function


def _put_first(folder: Path) -> None:
    importlib.invalidate_caches()  # files written since Python last listed the folder are seen
    stale = any(
        not path.is_relative_to(folder) or _stamp(path) != (mtime_ns, size)
        for path, mtime_ns, size in _imported.values()
    )
    if stale:
        for name in _imported:
            sys.modules.pop(name, None)
        _imported.clear()
    if sys.path[:1] != [str(folder)]:
        sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]


def _remember(folder: Path, imported: set[str]) -> None:
    """Note which of the modules just imported are the user's own: in the folder, and not installed below it."""
    for name in imported - _imported.keys():
        file = getattr(sys.modules[name], "__file__", None)
        if file is None or name.partition(".")[0] in ("remuda", *sys.stdlib_module_names):
            continue
        path = Path(os.path.realpath(file))
        if path.is_relative_to(folder) and "site-packages" not in path.parts:
            _imported[name] = (path, *_stamp(path))


def _stamp(path: Path) -> tuple[int, int]:
    """Identify a version of a file; a file that is gone has its own."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return (-1, -1)
    return (status.st_mtime_ns, status.st_size)
