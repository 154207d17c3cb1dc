"""The list of checkpoints, ckpt/index.json: names the best checkpoint, and removes old checkpoints."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from remuda.config.errors import Error
from remuda.storage.atomic import link, write_bytes
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import NotOrdinaryError, read_bounded
from remuda.wire.messages import CheckpointRecord

_INDEX, _BEST, _INTERRUPT = "index.json", "ckpt_best.pth.tar", "ckpt_interrupt.pth.tar"
_MOST_BYTES = 64 << 20
"""Of index.json, far above MOST_LISTED checkpoints."""
MOST_LISTED = 20_000
"""Checkpoints in index.json, which each checkpoint writes again. Files of older checkpoints stay, unlisted."""
_CHECKPOINT = re.compile(r"iteration_([0-9]+)\.pth\.tar")


class CheckpointIndexError(Error):
    """index.json is damaged, or does not list the requested checkpoint; the message names the file."""


class NewTask(Struct, frozen=True):
    """First evaluated checkpoint of a task."""

    task: str
    train_iter: int
    env_step: int
    wall_s: float
    kwargs_json: str | None = None
    """Arguments in addition to `env.kwargs`, as JSON, without secrets; None if not recorded."""


class _IndexFile(Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    best: int | None
    last: int | None
    checkpoints: tuple[CheckpointRecord, ...]
    tasks: tuple[NewTask, ...] = ()
    """In the order of their first evaluations."""


_DECODER = msgspec.json.Decoder(_IndexFile)
"""Made here, once: several threads read indices, and msgspec must not find out about a class in two at once."""


def to_prune(
    records: Sequence[CheckpointRecord],
    *,
    keep: int,
    best: int | None,
    last: int | None,
    in_use: Collection[int] = (),
) -> list[CheckpointRecord]:
    """Choose the checkpoints to remove, oldest first, so that the newest `keep` are kept; keep=0 keeps all.

    Never chosen: the initial checkpoint (train_iter 0), `best`, `last`, and `in_use` (being evaluated). All are named
    by train_iter.
    """
    if keep == 0:
        return []
    later = sorted((record for record in records if record.train_iter > 0), key=lambda record: record.train_iter)
    return [record for record in later[:-keep] if record.train_iter not in {best, last, *in_use}]


class CheckpointIndex:
    """Checkpoints of one ckpt/ folder. A change is on disk, atomically and durably, when the method returns.

    Only one process at a time may change an index; any process may read. The index does not write checkpoints, but
    links the best and the interrupted checkpoint and removes old checkpoints.
    """

    def __init__(self, folder: Path, *, follow_link: bool = True) -> None:
        """Raises CheckpointIndexError, and OSError; also for an index that is a link, unless `follow_link`."""
        self.folder = folder
        self._follow_link = follow_link
        self.load()

    def load(self) -> None:
        """Read the index again; a missing index is empty. Raises CheckpointIndexError if it is damaged."""
        path = self.folder / _INDEX
        try:
            self._state = _decode(read_bounded(path, most_bytes=_MOST_BYTES, follow_link=self._follow_link))
        except FileNotFoundError:
            self._state = _IndexFile(1, None, None, ())
        except (msgspec.DecodeError, ValueError, RecursionError, NotOrdinaryError) as error:
            raise CheckpointIndexError(
                f"{path} is damaged ({error}): restore it, or move it away to continue without the list of earlier "
                "checkpoints (their files can still be used by name)"
            ) from None

    @property
    def records(self) -> tuple[CheckpointRecord, ...]:
        """All checkpoints in order of train_iter."""
        return self._state.checkpoints

    @property
    def best(self) -> CheckpointRecord | None:
        """Return the best checkpoint; None before the first evaluation."""
        return None if self._state.best is None else self.record(self._state.best)

    @property
    def last(self) -> CheckpointRecord | None:
        """Return the last added checkpoint, where a resumed run continues; None in an empty index."""
        return None if self._state.last is None else self.record(self._state.last)

    @property
    def tasks(self) -> tuple[NewTask, ...]:
        """Tasks of the run's evaluations, with their first checkpoints; several if a resumed run has another task."""
        return self._state.tasks

    def record(self, train_iter: int) -> CheckpointRecord:
        """Find the checkpoint of this train_iter. Raises CheckpointIndexError if missing."""
        for record in self._state.checkpoints:
            if record.train_iter == train_iter:
                return record
        raise CheckpointIndexError(f"{self.folder / _INDEX} lists no checkpoint of iteration {train_iter}")

    def path(self, train_iter: int) -> Path:
        """Find the file of the checkpoint of this train_iter, listed or not. Raises CheckpointIndexError if missing."""
        path = self.folder / f"iteration_{train_iter}.pth.tar"
        return path if path.is_file() else self.folder / self.record(train_iter).file

    def add(self, record: CheckpointRecord, *, keep: int = 0, in_use: Collection[int] = ()) -> list[CheckpointRecord]:
        """Add a checkpoint with a complete file, and remove the checkpoints that `to_prune` then chooses; returns the
        removed.

        The new checkpoint replaces a checkpoint of the same train_iter, and keeps its reward (and its link to the best:
        the weights are the same). Files are removed before their records: after a crash in between, the remaining
        records are chosen again next time.
        """
        if not math.isfinite(record.wall_s):
            raise ValueError(f"checkpoint of iteration {record.train_iter}: wall_s is {record.wall_s}")
        for known in self._state.checkpoints:
            if known.train_iter == record.train_iter and record.reward is None:
                record = structs.replace(record, reward=known.reward, task=known.task)
        listed = self._with(record)
        gone = to_prune(listed, keep=keep, best=self._state.best, last=record.train_iter, in_use=in_use)
        for old in gone:
            (self.folder / old.file).unlink(missing_ok=True)
        if self._state.best == record.train_iter:
            self._link(record.train_iter, _BEST)
        beyond = to_prune(listed, keep=MOST_LISTED, best=self._state.best, last=record.train_iter, in_use=in_use)
        left_out = {each.train_iter for each in (*gone, *beyond)}
        kept = tuple(each for each in listed if each.train_iter not in left_out)
        self._write(checkpoints=kept, last=record.train_iter)
        return gone

    def set_reward(
        self, train_iter: int, reward: float, *, task: str = "", kwargs_json: str | None = None, best: bool = False
    ) -> None:
        """Set the mean evaluation return of a checkpoint on a task with these arguments; a return that is not finite
        counts as not evaluated.

        With `best`, ckpt_best.pth.tar becomes a link to this checkpoint.
        """
        known = self.record(train_iter)
        evaluated = structs.replace(known, reward=reward if math.isfinite(reward) else None, task=task)
        if best:
            self._link(train_iter, _BEST)
        tasks = self._state.tasks
        if task and (not tasks or tasks[-1].task != task):
            tasks = (*tasks, NewTask(task, known.train_iter, known.env_step, known.wall_s, kwargs_json))
        self._write(checkpoints=self._with(evaluated), best=train_iter if best else self._state.best, tasks=tasks)

    def link_interrupt(self, train_iter: int) -> None:
        """Make ckpt_interrupt.pth.tar a link to this checkpoint."""
        self._link(train_iter, _INTERRUPT, synced=True)

    def _with(self, record: CheckpointRecord) -> tuple[CheckpointRecord, ...]:
        others = (known for known in self._state.checkpoints if known.train_iter != record.train_iter)
        return tuple(sorted((*others, record), key=lambda known: known.train_iter))

    def _write(self, **changes: object) -> None:
        """Write the index with these changes, and only then change the state in memory."""
        new = structs.replace(self._state, **changes)
        text = msgspec.json.format(msgspec.json.encode(new), indent=2)
        write_bytes(self.folder / _INDEX, text + b"\n", durable=True)
        self._state = new

    def _link(self, train_iter: int, name: str, *, synced: bool = False) -> None:
        """`synced`: the link survives a power failure at once, not only after the index is written next."""
        source = self.folder / self.record(train_iter).file
        try:
            link(source, self.folder / name, durable=synced)
        except FileNotFoundError:
            raise CheckpointIndexError(f"{source} is listed in {_INDEX} but missing") from None


def drop_models(run: RunFolder, gone: Iterable[CheckpointRecord]) -> None:
    """Remove the models of removed checkpoints; errors are ignored."""
    for record in gone:
        with contextlib.suppress(OSError):
            run.model_of(record.train_iter).unlink()


def unlisted(folder: Path, *, beyond: int) -> list[Path]:
    """Find checkpoints after this iteration outside the index: saved by a replaced learner without the knowledge of the
    coordinator. If the index is damaged, no file counts as unlisted."""
    try:
        listed = {record.file for record in CheckpointIndex(folder).records}
    except CheckpointIndexError:
        return []
    saved = ((path, _CHECKPOINT.fullmatch(path.name)) for path in folder.glob("iteration_*.pth.tar"))
    return [path for path, found in saved if found and int(found.group(1)) > beyond and path.name not in listed]


def _decode(data: bytes) -> _IndexFile:
    state = _DECODER.decode(data)
    listed = [record.train_iter for record in state.checkpoints]
    if len(set(listed)) < len(listed):
        raise ValueError("a train_iter is listed twice")
    for name, train_iter in (("best", state.best), ("last", state.last)):
        if train_iter is not None and train_iter not in listed:
            raise ValueError(f"{name} names iteration {train_iter}, which is not listed")
    return state
