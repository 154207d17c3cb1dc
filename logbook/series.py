"""The run's time series, log/series.msgpack: its records, and how to read them, also during the run.

A record is a map; its `kind` says which of the types below it is. Later versions may add kinds and keys: readers skip
those that they do not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from remuda.logbook.usage import Usage, WorkerUsage
from remuda.storage.record_file import read_records

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
    "run_ends",
]
"""What an event tells of; `evaluated_by_training`: a checkpoint got the mean return of training episodes.
Evaluations have records of their own."""


class SeriesError(Exception):
    """The file cannot be read by this version; the text says why."""


class Begin(Struct, frozen=True, kw_only=True, tag_field=_KIND, tag="begin"):
    """The first record of a file."""

    format: int
    time_s: float
    """When it was written: seconds since 1970, here and below."""


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


Moment = Interval | Evaluation | Event
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
class Whole:
    """A record, and the bytes of the file that hold it: from `begin` up to `end`."""

    record: Begin | Moment | None
    """None: this version does not know its kind."""
    wall_s: float
    """0 if it has none."""
    begin: int
    end: int


def read_whole(path: Path, *, begin: int = 0) -> Iterator[Whole]:
    """Yield the records from the byte `begin` on, where one begins, and their positions, up to the first damaged one.
    Raises OSError."""
    for found in read_records(path, begin=begin):
        try:
            place = msgspec.convert(found.value, _Place)
            record = msgspec.convert(found.value, _ANY) if place.kind in _KINDS else None
        except msgspec.ValidationError:
            return
        yield Whole(record, place.wall_s, found.begin, found.end)


class _Place(Struct, frozen=True):
    """What every record has."""

    kind: str
    wall_s: float = 0.0


# Several threads read series, and msgspec must not find out about a class in two at once.
for _one in (_Place, _ANY):
    msgspec.msgpack.Decoder(_one)
