"""Lets the processes that an engine starts in at the coordinator.

Each makes its own pair of keys, and only the public one travels.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType

from remuda.wire.keys.folder import KeysFolder
from remuda.wire.keys.secret_file import KeyFileError


class HerdKeys:
    """Entries in the coordinator's list `authorized`, with the right of a worker, for as long as this is open."""

    def __init__(self, keys_dir: Path) -> None:
        """Raises KeyFileError."""
        self._folder = KeysFolder(keys_dir)
        self._names: set[str] = set()

    def let_in(self, name: str, public_key: str) -> None:
        """Let in who has this key, and who had this name before no more. Raises KeyFileError."""
        if name in self._names:
            self._folder.rotate(name, public_key)
        else:
            self._folder.add(name, public_key, "worker")
            self._names.add(name)

    def __enter__(self) -> HerdKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let none of them in any more. The folder may be gone together with its coordinator."""
        for name in self._names:
            with contextlib.suppress(KeyFileError, OSError):
                self._folder.revoke(name)
