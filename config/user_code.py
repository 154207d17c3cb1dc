"""Imports user code named by a config: `module:name` in the user's folder or an installed package."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import cast

from remuda.config.errors import Error, NoExit, UserExitError, place

# A worker works for many experiments. Two of them may name different modules `my_env`, or the same one edited in
# between. So the versions of modules from users' folders are kept here, and Python imports them again when a file has
# changed.
_imported: dict[str, tuple[Path, int, int]] = {}
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
"""Kinds of parameters with a name for callers."""


class UserCodeError(Error, ValueError):
    """User code named by a setting cannot be used; the message explains the remedy."""

    def __init__(self, setting: str, text: str) -> None:
        """`setting` is dotted: policy.type. The text begins with the setting."""
        super().__init__(text)
        self.setting = setting

    def inside(self, place: str) -> UserCodeError:
        """Return the same error for a setting inside the section at `place` (dotted)."""
        return UserCodeError(f"{place}.{self.setting}", f"{place}.{self}")


def user_object(reference: str, *, setting: str, source_dir: str | None, kind: str = "function") -> object:
    """Return the object named by `reference` (`module:name`), with `source_dir` first on sys.path.

    The folder stays on the path for later imports of user code. Reimports a module of an earlier experiment if the
    module was in another folder or files of its folder have changed. `setting` and `kind` (function, class) are for
    messages.

    Raises UserCodeError naming setting, module and folder.
    """
    module_name, _, name = reference.partition(":")
    where = f"{setting} = {reference!r} (folder {source_dir or 'not known: only installed modules are found'})"
    folder = None if source_dir is None else Path(source_dir).resolve()
    if folder is not None:
        _put_first(folder)
    before = set(sys.modules)
    try:
        with NoExit():
            module = importlib.import_module(module_name)
    except Exception as error:  # anything that the user's module raises while it is imported
        raise UserCodeError(setting, f"{where}: {why_not_imported(module_name, error)}") from error
    finally:
        if folder is not None:
            _remember(folder, set(sys.modules) - before)
    found: object = getattr(module, name, None)
    if not callable(found):
        file = getattr(module, "__file__", None) or "built into Python"
        raise UserCodeError(
            setting,
            f"{where}: module {module_name!r} ({file}) has no {kind} {name!r}: define it there (or rename the module, "
            "if it is another one of that name)",
        )
    return found


def require_arguments(found: object, given: Mapping[str, object], *, setting: str, reference: str) -> None:
    """Check the names of the arguments that `setting` gives to the user's function or class. Raises UserCodeError."""
    try:
        parameters = inspect.signature(cast("Callable[..., object]", found)).parameters
    except ValueError:  # some classes written in C do not tell their parameters
        return
    kinds = {parameter.kind for parameter in parameters.values()}
    named = [name for name, parameter in parameters.items() if parameter.kind in _BY_NAME]
    unknown = [] if inspect.Parameter.VAR_KEYWORD in kinds else [name for name in given if name not in named]
    if unknown:
        near = get_close_matches(unknown[0], named, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(named) or 'none'}"
        text = f"{setting}: {reference} has no argument {unknown[0]}; {hint}"
        raise UserCodeError(setting, text)


def why_not_imported(module: str, error: Exception) -> str:
    """Return a sentence about an error raised by the import of a module, with the line; called where the error was
    caught."""
    raised = error.__traceback__
    where = place(raised.tb_next) if raised is not None and not isinstance(error, UserExitError) else ""
    return f"module {module!r} cannot be imported: {type(error).__name__}: {error}{where}"


def offered(group: str) -> dict[str, str]:
    """Return the objects in an entry point group of installed packages: name -> `module:name`."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group=group)}


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
    """Record imported modules of the user: modules in the folder, but not in site-packages below the folder."""
    for name in imported - _imported.keys():
        file = getattr(sys.modules[name], "__file__", None)
        if file is None or name.partition(".")[0] in ("remuda", *sys.stdlib_module_names):
            continue
        path = Path(os.path.realpath(file))
        if path.is_relative_to(folder) and "site-packages" not in path.parts:
            _imported[name] = (path, *_stamp(path))


def _stamp(path: Path) -> tuple[int, int]:
    """Identify the version of a file; a missing file has a version, too."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return (-1, -1)
    return (status.st_mtime_ns, status.st_size)
