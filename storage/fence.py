"""A fence between writers: a writer of an epoch may replace files until a writer of a later epoch has begun.

A replaced writer may be stopped between any two system calls, and continue much later. The writer would then put an old
file over a newer file, even after a check. So each writer prepares files in a folder of its own beside them. The next
writer first removes the folder: the prepared file of the old writer is gone, and the rename fails. The fence needs no
lock and no clock.

A writer first makes a folder, and then looks for others. If two begin at the same time, at least one sees the other,
and the later epoch remains.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from remuda.storage import atomic

_ATTEMPTS = 1_000
"""The old writer may make a few files during the removal of the folder; each attempt removes the present files."""
_CLAIM = re.compile(r"\.epoch_([0-9]+)_[0-9a-f]{8}")
_ENDED = ".ended"


class SupersededError(Exception):
    """A writer of a later epoch has begun: this writer must stop. The message names the folder."""


class Fence:
    """Lets one writer replace files in some folders, and stops earlier writers."""

    def __init__(self, folders: Sequence[Path], epoch: int) -> None:
        """Begin to write. Raises SupersededError if a later epoch has begun, and OSError."""
        self._name = f".epoch_{epoch:06d}_{secrets.token_hex(4)}"
        for folder in folders:
            (folder / self._name).mkdir(parents=True)
        for folder in folders:
            for name in os.listdir(folder):
                found = _CLAIM.fullmatch(name)
                if found is not None and name != self._name:
                    if int(found.group(1)) > epoch:
                        self._give_up(folders)
                        raise SupersededError(
                            f"{folder}: epoch {int(found.group(1))} has begun, this writer has epoch {epoch}"
                        )
                    _end(folder / name)

    @contextmanager
    def replacing(self, path: Path, *, durable: bool) -> Generator[Path, None, None]:
        """As atomic.replacing, for files in the folders of this fence. Raises SupersededError; nothing was replaced
        then."""
        claim = path.parent / self._name
        with (
            self._unless_superseded(claim),
            atomic.replacing(path, durable=durable, prepared_in=claim) as temporary,
        ):
            yield temporary

    def remove(self, path: Path) -> None:
        """Remove a file from a folder of this fence. Raises SupersededError; the file was not removed then."""
        claim = path.parent / self._name
        with self._unless_superseded(claim):
            os.rename(path, claim / path.name)
        (claim / path.name).unlink(missing_ok=True)

    @contextmanager
    def _unless_superseded(self, claim: Path) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            if os.path.exists(claim) or not os.path.exists(claim.parent):  # a network share may not answer for a while
                raise
            raise SupersededError(f"{claim.parent}: a writer of a later epoch has begun") from error

    def _give_up(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            _end(folder / self._name)


def sweep_claims(folder: Path) -> None:
    """Remove the folders of former writers when all of them are dead."""
    for name in os.listdir(folder) if folder.is_dir() else ():
        if _CLAIM.fullmatch(name.removesuffix(_ENDED)):
            _remove(folder / name)


def _end(claim: Path) -> None:
    """Remove the folder of another writer: after the rename it cannot be found by name, and at the end not by an open
    descriptor either."""
    ended = claim.with_name(claim.name + _ENDED)
    with contextlib.suppress(FileNotFoundError):  # another starting writer has removed the folder
        os.rename(claim, ended)
    _remove(ended)


def _remove(folder: Path) -> None:
    for _ in range(_ATTEMPTS):
        try:
            for name in os.listdir(folder):
                if not name.startswith(".nfs"):  # NFS: a file that a process of this machine has open
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(folder / name)
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError:
            if all(name.startswith(".nfs") for name in os.listdir(folder)):
                return
        else:
            return
    raise OSError(f"{folder} cannot be emptied: its writer makes files faster than they are removed")
