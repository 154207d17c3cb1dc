"""The run's time series, log/series.msgpack: records and their readers, also for use during the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from remuda.storage.record_file import ends_of_records, packed, read_records
from remuda.wire.messages import LedgerCounts

FORMAT = 1
"""Increased when a reader of the former format would misread the file."""
_KIND: Final = "kind"
EventKind = Literal[
    "worker_joined",
    "worker_back",
    "worker_left",
    "worker_died",
    "worker_failed",
    "evaluated_by_training",
    "held_up",
    "goes_on",
    "task_begins",
    "run_ends",
]
"""Kinds of events. `evaluated_by_training`: a checkpoint received the mean return of training episodes. Evaluations
have records of another type."""


class Usage(Struct, frozen=True):
    """Resources used by the processes of a role since the last report, and shares of time. The shares add up to
    1."""

    role: str
    """collector, evaluator, learner or coordinator; serial for a run in one process."""
    processes: int
    cpu_cores: float
    """Processor seconds per second of all processes, without child processes of vectors."""
    rss_mib: float
    """Resident memory of all processes; shared pages count in every process."""
    work: float
    """Neither waiting nor in the environment."""
    env: float
    """In the environment's step and reset."""
    wait_data: float
    """Waiting for batches, or for an evaluation to play."""
    wait_policy: float
    """Waiting for a policy to load or to be published."""
    wait_credit: float
    """Waiting for credit: the learner is slower, or a new policy has to come first."""
    wait_other: float
    """Waiting for acknowledgements or for the end; the coordinator: for messages."""

    @property
    def wait(self) -> float:
        """The share of all waits."""
        return self.wait_data + self.wait_policy + self.wait_credit + self.wait_other


class WorkerUsage(Usage, frozen=True, kw_only=True):
    """Usage of a worker."""

    worker: str
    """UUID of the worker."""
    env_steps: int | None = None
    """Steps reported within the interval by a collector; None for an evaluator, learner or coordinator."""


class SeriesError(Exception):
    """This version cannot read the file; the text gives the reason."""


class Begin(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="begin"):
    """The first record of a file."""

    format: int
    time_s: float
    """Time of writing: seconds since 1970, here and below."""


class Interval(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="interval"):
    """The run since the last record of this kind, every `log.buffer_interval_s` seconds and at the end."""

    time_s: float
    wall_s: float
    """Seconds since the run began, at the end of the interval, like the counters."""
    past_s: float
    """Seconds covered by the usages."""
    env_step: int
    train_iter: int
    episode: int
    policy_version: int
    env_steps_per_s: float
    train_iters_per_s: float
    """Gradient updates."""
    episodes: int
    """Training episodes reported within the interval."""
    return_mean: float | None
    """Mean return of the episodes; None without episodes."""
    buffer_rows: int | None
    """Rows in the replay index; None if unknown."""
    policy_lag: int | None = None
    """Versions between the newest policy and the collecting policy of the newest experience; None if unknown."""
    samples_per_insert: float | None = None
    """Average count of samples per row since the run began; None if unknown."""
    ledger: LedgerCounts | None = None
    """None if unknown."""
    events_left_out: int
    """Events beyond the limit per interval."""
    roles: list[Usage]
    workers: list[WorkerUsage]
    """At most 100 workers; in larger runs only `roles` covers all workers."""


class Evaluation(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="evaluation"):
    """The result of a checkpoint's evaluation."""

    time_s: float
    wall_s: float
    """Time of saving the checkpoint, in seconds since the run began, like the counters."""
    env_step: int
    train_iter: int
    checkpoint: str
    """Name of the file."""
    episodes: int
    return_mean: float | None
    return_std: float | None
    duration_s: float
    best: bool
    """True for the best checkpoint so far."""


class Event(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="event"):
    """A single event."""

    time_s: float
    wall_s: float
    env_step: int
    train_iter: int
    event: str
    """Kind, of EventKind."""
    role: str | None
    """Role of the worker concerned; None, like `worker`, for an event without a worker."""
    worker: str | None
    text: str


class Logged(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="callback"):
    """Numbers logged by a callback of the user."""

    time_s: float
    wall_s: float
    env_step: int
    train_iter: int
    callback: str
    """Class name of the callback."""
    numbers: dict[str, float]
    """Finite numbers by name."""


Moment = Interval | Evaluation | Event | Logged


_ANY = Begin | Moment


_KINDS = frozenset(str(type_.__struct_config__.tag) for type_ in get_args(_ANY))


def read_series(path: Path) -> Iterator[Moment]:
    """Yield the records in order of writing; evaluations come later than their `wall_s`.

    Ends at a torn or damaged record. Raises SeriesError for a newer format, and OSError without a file.
    """
    for whole in read_whole(path):
        record = whole.record
        if isinstance(record, Begin):
            if record.format > FORMAT:
                raise SeriesError(
                    f"{path} has format {record.format}, this version of Remuda reads {FORMAT}: update it"
                )
        elif record is not None:
            yield record


@dataclass(frozen=True)
class PlacedRecord:
    """A record and its bytes in the file: from `begin` up to `end`."""

    record: Begin | Moment | None
    """None for a kind unknown to this version."""
    wall_s: float
    """0 for a record without time."""
    begin: int
    end: int


def read_whole(path: Path) -> Iterator[PlacedRecord]:
    """Yield the records and their positions, up to the first damaged record. Raises OSError."""
    for found in read_records(path):
        try:
            place = msgspec.convert(found.value, _RecordHead)
            record = msgspec.convert(found.value, _ANY) if place.kind in _KINDS else None
        except msgspec.ValidationError:
            return
        yield PlacedRecord(record, place.wall_s, found.begin, found.end)


def decode_records(data: bytes) -> tuple[list[Begin | Moment], int]:
    """Return the known records at the beginning of `data`, and the end of the last whole record. Takes a tenth of the
    time of `read_whole`."""
    ends = ends_of_records(data)
    if not ends:
        return [], 0
    try:
        return _MANY.decode(b"\xdd" + len(ends).to_bytes(4, "big") + data[: ends[-1]]), ends[-1]
    except _REFUSED:
        return _one_by_one(data, ends)


def decode_first(data: bytes) -> Begin | Moment | None:
    """Return the record at the beginning of `data`; None for a torn, damaged or unknown record."""
    ends = ends_of_records(data, most=1)
    records, _ = _one_by_one(data, ends)
    return records[0] if records else None


def marker(kind: type[Struct]) -> bytes:
    """Return the bytes at the beginning of records of this kind, after the number of their items."""
    return packed(_KIND) + packed(str(kind.__struct_config__.tag))


def _one_by_one(data: bytes, ends: Sequence[int]) -> tuple[list[Begin | Moment], int]:
    """Decode like `decode_records`, without unknown kinds, up to a damaged record."""
    records, begin = list[Begin | Moment](), 0
    for end in ends:
        body = data[begin:end]
        try:
            if _HEAD.decode(body).kind in _KINDS:
                records.append(_ONE.decode(body))
        except _REFUSED:
            break
        begin = end
    return records, begin


class _RecordHead(Struct, frozen=True):
    """Fields of every record."""

    kind: str
    wall_s: float = 0.0


_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
"""Exceptions of decoding for malformed bytes."""


_HEAD = msgspec.msgpack.Decoder(_RecordHead)


_ONE: msgspec.msgpack.Decoder[Begin | Moment] = msgspec.msgpack.Decoder(_ANY)


_MANY: msgspec.msgpack.Decoder[list[Begin | Moment]] = msgspec.msgpack.Decoder(list[_ANY])


# Made at import, since msgspec must not inspect a class in two threads at once.
