"""Opens a run in a bucket: a new run, or an existing run, restored to this machine and taken from its former owner."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from msgspec import structs

from remuda.storage.bucket.address import BucketError, LocalFolder, Mark, read_mark
from remuda.storage.bucket.generation import (
    File,
    Generation,
    Newest,
    Part,
    last_epoch,
    newest_first,
    newest_name,
    read_newest,
    read_owner,
)
from remuda.storage.bucket.shipper import claim
from remuda.storage.bucket.store import DeniedError, Store
from remuda.storage.existing_folder import OnExists, free_name
from remuda.storage.run_folder import RUNS_LIST, RunFolder

_LATE_S, _LATE_INTERVALS = 10.0, 2
"""An owner may be later with its next copy by so many seconds, or intervals, before it counts as dead."""
_READS = 3
"""Reads of a part before it counts as damaged: an object may appear late."""


class OccupiedError(BucketError):
    """The address holds a run already, or no run to continue."""


def open_run(
    store: Store,
    address: str,
    folder: LocalFolder,
    on_exists: OnExists,
    owner: str,
    say: Callable[[str], None],
) -> Mark:
    """Claim the run at the store's address for `owner`, with the run's files in `folder`; a new run begins without the
    folder. A coordinator's runs are opened in the same way; with `resume` also where there are none yet.

    A folder on this machine is kept if nobody has continued the run elsewhere since: then the folder is at least as new
    as the bucket. Any other folder is moved aside. Raises OccupiedError if `on_exists` does not permit the address,
    FolderOwnedError if a process of this machine has the run open, BucketError if another machine has the run open, and
    OSError.
    """
    root, epoch = folder.root, last_epoch(store)
    newest = next(newest_first(store, epoch, say), None)
    is_run = newest is not None
    is_here = _is_of_newest_epoch(store, epoch, folder)
    if newest is not None and folder.main.name not in (file.path for file in newest.files):
        there = LocalFolder(root, not folder.has_runs)
        raise OccupiedError(f"{address} holds {there.what}, and not {folder.what}: choose another address")
    if not is_run and not is_here:
        _require_outside(store, address, root, say)
    if is_run and on_exists not in ("resume", "force"):
        raise OccupiedError(
            f"{address} holds a run: continue it with --resume, start over with --force, or choose another address"
        )
    if not is_run and not is_here and on_exists == "resume" and not folder.has_runs:
        raise OccupiedError(f"{address} cannot be resumed: it holds no run; start one without --resume")
    folder.require_no_owner()
    if is_here:
        say(f"{address}: continuing from {root}, which is at least as new as the bucket")
    elif is_run:
        _see_that_owner_is_gone(store, address, epoch, say)
        found = restore(store, root, say)
        if found is not None:
            when = datetime.fromtimestamp(found.at).astimezone()
            at = f"{when:%Y-%m-%d %H:%M:%S}"
            say(f"{address}: restored generation {found.epoch}/{found.number}, shipped by {found.host} at {at}")
    elif root.exists():
        _move_aside(root)
    return claim(store, root, owner, address)


def _require_outside(store: Store, address: str, root: Path, say: Callable[[str], None]) -> None:
    """Raise OccupiedError for a run of a coordinator at an address above, or on this machine."""
    coordinator = next((each for each in root.parents if (each / RUNS_LIST).exists()), None)
    is_own = coordinator is not None and RunFolder(root).config_json.exists() and read_mark(root) is None
    for above, below in () if is_own else store.above():
        with contextlib.suppress(DeniedError):  # keys for this address alone
            newest = next(newest_first(above, last_epoch(above), say), None)
            is_own |= newest is not None and any(file.path.startswith(below) for file in newest.files)
    if is_own:
        raise OccupiedError(
            f"{address} is a run of a coordinator: start `remuda coordinator` at its address, which continues all of "
            "its runs, or choose another address"
        )


def _is_of_newest_epoch(store: Store, epoch: int, folder: LocalFolder) -> bool:
    """True if the folder on this machine was the last to hold the run."""
    mark = read_mark(folder.root)
    if mark is None or mark.epoch != epoch or not folder.main.is_file():
        return False
    holder = read_owner(store, epoch)
    return holder is not None and holder.id == mark.owner


def _see_that_owner_is_gone(store: Store, address: str, epoch: int, say: Callable[[str], None]) -> None:
    """Wait until the owner's next copy is overdue. Raises BucketError if a copy comes."""
    pointer = read_newest(store, epoch)
    if pointer is None or pointer.next_s == 0.0:
        return
    age_s = store.age_s(newest_name(epoch))  # the clocks of two machines may differ by more than the grace
    if age_s is None:
        age_s = time.time() - pointer.at
    rest_s = min(_grace_s(pointer) - age_s, _grace_s(pointer))
    holder = read_owner(store, epoch)
    host = "another process" if holder is None else f"a process on {holder.host}"
    if rest_s > 0:
        say(f"{address}: {host} shipped a short time ago; waiting {rest_s:.0f} s to see that it is gone")
    while rest_s > 0:
        time.sleep(min(rest_s, 2.0))
        rest_s -= 2.0
        if read_newest(store, epoch) != pointer:
            raise BucketError(f"{address} belongs to {host}, which is alive: stop that run first")


def _grace_s(pointer: Newest) -> float:
    return pointer.next_s + max(_LATE_S, _LATE_INTERVALS * pointer.next_s)


def free_address(address: str, root: Path, now: datetime) -> tuple[str, Path]:
    """Return the address and folder of a run that takes another name."""
    end = f"_{now:%y%m%d_%H%M%S}"
    return f"{address}{end}", Path(os.fspath(root) + end)


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
            _move_aside(root)
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


def _move_aside(root: Path) -> None:
    """Give a folder another name. Raises OSError."""
    os.rename(root, free_name(root.parent, f"{root.name}.before_{datetime.now().astimezone():%y%m%d_%H%M%S}"))
