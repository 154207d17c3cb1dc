"""vars.pkl: a pickled copy of the environment for foreign tools, read only with a user's permission."""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - the one place that knows pickle, because users' tools expect vars.pkl
from pathlib import Path
from typing import cast

from remuda.storage.atomic import replacing

_MOVED = {"remuda.environments.packing": "remuda.environments.spaces"}
"""Modules in copies of former runs, and their present names."""


def pickle_environment(path: Path, env: object) -> str | None:
    """Write {"env": env} to `path` as a standard pickle; on failure, return a warning.

    Raises nothing: a run must not fail because of this file.
    """
    try:
        with replacing(path, durable=False) as temporary, open(temporary, "xb", opener=_private) as file:
            pickle.dump({"env": env}, file)
    except Exception as error:  # of the disk, or of the environment's own __reduce__ or __getstate__
        why = "the disk refused it" if isinstance(error, OSError) else "this environment cannot be pickled"
        return (
            f"{path.name} was not written, since {why} ({type(error).__name__}: {error}). "
            "Nothing else is affected: env_spec.json says how to rebuild the environment."
        )
    return None


class _Unpickler(pickle.Unpickler):
    """Finds classes also by their former modules."""

    def find_class(self, module: str, name: str, /) -> object:
        """Return the class."""
        found: object = super().find_class(_MOVED.get(module, module), name)
        return found


def _private(path: str, flags: int) -> int:
    """Open for the user alone: an environment may contain secrets, such as a token."""
    return os.open(path, flags, 0o600)


def unpickle_environment(path: Path) -> object:
    """Return the environment in `path`. Runs any code in the file, so use it only if you trust the author.

    Raises anything.
    """
    with path.open("rb") as file:
        content: object = _Unpickler(file).load()  # the user has allowed it with --trust-code
    if not isinstance(content, dict) or "env" not in content:
        raise ValueError("it has no environment under `env`")
    return cast("dict[str, object]", content)["env"]
