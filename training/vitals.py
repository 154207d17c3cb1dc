"""Use of time by the processes of an experiment, from their reports: tables in the log, and timers.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import get_args

from remuda.logbook.reports import VitalsReport
from remuda.logbook.series import Usage
from remuda.logbook.timers import SEPARATOR, Flat, add, tree
from remuda.wire.messages import Counters, Role, WorkerVitals

MOST_PROCESSES = 200
"""Most processes with timers of their own in timers.json; beyond, timers of the first ended processes are added up."""
WORKERS_TOLD = 100
"""Most workers listed one by one in a report; totals of roles cover all."""
OTHERS = "others"
COORDINATOR = "coordinator"
ROLES = (COORDINATOR, "learner", "collector", "evaluator", "reanalyzer", "inference", "serial")

_WAITS = {
    "waiting for batches": "wait_data",
    "waiting for an evaluation": "wait_data",
    "waiting for chunks": "wait_data",
    "waiting for collectors": "wait_data",
    "load policy": "wait_policy",
    "waiting for actions": "wait_policy",
    "publish policy": "wait_policy",
    "waiting for credit": "wait_credit",
    "step environments": "env",
}
"""Kind of an innermost block by name. Other names that begin with `waiting` are `wait_other`; the rest is work."""


@dataclass
class _ProcessTotals:
    """One incarnation of a process, over all its leases of this experiment."""

    role: str
    elapsed_s: float = 0.0
    blocks: Flat = field(default_factory=dict[str, tuple[int, float]])
    last: WorkerVitals | None = None
    """Newest report."""
    work_share: float | None = None


@dataclass
class _Since:
    """Activity of one process since the last report."""

    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    kinds_s: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds by kind."""


