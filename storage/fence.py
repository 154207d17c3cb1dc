"""Who may put files in place: a writer of an epoch, until one of a later epoch has begun.

A writer that was given up may only have stopped, between any two system calls, and go on much later. It would put an
old file over a newer one, whatever it had looked at before. So a writer prepares its files in a folder of its own
beside them, and the next one, before it writes anything, takes that folder away: what the older has prepared is gone,
and its rename fails, since there is nothing left to rename. No lock is needed for that, and no clock.

Whoever begins makes its own folder first, and looks for others then. So of two that begin at once at least one sees the
other, and the later epoch stays.
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
"""A writer that is being fenced off may make a file or two meanwhile; each attempt removes what is there."""
_CLAIM = re.compile(r"\.epoch_([0-9]+)_[0-9a-f]{8}")
_ENDED = ".ended"


class SupersededError(Exception):
    """A writer of a later epoch has begun: this one must not write any more. The message names the folder."""


class Fence:
    """Lets one writer replace files in some folders, and takes the leave to do so from all earlier ones."""

    def __init__(self, folders: Sequence[Path], epoch: int) -> None:
        """Begin to write. Raises SupersededError where a later epoch has begun, and OSError."""
        self._name = f".epoch_{epoch:06d}_{secrets.token_hex(4)}"
        for folder in folders:
            (folder / self._name).mkdir(parents=True)
        for folder in folders:
            for name in os.listdir(folder):
                found = _CLAIM.fullmatch(name)
                if found is not None and name != self._name:
                    if int(found.group(1)) > epoch:
                        self._give_up(folders)
                        raise SupersededError(f"{folder}: epoch {int(found.group(1))} has begun, this one is {epoch}")
                    _end(folder / name)

    @contextmanager
    def replacing(self, path: Path, *, durable: bool) -> Generator[Path, None, None]:
        """As atomic.replacing, for files in the folders of this fence. Raises SupersededError: nothing was replaced."""
        claim = path.parent / self._name
        with (
            self._unless_superseded(claim),
            atomic.replacing(path, durable=durable, prepared_in=claim) as temporary,
        ):
            yield temporary

    def remove(self, path: Path) -> None:
        """Remove a file from a folder of this fence. Raises SupersededError: it was not removed."""
        claim = path.parent / self._name
        with self._unless_superseded(claim):
            os.rename(path, claim / path.name)
        (claim / path.name).unlink(missing_ok=True)

    @contextmanager
    def _unless_superseded(self, claim: Path) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            if os.path.exists(claim) or not os.path.exists(claim.parent):  # a share may be away for a while
                raise
            raise SupersededError(f"{claim.parent}: a writer of a later epoch has begun") from error

    def _give_up(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            _end(folder / self._name)


def sweep_claims(folder: Path) -> None:
    """Remove what writers have left, once all are gone."""
    for name in os.listdir(folder) if folder.is_dir() else ():
        if _CLAIM.fullmatch(name.removesuffix(_ENDED)):
            _remove(folder / name)


def _end(claim: Path) -> None:
    """From the first call on, its writer no longer finds it by name; after the last, not by a file handle either."""
    ended = claim.with_name(claim.name + _ENDED)
    with contextlib.suppress(FileNotFoundError):  # another one that begins has done it
        os.rename(claim, ended)
    _remove(ended)


def _remove(folder: Path) -> None:
    for _ in range(_ATTEMPTS):
        try:
            for name in os.listdir(folder):
                if not name.startswith(".nfs"):  # open in a process of this machine, which finds `folder` by name only
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
