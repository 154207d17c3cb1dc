"""Time of each role over a run: work, environments, and waits by name."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from remuda.logbook.series import Event
from remuda.page.growing import FloatArray, listed
from remuda.page.herd import OF_USAGE, words
from remuda.page.library import REQUEST_S, Budget, Library
from remuda.page.run_ids import RunIds, UnknownRunError
from remuda.page.run_rows import Shares
from remuda.page.series_reader import (
    HELD_UP,
    INTERVAL_NAMES,
    INTERVAL_PAST,
    INTERVAL_ROLES,
    INTERVAL_VALUES,
    INTERVAL_X,
    KINDS,
    USAGE_COLUMNS,
    USAGE_NAMES,
    SeriesReader,
    covered,
)
from remuda.training.vitals import COORDINATOR, ROLES

SHARES = ("work", "env", "wait_credit", "wait_batches", "wait_policy", "wait_disk", "wait_workers", "wait_other")
"""Kinds of time; together all time of a role."""
_RECENT_BUCKETS = 20
_NAMES = {kind: f"wait_{OF_USAGE[kind]}" if kind in OF_USAGE else kind for kind in KINDS}
_WAITS = ("wait_credit", "wait_batches", "wait_policy", "wait_other")
"""Waits in the records; a wait for the disk was recorded under another name."""
LOOK_S = 5.0
PAST_S = 120.0
_MOST_RUNS = 100
"""Most remembered runs."""


class RoleTimeline(Struct, frozen=True):
    """A role; lists have an element per bucket, null for unknown."""

    role: str
    processes: list[float | None]
    cpu_cores: list[float | None]
    rss_bytes: list[float | None]
    shares: dict[str, list[float | None]]
    total: dict[str, float]
    """Shares of the shown time; empty if unknown."""
    words: dict[str, tuple[str, str]]
    """Name and reason of each kind of time."""


class Timeline(Struct, frozen=True):
    """The whole view."""

    kinds: list[str]
    begin_s: list[float | None]
    end_s: list[float | None]
    roles: list[RoleTimeline]
    rates: dict[str, list[float | None]]
    events: list[Event]
    events_left_out: int
    wall_s: float
    read: float


def timeline(reader: SeriesReader, *, buckets: int, from_s: float = 0.0, to_s: float = float("inf")) -> Timeline:
    """Return the view of a run's time series between these seconds since the run began. Until the file is read whole, a
    bucket is one interval at evenly spaced offsets of the file. Raises OSError."""
    rows = reader.intervals.buckets() if reader.read_share >= 1.0 else reader.sample_intervals(buckets)
    wall_s = float(rows[-1, INTERVAL_X]) if len(rows) else 0.0
    rows = rows[(rows[:, INTERVAL_X] > rows[:, 0]) & (rows[:, INTERVAL_X] > from_s) & (rows[:, 0] < to_s)]
    rows = reader.intervals.merged(rows, buckets)
    begin, end = rows[:, 0], rows[:, INTERVAL_X]
    roles = [
        _role(role, rows, at, begin, end, reader)
        for at, role in sorted(enumerate(ROLES), key=lambda each: each[1] == COORDINATOR)
        if _column(rows, at, 0).any() or (role in reader.spans.roles and len(rows))
    ]
    return Timeline(
        kinds=list(SHARES),
        begin_s=listed(begin),
        end_s=listed(end),
        roles=roles,
        rates={name: listed(rows[:, INTERVAL_VALUES + 3 * at]) for at, name in enumerate(INTERVAL_NAMES)},
        events=[event for event in reader.events if from_s <= event.wall_s <= to_s],
        events_left_out=reader.events_left_out,
        wall_s=wall_s,
        read=reader.read_share,
    )


def recent(reader: SeriesReader, past_s: float) -> dict[str, dict[str, float]]:
    """By role, the shares of the last seconds. Raises OSError."""
    until_s = 0.0 if reader.last is None else reader.last.wall_s
    view = timeline(reader, buckets=_RECENT_BUCKETS, from_s=max(until_s - past_s, 0.0))
    return {role.role: role.total for role in view.roles if role.total}


def shares(
    kinds: Mapping[str, float], total_s: float, *, absent: float = 0.0, held_up: float = 0.0
) -> dict[str, float] | None:
    """Return the shares of one role's time, with sum 1; None if unknown. `kinds` has the seconds of all processes by
    the names of KINDS. `absent` is the share of the time without a worker of the role, `held_up` the share without
    writes to the run's disk: waits during that time count as waits for the disk.
    """
    if total_s <= 0:
        return {**dict.fromkeys(SHARES, 0.0), "wait_workers": 1.0} if absent > 0 else None
    there = 1.0 - absent
    found: dict[str, float] = dict.fromkeys(SHARES, 0.0)
    for kind, seconds in kinds.items():
        found[_NAMES[kind]] += there * seconds / total_s
    waited = sum(found[name] for name in _WAITS)
    disk = min(held_up * there, waited)
    if disk > 0:
        for name in _WAITS:
            found[name] *= 1.0 - disk / waited
    return {**found, "wait_disk": disk, "wait_workers": absent}


def _total(shares: Sequence[Mapping[str, float] | None], begin: FloatArray, end: FloatArray) -> dict[str, float]:
    """Return the mean of the known shares over time."""
    known = [(one, float(end[at] - begin[at])) for at, one in enumerate(shares) if one is not None]
    whole_s = sum(seconds for _, seconds in known)
    return {kind: round(sum(one[kind] * seconds for one, seconds in known) / whole_s, 6) for kind in SHARES if known}


def _column(rows: FloatArray, role: int, number: int) -> FloatArray:
    column: FloatArray = rows[:, INTERVAL_ROLES + role * USAGE_COLUMNS + number]
    return column


def _role(
    name: str, rows: FloatArray, at: int, begin: FloatArray, end: FloatArray, reader: SeriesReader
) -> RoleTimeline:
    until_s = 0.0 if reader.last is None else reader.last.wall_s
    absent, held_up = (reader.spans.lasting(kind, until_s) for kind in (name, HELD_UP))
    past_s = np.where(rows[:, INTERVAL_PAST] > 0, rows[:, INTERVAL_PAST], np.nan)
    whole = {usage: _column(rows, at, number) / past_s for number, usage in enumerate(USAGE_NAMES)}
    seconds = {kind: _column(rows, at, len(USAGE_NAMES) + number) for number, kind in enumerate(KINDS)}
    total_s = sum(seconds.values(), np.zeros(len(rows)))
    by_bucket = [
        shares(
            {kind: float(values[bucket]) for kind, values in seconds.items()},
            float(total_s[bucket]),
            absent=_absent(covered(absent, float(begin[bucket]), float(end[bucket])), float(total_s[bucket])),
            held_up=covered(held_up, float(begin[bucket]), float(end[bucket])),
        )
        for bucket in range(len(rows))
    ]
    for bucket in reversed(range(len(rows) - 1)):  # a report covers the time since the former report
        by_bucket[bucket] = by_bucket[bucket] or by_bucket[bucket + 1]
    return RoleTimeline(
        role=name,
        processes=listed(whole["processes"]),
        cpu_cores=listed(whole["cpu_cores"]),
        rss_bytes=listed(whole["rss_mib"] * 2**20),
        shares={kind: [None if one is None else round(one[kind], 6) for one in by_bucket] for kind in SHARES},
        total=_total(by_bucket, begin, end),
        words=words(name),
    )


def _absent(share: float, total_s: float) -> float:
    """Return the absence of a role; 0 for a role with a report, since events may be left out."""
    return 0.0 if share >= 1.0 and total_s > 0 else share


class RecentShares:
    """For any thread."""

    def __init__(self, library: Library, ids: RunIds) -> None:
        self._library = library
        self._ids = ids
        self._known: OrderedDict[str, tuple[float, Shares]] = OrderedDict()

    def shares(self, run: str) -> Shares:
        """Return the shares of time by role; with several policies, of the first."""
        now_s = time.monotonic()
        known = self._known.get(run)
        if known is not None and now_s < known[0]:
            return known[1]
        try:
            with self._library.series(self._ids.each_policy(run)[0], Budget(REQUEST_S)) as reader:
                found = recent(reader, PAST_S)
        except (UnknownRunError, OSError):
            found = {}
        self._known[run] = (now_s + LOOK_S, found)
        while len(self._known) > _MOST_RUNS:
            self._known.popitem(last=False)
        return found
