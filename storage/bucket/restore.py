"""Restores a run folder from a bucket: the newest generation whose objects are all there and whole."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from msgspec import structs

from remuda.storage.bucket.address import BucketError
from remuda.storage.bucket.generation import File, Generation, Part, last_epoch, newest_first
from remuda.storage.bucket.store import DeniedError, Store
from remuda.storage.existing_folder import free_name

_READS = 3
"""Reads of a part before it counts as damaged: an object may appear late."""


def restore_found(store: Store, address: str, root: Path, say: Callable[[str], None]) -> Generation:
    """Restore the run at `address`, or a run of a coordinator at an address above, into the new folder `root`. Raises
    BucketError, also without a run, and OSError."""
    hint = ""
    for at, below in ((store, ""), *store.above()):
        try:
            found = restore(at, root, say, below=below)
        except DeniedError:
            if not below:
                raise
            hint = (
                ", and the keys do not permit the addresses above: correct the address or, for a run of a coordinator, "
                "take the coordinator's keys"
            )
            continue
        if found is not None:
            return found
    raise BucketError(f"{address} holds no run{hint}")


def restore(store: Store, root: Path, say: Callable[[str], None], *, below: str = "") -> Generation | None:
    """Put the newest whole generation, or only its files `below` a path, into the folder `root`, in place of a folder
    there, which is moved aside. Returns what was restored; None for an address without a run. Raises BucketError if no
    generation is whole, and OSError."""
    staging = root.parent / f".{root.name}.restoring"
    seen = False
    for whole in newest_first(store, last_epoch(store), say):
        generation = structs.replace(whole, files=tuple(_below(below, whole.files)))
        if not generation.files:
            continue
        seen = True
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True, mode=0o700)
        try:
            _fill(store, generation, staging)
        except BucketError as error:
            shutil.rmtree(staging, ignore_errors=True)
            say(f"generation {generation.epoch}/{generation.number} is left out: {error}")
            continue
        if root.exists():
            move_aside(root)
        os.rename(staging, root)
        return generation
    if seen:
        raise BucketError("no generation of the run is whole; if objects appear late in this store, try again")
    return None


def _below(start: str, files: Iterable[File]) -> Iterator[File]:
    """Yield the files below a path, named from there."""
    for file in files:
        if file.path.startswith(start):
            yield structs.replace(file, path=file.path.removeprefix(start))


def _fill(store: Store, generation: Generation, folder: Path) -> None:
    """Write all files. Raises BucketError for a missing or damaged part, and OSError."""
    folders = {folder / file.path for file in generation.files}
    for path in {path.parent for path in folders}:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    store.all_of(lambda file: _write(store, file, folder / file.path), generation.files)


def _write(store: Store, file: File, path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file.mode & 0o777 | 0o600)
    with open(descriptor, "wb") as target:
        for part in file.parts:
            target.write(_read(store, part))


def _read(store: Store, part: Part) -> bytes:
    state = "missing"
    for _ in range(_READS):
        data = store.read(part.name)
        if data is not None:
            state = "damaged"
            if len(data) == part.size and hashlib.sha256(data).hexdigest() == part.sha256:
                return data
    raise BucketError(f"{part.name} is {state}")


def move_aside(root: Path) -> None:
    """Give a folder another name. Raises OSError."""
    os.rename(root, free_name(root.parent, f"{root.name}.before_{datetime.now().astimezone():%y%m%d_%H%M%S}"))
