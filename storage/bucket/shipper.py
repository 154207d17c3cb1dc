"""Ships generations of a run folder to a bucket, as the only holder of the run's newest epoch."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import structs

from remuda.storage.bucket.address import BucketError, Mark, write_mark
from remuda.storage.bucket.generation import (
    KEPT,
    Generation,
    Newest,
    Owner,
    Part,
    encoded,
    generation_name,
    last_epoch,
    last_number,
    newest_first,
    newest_name,
    owner_name,
    read_owner,
)
from remuda.storage.bucket.snapshot import NO_STAMP, Known, Snapshot, take
from remuda.storage.bucket.store import Store

_CLAIMS = 20


class MovedError(BucketError):
    """The run was continued from the bucket by another process; this process must not go on."""


@dataclass(frozen=True)
class Shipped:
    """A generation that is in the bucket."""

    number: int
    files: int
    new_bytes: int
    total_bytes: int


def claim(store: Store, root: Path, owner: str, address: str) -> Mark:
    """Take the newest epoch of the run, so that its former holder ships no more; mark the local folder. Raises
    BucketError."""
    known = 0
    data = msgspec.json.encode(Owner(owner, socket.gethostname()))
    for _ in range(_CLAIMS):
        epoch = last_epoch(store, known) + 1
        if store.create(owner_name(epoch), data):
            mark = Mark(epoch, owner, address)
            write_mark(root, mark)
            return mark
        known = epoch  # somebody else was faster, or a probe was answered late
    raise BucketError("the run is claimed by others again and again: see that one process alone continues the run")


def is_newest(store: Store, mark: Mark) -> bool:
    """True while nobody has claimed the run after the holder of the local folder. Raises BucketError."""
    owner = read_owner(store, mark.epoch)  # without conditional writes, somebody may have replaced it
    return (owner is None or owner.id == mark.owner) and store.read(owner_name(mark.epoch + 1)) is None


class Shipper:
    """Ships a local folder. One thread."""

    def __init__(
        self,
        store: Store,
        root: Path,
        mark: Mark,
        *,
        say: Callable[[str], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`mark` is the epoch that this process or its killed predecessor holds; `say` shows a line. Raises
        BucketError."""
        self._store, self._root, self._mark, self._wall = store, root, mark, wall
        self._staging = root.parent / f".{root.name}.shipping"
        self._number = last_number(store, mark.epoch, mark.number)
        self._kept = list(islice(newest_first(store, mark.epoch, say), KEPT))[::-1]
        """The last generations, oldest first."""
        self._named = {part.sha256 for one in self._kept for part in one.parts.values()}
        """Hashes of parts sent by earlier processes; each is checked in the store before its first use."""
        self._there = set[str]()
        last = self._kept[-1].files if self._kept else ()
        self._known: Mapping[str, Known] = {file.path: Known(NO_STAMP, file) for file in last}
        self._is_swept = False

    def ship(self, *, next_s: float = 0.0) -> Shipped | None:
        """Ship the folder as it is; None without a change. The next call follows after `next_s` seconds; 0 for the
        last call.

        Raises MovedError if the run was continued elsewhere, and BucketError and OSError: the generation before stays
        valid then, and the next call tries again.
        """
        self._check_fence()
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(parents=True, mode=0o700)
        try:
            snapshot = take(self._root, self._staging, self._known)
            shipped = self._send(snapshot)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        pointer = Newest(self._number, self._wall(), next_s)
        self._store.write(newest_name(self._mark.epoch), msgspec.json.encode(pointer))
        if shipped is not None:
            self._forget()
        return shipped

    def _send(self, snapshot: Snapshot) -> Shipped | None:
        files = tuple(known.file for known in snapshot.files.values())
        if not files or (self._kept and self._kept[-1].files == files and self._kept[-1].epoch == self._mark.epoch):
            return None
        host, number = socket.gethostname(), self._number + 1
        made = Generation(self._mark.epoch, number, self._mark.owner, host, self._wall(), files)
        parts = made.parts
        missing = [part for sha256, part in parts.items() if sha256 not in self._there]
        self._store.all_of(lambda part: self._send_part(part, snapshot), missing)
        self._store.write(generation_name(self._mark.epoch, number), encoded(made))
        self._number, self._known = number, snapshot.files
        self._kept.append(made)
        self._mark = structs.replace(self._mark, number=number)
        write_mark(self._root, self._mark)
        return Shipped(
            number, len(files), sum(part.size for part in missing), sum(part.size for part in parts.values())
        )

    def _send_part(self, part: Part, snapshot: Snapshot) -> None:
        if part.sha256 not in self._named or self._store.size(part.name) != part.size:
            self._store.write(part.name, snapshot.content(part.sha256))
        self._there.add(part.sha256)

    def _check_fence(self) -> None:
        if not is_newest(self._store, self._mark):
            raise MovedError(
                "the run was continued from the bucket by another process: this process ships no more, and what it did "
                "after that is not part of the run"
            )

    def _forget(self) -> None:
        """Delete what only older generations name. The fence is checked again: whoever has claimed the run since may
        read one of the newest generations, and those stay."""
        own = [one for one in self._kept if one.epoch == self._mark.epoch]
        if len(own) < KEPT:
            return
        left = set[str]() if self._is_swept else self._left()  # before the fence: a later owner's parts are not in it
        self._check_fence()
        stay = {part.name for one in own[-KEPT:] for part in one.parts.values()}
        old = [one for one in self._kept if one not in own[-KEPT:]]
        names = {part.name for one in old for part in one.parts.values()}
        names |= {generation_name(one.epoch, one.number) for one in old}
        names |= left - {generation_name(one.epoch, one.number) for one in own[-KEPT:]}
        self._is_swept = True
        gone = names - stay
        self._store.delete(gone)
        self._there -= {name.removeprefix("parts/") for name in gone}
        self._named, self._kept = set[str](), own[-KEPT:]

    def _left(self) -> set[str]:
        """Return what is there, maybe of dead processes and older epochs, without owners and pointers."""
        ends = ("/owner.json", "/newest.json")
        epochs = {name for name in self._store.listed("epochs") if not name.endswith(ends)}
        return epochs | set(self._store.listed("parts"))
