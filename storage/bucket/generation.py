"""Generations of a run in a bucket: which objects make up the run folder at one moment."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TypeVar

import msgspec

from remuda.storage.bucket.address import BucketError
from remuda.storage.bucket.store import Store

_T = TypeVar("_T")
KEPT = 3
"""Newest generations that stay whole: so many may be damaged, or appear late, before a reader finds none."""
_MOST_BYTES = 256 << 20


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a file, stored as an object named by its content."""

    sha256: str
    size: int
    epoch: int
    """The part was sent in this epoch: the holder of an earlier epoch, which may still tidy up, cannot delete it."""

    @property
    def name(self) -> str:
        """Name of the object."""
        return f"parts/{self.epoch:06}/{self.sha256}"


class File(msgspec.Struct, frozen=True):
    """A file of the run folder."""

    path: str
    mode: int
    parts: tuple[Part, ...]


class Generation(msgspec.Struct, frozen=True):
    """The run folder at one moment. Only the holder of the epoch writes generations of this epoch."""

    epoch: int
    number: int
    owner: str
    host: str
    at: float
    """Wall time."""
    files: tuple[File, ...]

    @property
    def parts(self) -> dict[str, Part]:
        """All parts by their name."""
        return {part.name: part for file in self.files for part in file.parts}


class Newest(msgspec.Struct, frozen=True):
    """Points to the last generation of an epoch; may be read late. Rewritten regularly while the owner lives."""

    number: int
    at: float
    next_s: float = 0.0
    """Seconds until the owner writes the pointer again; 0 if the owner will write no more."""


class Owner(msgspec.Struct, frozen=True):
    """The holder of an epoch. Its object is created once and never changes."""

    id: str
    host: str


_GENERATION = msgspec.json.Decoder(Generation)
_NEWEST = msgspec.json.Decoder(Newest)
_OWNER = msgspec.json.Decoder(Owner)


def owner_name(epoch: int) -> str:
    """Return the name of the owner object of an epoch."""
    return f"epochs/{epoch:06}/owner.json"


def newest_name(epoch: int) -> str:
    """Return the name of the pointer of an epoch."""
    return f"epochs/{epoch:06}/newest.json"


def generation_name(epoch: int, number: int) -> str:
    """Return the name of a generation."""
    return f"epochs/{epoch:06}/{number:08}.json"


def encoded(generation: Generation) -> bytes:
    """Return the bytes of a generation: a line with the hash of the rest, then JSON."""
    content = msgspec.json.encode(generation)
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def decoded(data: bytes) -> Generation:
    """Read a generation of an untrusted writer. Raises BucketError if it is torn, damaged or names a file outside."""
    seal, _, content = data.partition(b"\n")
    if len(data) > _MOST_BYTES or seal != hashlib.sha256(content).hexdigest().encode():
        raise BucketError("it is torn")
    try:
        generation = _GENERATION.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BucketError(f"it is no generation: {error}") from error
    paths = [file.path for file in generation.files]
    if len(set(paths)) < len(paths) or not all(map(_is_inside, paths)):
        raise BucketError("it names files outside of the run folder")
    if any(min(part.size, part.epoch) < 0 or not _is_hash(part.sha256) for part in generation.parts.values()):
        raise BucketError("it names a part that cannot be")
    return generation


def read_owner(store: Store, epoch: int) -> Owner | None:
    """Return the holder of an epoch; None for an epoch that nobody holds, or with a torn object. Raises StoreError."""
    return _content(_OWNER, store.read(owner_name(epoch)))


def last_epoch(store: Store, known: int = 0) -> int:
    """Return the newest epoch, at least `known`; 0 for an address without a run. Owners are never deleted, so a probe
    finds each; no listing is asked. Raises StoreError."""
    while store.read(owner_name(known + 1)) is not None:
        known += 1
    return known


def read_newest(store: Store, epoch: int) -> Newest | None:
    """Return the pointer of an epoch, if there is a whole one. Raises StoreError."""
    return _content(_NEWEST, store.read(newest_name(epoch)))


def last_number(store: Store, epoch: int, known: int = 0) -> int:
    """Return the highest number of an epoch's generations: from the pointer and from a listing, both of which may be
    late, and then by asking for each following number. Raises StoreError."""
    pointer = read_newest(store, epoch)
    names = [PurePosixPath(name).stem for name in store.listed(f"epochs/{epoch:06}")]
    known = max([known, pointer.number if pointer is not None else 0, *(int(one) for one in names if one.isdigit())])
    while store.read(generation_name(epoch, known + 1)) is not None:
        known += 1
    return known


def newest_first(store: Store, epoch: int, say: Callable[[str], None]) -> Iterator[Generation]:
    """Yield the generations from this epoch downwards, newest first; `say` gets a line per unreadable one. A reader
    takes the first whose parts are all there. Raises StoreError."""
    for each in range(epoch, 0, -1):
        last = last_number(store, each)
        for number in range(last, max(0, last - KEPT), -1):
            name = generation_name(each, number)
            data = store.read(name)
            if data is None:
                continue
            try:
                yield decoded(data)
            except BucketError as error:
                say(f"{name} is left out: {error}")


def _content(decoder: msgspec.json.Decoder[_T], data: bytes | None) -> _T | None:
    try:
        return None if data is None else decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _is_inside(path: str) -> bool:
    pieces = path.split("/")
    return "\0" not in path and not any(piece in ("", ".", "..") for piece in pieces)


def _is_hash(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
