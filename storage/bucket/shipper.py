"""Ships generations of a run folder to a bucket, as the only holder of the run's newest epoch."""

from __future__ import annotations

import re
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Set
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
_OF_EPOCH = re.compile(r"parts/(\d+)/\w+|epochs/(\d+)/\d+\.json")
"""Objects of an epoch that may go: parts and generations."""


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

    def __init__(self, store: Store, root: Path, mark: Mark, *, say: Callable[[str], None]) -> None:
        """`mark` is the epoch that this process or its killed predecessor holds; `say` shows a line. Raises
        BucketError."""
        self._store, self._root, self._mark = store, root, mark
        self._staging = root.parent / f".{root.name}.shipping"
        self._number = last_number(store, mark.epoch, mark.number)
        self._kept = list(islice(newest_first(store, mark.epoch, say), KEPT))[::-1]
        """The last generations, oldest first."""
        self._there = set[str]()
        """Names of parts sent by this process. Parts of earlier processes are checked in the store before their first
        use."""
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
        named = {part.sha256: part for one in self._kept for part in one.parts.values()}

        def part_of(sha256: str, size: int) -> Part:
            return named.get(sha256) or Part(sha256, size, self._mark.epoch)

        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(parents=True, mode=0o700)
        try:
            snapshot = take(self._root, self._staging, self._known, part_of)
            shipped = self._send(snapshot, {part.name for part in named.values()})
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        pointer = Newest(self._number, time.time(), next_s)
        self._store.write(newest_name(self._mark.epoch), msgspec.json.encode(pointer))
        if shipped is not None:
            self._forget()
        return shipped

    def _send(self, snapshot: Snapshot, named: Set[str]) -> Shipped | None:
        files = tuple(known.file for known in snapshot.files.values())
        if not files or (self._kept and self._kept[-1].files == files and self._kept[-1].epoch == self._mark.epoch):
            return None
        host, number = socket.gethostname(), self._number + 1
        made = Generation(self._mark.epoch, number, self._mark.owner, host, time.time(), files)
        parts = made.parts
        missing = [part for name, part in parts.items() if name not in self._there]
        self._store.all_of(lambda part: self._send_part(part, snapshot, known=part.name in named), missing)
        self._store.write(generation_name(self._mark.epoch, number), encoded(made))
        self._number, self._known = number, snapshot.files
        self._kept.append(made)
        self._mark = structs.replace(self._mark, number=number)
        write_mark(self._root, self._mark)
        return Shipped(
            number, len(files), sum(part.size for part in missing), sum(part.size for part in parts.values())
        )

    def _send_part(self, part: Part, snapshot: Snapshot, *, known: bool) -> None:
        if not known or self._store.size(part.name) != part.size:
            self._store.write(part.name, snapshot.content(part.sha256))
        self._there.add(part.name)

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
        self._check_fence()
        own, old = own[-KEPT:], self._kept[:-KEPT]
        gone = {generation_name(one.epoch, one.number) for one in old}.union(*(one.parts for one in old))
        if not self._is_swept:
            gone |= self._left()
            self._is_swept = True
        gone -= {generation_name(one.epoch, one.number) for one in own}.union(*(one.parts for one in own))
        self._store.delete(gone)
        self._there -= gone
        self._kept = own

    def _left(self) -> set[str]:
        """Return what dead processes and older epochs have left, without owners and pointers."""
        found = map(_OF_EPOCH.fullmatch, [*self._store.listed("epochs"), *self._store.listed("parts")])
        return {one[0] for one in found if one is not None and int(one[1] or one[2]) <= self._mark.epoch}