@dataclass
class _Role:
    """All processes of a role."""

    processes: dict[str, _ProcessTotals] = field(default_factory=dict[str, _ProcessTotals])
    """Separately listed processes."""
    elapsed_s: float = 0.0
    """Total of all processes of the role, like the blocks."""
    blocks: Flat = field(default_factory=dict[str, tuple[int, float]])
    since: dict[str, _Since] = field(default_factory=dict[str, _Since])
    kinds_s: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds by kind since the last report."""
    fold_at: int = 2 * MOST_PROCESSES
    """Number of processes that starts a search for ended processes."""


class Vitals:
    """Reads no clock and no file. Totals of a process replace its earlier totals, so nothing is counted twice. A
    restarted coordinator has the totals of processes that still report.

    The cost of a report from a process depends on its size, and the cost of a table on the reports since the table
    before. Of ended processes only the newest are listed separately.
    """

    def __init__(self, interval_s: float, now_s: float, holds: Callable[[int], bool] = lambda lease: False) -> None:
        """A table is due every `interval_s` seconds. `holds` returns True if a lease may still report."""
        self._interval_s = interval_s
        self._reported_s = now_s
        self._holds = holds
        self._roles: dict[str, _Role] = {role: _Role() for role in ROLES}

    def start(self, now_s: float) -> None:
        """Start the period of the tables."""
        self._reported_s = now_s

    def add(self, role: str, name: str, vitals: WorkerVitals) -> None:
        """Take the report of a process of this role and name about its lease."""
        all_ = self._roles[role]
        totals = all_.processes.get(name)
        first = totals is None
        if totals is None:
            totals = all_.processes[name] = _ProcessTotals(role)
        known = totals.last if totals.last is not None and totals.last.lease == vitals.lease else None
        elapsed_s = vitals.elapsed_s - (0.0 if known is None else known.elapsed_s)
        spent = _spent(vitals, known)
        totals.last, totals.elapsed_s, totals.blocks = vitals, totals.elapsed_s + elapsed_s, add(totals.blocks, spent)
        all_.elapsed_s, all_.blocks = all_.elapsed_s + elapsed_s, add(all_.blocks, spent)
        if elapsed_s > 0:
            waited_s = sum(seconds for kind, seconds in _by_kind(spent) if kind.startswith("wait"))
            totals.work_share = min(max(1.0 - waited_s / elapsed_s, 0.0), 1.0)
        if first and role == COORDINATOR:
            return  # it existed before this experiment: that time is left out
        since = all_.since.setdefault(name, _Since())
        since.elapsed_s += elapsed_s
        since.cpu_s += vitals.cpu_s - (0.0 if known is None else known.cpu_s)
        for kind, seconds in _by_kind(spent):
            all_.kinds_s[kind] = all_.kinds_s.get(kind, 0.0) + seconds
            since.kinds_s[kind] = since.kinds_s.get(kind, 0.0) + seconds
        if len(all_.processes) > all_.fold_at:
            self._fold(all_)

    def _fold(self, role: _Role) -> None:
        """Add up the first ended processes, which are no longer listed separately."""
        ended = [
            name for name, totals in role.processes.items() if totals.last is None or not self._holds(totals.last.lease)
        ]
        for name in ended[: max(len(role.processes) - MOST_PROCESSES, 0)]:
            del role.processes[name]
            role.since.pop(name, None)
        role.fold_at = len(role.processes) + MOST_PROCESSES

    def work_share(self, name: str) -> float | None:
        """Return the share of time in which this process did not wait, between its last two reports; None without two
        reports."""
        return next((role.processes[name].work_share for role in self._roles.values() if name in role.processes), None)

    def due(self, counters: Counters, now_s: float, *, last: bool = False) -> VitalsReport | None:
        """Return the table once `interval_s` has passed since the table before; with `last`, at once."""
        past_s = now_s - self._reported_s
        if past_s < self._interval_s and not last:
            return None
        self._reported_s = now_s
        roles = [_report(name, role) for name, role in self._roles.items()]
        workers = dict(islice(self._workers(), WORKERS_TOLD))
        for role in self._roles.values():
            role.since, role.kinds_s = {}, {}
        heard = [role for role in roles if role is not None]
        if not heard:
            return None
        return VitalsReport(
            train_iter=counters.train_iter,
            env_step=counters.env_step,
            wall_s=counters.wall_s,
            past_s=past_s,
            roles=heard,
            workers=workers,
            episode=counters.episode,
            policy_version=counters.policy_version,
        )

    def _workers(self) -> Iterable[tuple[str, Usage]]:
        for name, role in self._roles.items():
            if name in get_args(Role):
                for worker, since in role.since.items():
                    if since.elapsed_s > 0:
                        yield worker, _usage(name, {worker: since}, role.processes, since.kinds_s)

    def document(self, wall_s: float) -> dict[str, object]:
        """Return the content of timers.json: for each role and process its tree of blocks, in seconds."""
        roles = {name: dict(_processes(role)) for name, role in self._roles.items() if role.elapsed_s or role.processes}
        return {"wall_s": round(wall_s, 6), "roles": roles}


def _report(name: str, role: _Role) -> Usage | None:
    """Return the usage since the last table; None without a report since then."""
    heard = {process: since for process, since in role.since.items() if since.elapsed_s > 0}
    return _usage(name, heard, role.processes, role.kinds_s) if heard else None


def _usage(
    name: str, heard: Mapping[str, _Since], processes: Mapping[str, _ProcessTotals], kinds_s: Mapping[str, float]
) -> Usage:
    elapsed_s = sum(since.elapsed_s for since in heard.values())
    cores = sum(since.cpu_s / since.elapsed_s for since in heard.values())
    rss_bytes = sum(last.rss_bytes for process in heard if (last := processes[process].last) is not None)
    kinds = ("env", "wait_data", "wait_policy", "wait_credit", "wait_other")
    shares = {kind: kinds_s.get(kind, 0.0) / elapsed_s for kind in kinds}
    return Usage(name, len(heard), cores, rss_bytes / 2**20, work=max(0.0, 1.0 - sum(shares.values())), **shares)


def _spent(vitals: WorkerVitals, known: WorkerVitals | None) -> Flat:
    """Seconds by block since the report before of this lease."""
    spent: Flat = {block.path: (block.count, block.total_s) for block in vitals.blocks}
    return (
        spent if known is None else add(spent, {block.path: (-block.count, -block.total_s) for block in known.blocks})
    )


def _by_kind(blocks: Flat) -> Iterable[tuple[str, float]]:
    for path, (_, seconds) in blocks.items():
        name = path.rpartition(SEPARATOR)[2]
        yield _WAITS.get(name, "wait_other" if name.startswith("waiting") else "work"), seconds


def _processes(role: _Role) -> Iterable[tuple[str, object]]:
    names = list(role.processes)[-MOST_PROCESSES:]
    blocks, elapsed_s = role.blocks, role.elapsed_s
    for name in names:
        totals = role.processes[name]
        yield name, tree(totals.blocks, totals.elapsed_s)
        blocks = add(blocks, {path: (-count, -seconds) for path, (count, seconds) in totals.blocks.items()})
        elapsed_s -= totals.elapsed_s
    others = {path: (count, max(seconds, 0.0)) for path, (count, seconds) in blocks.items() if count > 0}
    if elapsed_s > 1e-6 or others:
        yield OTHERS, tree(others, max(elapsed_s, 0.0))
