"""The run's time series, log/series.msgpack: its records, and how to read them, also during the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from remuda.storage.record_file import ends_of_records, packed, read_records

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
"""What an event tells of; `evaluated_by_training`: a checkpoint got the mean return of training episodes.
Evaluations have records of their own."""


class Usage(Struct, frozen=True):
    """What the processes of one role used since the last report, and the shares of their time. Shares add up to 1."""

    role: str
    """collector, evaluator, learner or coordinator; serial where all are one process."""
    processes: int
    cpu_cores: float
    """Processor time of all of them per second; child processes of vectors not included."""
    rss_mib: float
    """Resident memory of all of them; pages that they share are counted in each."""
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
    """The same of one worker."""

    worker: str
    """Its UUID."""
    env_steps: int | None = None
    """Steps that a collector has reported within the interval; None for other roles."""


class SeriesError(Exception):
    """The file cannot be read by this version; the text says why."""


class Begin(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="begin"):
    """The first record of a file."""

    format: int
    time_s: float
    """When it was written: seconds since 1970, here and below."""


class Ledger(Struct, frozen=True, kw_only=True):
    """How the chunks of the run fared until now, over all restarts of its coordinator. See LedgerCounts."""

    accepted: int
    """Chunks that were counted: the environment steps in them are `env_step`."""
    repeated: int
    """Announcements of chunks that had been counted before."""
    refused: int
    """Chunks that were announced and are not counted."""
    refused_env_steps: int
    """Environment steps in these."""
    lost_collectors: int
    """Collectors that ended without handing in what they had: each has lost at most two chunks."""


class Interval(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="interval"):
    """The run since the last record of this kind, every `log.buffer_interval_s` seconds and at the end."""

    time_s: float
    wall_s: float
    """Seconds since the run began, at the end of the interval; so are the counters."""
    past_s: float
    """Seconds that the usages cover."""
    env_step: int
    train_iter: int
    episode: int
    policy_version: int
    env_steps_per_s: float
    train_iters_per_s: float
    """Gradient updates."""
    episodes: int
    """Training episodes that were reported within the interval."""
    return_mean: float | None
    """Their mean return; None if there are none."""
    buffer_rows: int | None
    """Rows in the replay index; None if that is not known."""
    policy_lag: int | None = None
    """Versions between the newest policy and the one that collected the newest experience; None if unknown."""
    samples_per_insert: float | None = None
    """How often a row was sampled on average since the run began; None if that is not known."""
    ledger: Ledger | None = None
    """None if that is not known."""
    events_left_out: int
    """Events beyond the limit of one interval."""
    roles: list[Usage]
    workers: list[WorkerUsage]
    """At most 100 workers; with more, only the roles cover all of them."""


class Evaluation(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="evaluation"):
    """The result of a checkpoint's evaluation."""

    time_s: float
    wall_s: float
    """When the checkpoint was saved, in seconds since the run began; so are the counters."""
    env_step: int
    train_iter: int
    checkpoint: str
    """Name of its file."""
    episodes: int
    return_mean: float | None
    return_std: float | None
    duration_s: float
    best: bool
    """It is the best so far."""


class Event(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="event"):
    """Something that happened once."""

    time_s: float
    wall_s: float
    env_step: int
    train_iter: int
    event: str
    """One of EventKind."""
    role: str | None
    """The role of the worker that it is about; None if it is about none, and then `worker` is None too."""
    worker: str | None
    text: str


class Logged(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="callback"):
    """Numbers that a callback of the user has logged."""

    time_s: float
    wall_s: float
    env_step: int
    train_iter: int
    callback: str
    """Its class."""
    numbers: dict[str, float]
    """Those that are finite."""


Moment = Interval | Evaluation | Event | Logged


_ANY = Begin | Moment


_KINDS = frozenset(str(type_.__struct_config__.tag) for type_ in get_args(_ANY))


def read_series(path: Path) -> Iterator[Moment]:
    """Yield the records in the order in which they were written; evaluations come later than their `wall_s`.

    Ends at a torn or damaged record. Raises SeriesError for a newer format, and OSError if there is no file.
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
    """A record, and the bytes of the file that hold it: from `begin` up to `end`."""

    record: Begin | Moment | None
    """None: this version does not know its kind."""
    wall_s: float
    """0 if it has none."""
    begin: int
    end: int


def read_whole(path: Path, *, begin: int = 0) -> Iterator[PlacedRecord]:
    """Yield the records from the byte `begin` on, where one begins, and their positions, up to the first damaged one.
    Raises OSError."""
    for found in read_records(path, begin=begin):
        try:
            place = msgspec.convert(found.value, _RecordHead)
            record = msgspec.convert(found.value, _ANY) if place.kind in _KINDS else None
        except msgspec.ValidationError:
            return
        yield PlacedRecord(record, place.wall_s, found.begin, found.end)


def decode_records(data: bytes) -> tuple[list[Begin | Moment], int]:
    """The records at the beginning of `data`, of the kinds that this version knows, and where the last whole one ends.
    It takes a tenth of the time of `read_whole`."""
    ends = ends_of_records(data)
    if not ends:
        return [], 0
    try:
        return _MANY.decode(b"\xdd" + len(ends).to_bytes(4, "big") + data[: ends[-1]]), ends[-1]
    except _REFUSED:
        return _one_by_one(data, ends)


def decode_first(data: bytes) -> Begin | Moment | None:
    """The record at the beginning of `data`; None if it is torn, damaged, or of a kind that this version does not
    know."""
    ends = ends_of_records(data, most=1)
    records, _ = _one_by_one(data, ends)
    return records[0] if records else None


def marker(kind: type[Struct]) -> bytes:
    """The bytes at the beginning of a record of this kind, behind the number of its items."""
    return packed(_KIND) + packed(str(kind.__struct_config__.tag))


def _one_by_one(data: bytes, ends: Sequence[int]) -> tuple[list[Begin | Moment], int]:
    """As `decode_records`: leaves out kinds that are not known, and ends at a damaged record."""
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
    """What every record has."""

    kind: str
    wall_s: float = 0.0


_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding raises for bytes that are no record."""


_HEAD = msgspec.msgpack.Decoder(_RecordHead)


_ONE: msgspec.msgpack.Decoder[Begin | Moment] = msgspec.msgpack.Decoder(_ANY)


_MANY: msgspec.msgpack.Decoder[list[Begin | Moment]] = msgspec.msgpack.Decoder(list[_ANY])


# Several threads read series, and msgspec must not find out about a class in two at once: it has by now.
