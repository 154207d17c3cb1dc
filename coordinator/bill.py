"""The bill: use of runs, hour by hour, and added up by user, project, run or day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.training.run_snapshot import ChangedRows, HourRow, Identity, MeterSnapshot, Rows
from remuda.wire.messages import LARGEST_COUNT, ROLES, BillKey, BillLine, Role, Used

DAY_H = 24
NOTHING = Used()
_NO_ROWS = Rows[HourRow]()


class Meter:
    """Adds up the time of the leases; steps, updates and bytes are read from the books that count them.

    All amounts are totals since the beginning, in whole numbers: an hour is the difference of two totals, so no sum can
    differ from the journal. A lease begins and ends with the turn that journals it. The cost of a turn does not grow
    with the number of leases.

    After a restart of the coordinator, the time since the last commit counts for a worker once the worker is back:
    such a worker has worked on. A worker that does not come back may have died at once. The clock may be that of
    another machine, so no more hours count than have passed by the calendar.
    """

    def __init__(
        self, leases: LeaseBook, configs: Sequence[ExperimentConfig], counted: Callable[[], Used], now_s: float
    ) -> None:
        """`configs` are of each policy; `counted` reads steps, updates and bytes."""
        self._leases, self._configs, self._counted = leases, configs, counted
        self._has_gpus = any(_gpus(config, role) for config in configs for role in ROLES)
        self._counted_us = _us(now_s)
        self._worker_us = self._gpu_us = self._cpu_us = 0
        self._workers = self._gpus = 0
        """Since the newest `advance`."""
        self.hour = 0
        """The current hour, in hours since 1970 (UTC); 0 before the first."""
        self._before = counted()
        """Counts of an earlier incarnation of the run."""
        self._absent: dict[int, int] = {}
        """By lease: time that counts once its worker is back."""
        self._absent_since = 0
        """Hour of the last commit before the restart."""
        self._hours: dict[int, HourRow] = {}
        self._closed = NOTHING
        """The use until the end of the newest closed hour."""
        self._changed = ChangedRows[int]()

    @property
    def used(self) -> Used:
        """The use of this experiment until the newest `advance`."""
        counted, before = self._counted(), self._before
        return Used(
            self._worker_us,
            self._gpu_us,
            self._cpu_us,
            counted.env_steps - before.env_steps,
            counted.updates,
            counted.payload_bytes - before.payload_bytes,
        )

    @property
    def present(self) -> Used:
        """The use in the present hour."""
        return self.used - self._closed

    @property
    def closed(self) -> list[HourRow]:
        """Use until the end of each hour that is over."""
        return [*self._hours.values()]

    @property
    def hours(self) -> list[HourRow]:
        """Use until the end of each hour, and until now."""
        return [*self.closed, HourRow(self.hour, self.used)]

    # --- what happens ---

    def advance(self, now_s: float) -> None:
        """Count the time of all leases until now. Leases may have changed in this turn only."""
        now_us = _us(now_s)
        passed_us, self._counted_us = now_us - self._counted_us, now_us
        self._worker_us += passed_us * self._workers
        self._workers = len(self._leases.open_leases)
        if self._has_gpus:
            self._gpu_us += passed_us * self._gpus
            self._gpus = sum(map(self._gpus_of, self._leases))

    def begin_hour(self, hour: int, now_s: float) -> Used:
        """Close the hour before, and return its use."""
        self.advance(now_s)
        closed, before, self.hour = self.hour, self._closed, hour
        if closed and self.used != before:
            self._closed = self.used
            self._hours[closed] = HourRow(closed, self._closed)
            self._changed.put.add(closed)
        return self._closed - before

    def note_cpu(self, lease: Lease, cpu_s: float) -> None:
        """Count the processor time that a worker reports: a total of its lease. Whatever is reported, the sum can be
        journaled and sent."""
        grown_us = self._leases.set_cpu(lease, min(_us(cpu_s), LARGEST_COUNT))
        self._cpu_us = min(self._cpu_us + grown_us, LARGEST_COUNT)

    def back(self, lease: int) -> None:
        """The worker is back after a restart of the coordinator."""
        most_us = _us(3_600.0 * (self.hour - self._absent_since + 1))
        absent_us = min(self._absent.pop(lease, 0), most_us)
        if absent_us and (known := self._leases.open_leases.get(lease)) is not None:
            self._worker_us += absent_us
            self._gpu_us += absent_us * self._gpus_of(known)

    def _gpus_of(self, lease: Lease) -> int:
        return _gpus(self._configs[lease.policy_index], lease.role)

    # --- over a restart ---

    def snapshot(self) -> MeterSnapshot:
        """Return the state for a restarted coordinator, without its rows."""
        absent = [*self._absent.items()] if self._absent else []
        return MeterSnapshot(
            self._counted_us, self.hour, self._worker_us, self._gpu_us, self._cpu_us, self._before, absent
        )

    def rows(self) -> Rows[HourRow]:
        """All rows."""
        return Rows(tuple(self.closed))

    def changes(self) -> Rows[HourRow]:
        """Return the rows changed since the last call."""
        return self._changed.take(self._hours.__getitem__) if self._changed.put else _NO_ROWS

    def restore(self, snapshot: MeterSnapshot, now_s: float) -> None:
        """Continue from a snapshot; only with the leases of the snapshot."""
        self._worker_us, self._gpu_us, self._cpu_us = snapshot.worker_us, snapshot.gpu_us, snapshot.cpu_us
        self.hour = self._absent_since = snapshot.hour
        self._before = snapshot.before
        self._hours = {row.hour: row for row in snapshot.hours}
        self._closed = self._hours[max(self._hours)].used if self._hours else NOTHING
        self._counted_us = _us(now_s)
        self.advance(now_s)
        committed_us = snapshot.counted_us or self._counted_us  # earlier versions of Remuda did not note it
        absent_us, before = max(self._counted_us - committed_us, 0), dict(snapshot.absent)
        self._absent = {lease.number: before.get(lease.number, 0) + absent_us for lease in self._leases}

    def resume(self, counted: Used) -> None:
        """Leave out what an earlier incarnation of the run had counted."""
        self._before = counted


def _gpus(config: ExperimentConfig, role: Role) -> int:
    """Return the number of GPUs of a worker, by the devices in the config."""
    match role:
        case "learner":
            return config.learner.ranks * config.learner.device.startswith("cuda")
        case "collector":
            return int(config.collector.device.startswith("cuda"))
        case "reanalyzer":
            return int(config.reanalyzer.device.startswith("cuda"))
        case "inference":
            return int(config.inference.device.startswith("cuda"))
        case "evaluator":
            return 0


def _us(seconds: float) -> int:
    return round(1_000_000 * seconds)


@dataclass(frozen=True)
class Charge:
    """A run and its use, until the end of each hour; see Meter."""

    identity: Identity
    hours: Sequence[HourRow]

    def items(self, since_hour: int, until_hour: int) -> Iterable[BillLine]:
        """The use of each day, counting the hours of the period."""
        identity, days = self.identity, dict[int, Used]()
        for hour, used in by_hour(self.hours).items():
            if since_hour <= hour < until_hour:
                days[hour // DAY_H] = days.get(hour // DAY_H, NOTHING) + used
        for day, used in days.items():
            yield BillLine(identity.user, identity.project, identity.name, identity.id, date(day), 1, used)


def by_hour(hours: Iterable[HourRow], before: Used = NOTHING) -> Mapping[int, Used]:
    """Return the use in each hour, without hours of no use. `before`: the use before these hours."""
    used: dict[int, Used] = {}
    for row in sorted(hours, key=lambda row: row.hour):
        if row.used != before:
            used[row.hour] = row.used - before
        before = row.used
    return used


def date(day: int) -> str:
    """Return the date of a day since 1970, UTC."""
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


def bill(items: Iterable[BillLine], by: BillKey) -> list[BillLine]:
    """Add up the use of runs and days; most worker-seconds first, days in order."""
    lines: dict[str, BillLine] = {}
    runs: dict[str, set[str]] = {}
    for item in items:
        line = _headed(item, by)
        key = line.experiment or line.day or line.user or line.project
        known = lines.get(key)
        runs.setdefault(key, set()).add(item.experiment)
        lines[key] = line if known is None else replace(known, used=known.used + item.used)
    counted = [replace(line, runs=len(runs[key])) for key, line in lines.items()]
    if by == "day":
        return sorted(counted, key=lambda line: line.day)
    return sorted(counted, key=lambda line: -line.used.worker_us)


def _headed(item: BillLine, by: BillKey) -> BillLine:
    """Return the item with only those fields that its line shows."""
    match by:
        case "user":
            return BillLine(user=item.user, used=item.used)
        case "project":
            return BillLine(project=item.project, used=item.used)
        case "run":
            return replace(item, day="")
        case "day":
            return BillLine(day=item.day, used=item.used)
