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
        self._public: dict[str, str] = {}
        """The keys that are let in, by name."""

    def let_in(self, name: str, public_key: str) -> None:
        """Let in who has this key, and who had this name before no more. Raises KeyFileError."""
        former = self._public.get(name)
        if former == public_key:  # asked again: the answer was lost
            return
        if former is None:
            self._folder.add(name, public_key, "worker")
        else:
            self._folder.rotate(name, public_key)
        self._public[name] = public_key

    def let_out(self, name: str) -> None:
        """Let in who had this name no more. The folder may be gone together with its coordinator."""
        if self._public.pop(name, None) is not None:
            with contextlib.suppress(KeyFileError, OSError):
                self._folder.revoke(name)

    @property
    def names(self) -> list[str]:
        """Who is let in."""
        return list(self._public)

    def __enter__(self) -> HerdKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let none of them in any more."""
        for name in self.names:
            self.let_out(name)
