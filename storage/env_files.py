"""vars.pkl: a copy of the environment for tools that want the object. Read back only where a user says so."""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - the one place that knows pickle, because users' tools expect vars.pkl
from pathlib import Path
from typing import cast

from remuda.storage.atomic import replacing


def pickle_environment(path: Path, env: object) -> str | None:
    """Write {"env": env} to `path` as a standard pickle; return a warning, and leave it alone, where that cannot be.

    Raises nothing: it is for people, and no run is to fail for want of it.
    """
    try:
        with replacing(path, durable=False) as temporary, open(temporary, "xb", opener=_private) as file:
            pickle.dump({"env": env}, file)
    except Exception as error:  # the disk's, or whatever the environment's own __reduce__ or __getstate__ raises
        why = "it could not be" if isinstance(error, OSError) else "this environment cannot be pickled"
        return (
            f"{path.name} was not written, since {why} ({type(error).__name__}: {error}). "
            "Nothing else is affected: env_spec.json says how to rebuild it."
        )
    return None


def _private(path: str, flags: int) -> int:
    """The user's own to read: an environment may hold what it was given, a token say."""
    return os.open(path, flags, 0o600)


def unpickle_environment(path: Path) -> object:
    """Return what `pickle_environment` put into `path`, running whatever the file says: for users who trust its maker.

    Raises anything.
    """
    with path.open("rb") as file:
        content: object = pickle.load(file)  # noqa: S301 - the caller was told to, by --trust-code
    if not isinstance(content, dict) or "env" not in content:
        raise ValueError("it holds no environment under `env`")
    return cast("dict[str, object]", content)["env"]
