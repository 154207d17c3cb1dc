"""Use of a run: time of workers, steps, updates and bytes, hour by hour."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.training.changed_rows import ChangedRows
from remuda.training.snapshot import HourRow, MeterSnapshot, Rows
from remuda.wire.messages import ROLES, Role, Used

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

    def __init__(self, leases: LeaseBook, policies: Sequence[PolicyTraining], now_s: float) -> None:
        self._leases, self._policies = leases, policies
        self._has_gpus = any(_gpus(policy.config, role) for policy in policies for role in ROLES)
        self._counted_us = _us(now_s)
        self._worker_us = self._gpu_us = self._cpu_us = 0
        self._workers = self._gpus = 0
        """Since the newest `advance`."""
        self.hour = 0
        """The current hour, in hours since 1970 (UTC); 0 before the first."""
        self._before = Used(env_steps=policies[0].replay.ledger.env_step)
        """Counts of an earlier incarnation of the run."""
        self._absent: dict[int, int] = {}
        """By lease: time that counts once its worker is back."""
        self._absent_since = 0
        """Hour of the last commit before the restart."""
        self._hours: dict[int, HourRow] = {}
        self._closed = Used()
        """The use until the end of the newest closed hour."""
        self._changed = ChangedRows[int]()

    @property
    def used(self) -> Used:
        """The use of this experiment until the newest `advance`."""
        before = self._before
        return Used(
            self._worker_us,
            self._gpu_us,
            self._cpu_us,
            self._policies[0].replay.ledger.env_step - before.env_steps,
            sum(policy.flow.computed_iters for policy in self._policies),
            sum(policy.replay.ledger.payload_bytes for policy in self._policies) - before.payload_bytes,
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
        """Count the processor time that a worker reports: a total of its lease."""
        self._cpu_us += self._leases.set_cpu(lease, _us(cpu_s))

    def back(self, lease: int) -> None:
        """The worker is back after a restart of the coordinator."""
        most_us = _us(3_600.0 * (self.hour - self._absent_since + 1))
        absent_us = min(self._absent.pop(lease, 0), most_us)
        if absent_us and (known := self._leases.open_leases.get(lease)) is not None:
            self._worker_us += absent_us
            self._gpu_us += absent_us * self._gpus_of(known)

    def _gpus_of(self, lease: Lease) -> int:
        return _gpus(self._policies[lease.policy_index].config, lease.role)

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
        self._closed = self._hours[max(self._hours)].used if self._hours else Used()
        self._counted_us = _us(now_s)
        self.advance(now_s)
        committed_us = snapshot.counted_us or self._counted_us  # earlier versions of Remuda did not note it
        absent_us, before = max(self._counted_us - committed_us, 0), dict(snapshot.absent)
        self._absent = {lease.number: before.get(lease.number, 0) + absent_us for lease in self._leases}

    def resume(self, counted: Sequence[Used]) -> None:
        """Leave out what an earlier incarnation of the run had counted, by policy."""
        self._before = replace(counted[0], payload_bytes=sum(each.payload_bytes for each in counted))


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
