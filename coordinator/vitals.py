"""What an experiment's processes say of their time, put together: tables now and then, and timers.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from remuda.logbook.timers import SEPARATOR, Flat, add, tree
from remuda.logbook.vitals import RoleVitals, VitalsReport
from remuda.wire.messages import Counters, WorkerVitals

MOST_LIVES = 200
"""Lives whose timers are told apart in timers.json; those that ended first are added up beyond that."""
OTHERS = "others"
COORDINATOR = "coordinator"
ROLES = (COORDINATOR, "learner", "collector", "evaluator", "serial")

_WAITS = {
    "waiting for batches": "wait_data",
    "waiting for an evaluation": "wait_data",
    "load policy": "wait_policy",
    "publish policy": "wait_policy",
    "waiting for credit": "wait_credit",
    "step environments": "env",
}
"""What an innermost block of this name means. Others that begin with `waiting` are `wait_other`, the rest is work."""


@dataclass
class _Life:
    """One process in one life, over all leases it had of this experiment."""

    role: str
    before: dict[int, WorkerVitals] = field(default_factory=dict[int, WorkerVitals])
    """The newest word of each lease."""
    work_share: float | None = None

    @property
    def elapsed_s(self) -> float:
        return sum(vitals.elapsed_s for vitals in self.before.values())

    @property
    def cpu_s(self) -> float:
        return sum(vitals.cpu_s for vitals in self.before.values())

    @property
    def blocks(self) -> Flat:
        total: Flat = {}
        for vitals in self.before.values():
            total = add(total, {block.path: (block.count, block.total_s) for block in vitals.blocks})
        return total

    @property
    def rss_bytes(self) -> int:
        return self.before[max(self.before)].rss_bytes


@dataclass(frozen=True)
class _Mark:
    """What was known of a life at the last report."""

    elapsed_s: float
    cpu_s: float
    blocks: Flat


class Vitals:
    """Knows no clock and no file. Totals that a process sends replace those it sent before, so none is counted twice;
    a coordinator that is started again has those of the lives it still hears of."""

    def __init__(self, interval_s: float, now_s: float) -> None:
        """A report is due every `interval_s` seconds."""
        self._interval_s = interval_s
        self._reported_s = now_s
        self._lives: dict[str, _Life] = {}
        self._marks: dict[str, _Mark] = {}

    def start(self, now_s: float) -> None:
        """The time that is told of begins."""
        self._reported_s = now_s

    def told(self, role: str, name: str, vitals: WorkerVitals) -> None:
        """A process of this role and name says how its lease has gone so far."""
        life = self._lives.get(name)
        if life is None:
            life = self._lives[name] = _Life(role)
            if role == COORDINATOR:  # it was there before this experiment: what it did then is not told of
                life.before[vitals.lease] = vitals
                self._marks[name] = _Mark(life.elapsed_s, life.cpu_s, life.blocks)
        known = life.before.get(vitals.lease)
        since_s = vitals.elapsed_s - (0.0 if known is None else known.elapsed_s)
        if since_s > 0:
            waited_s = _waited_s(vitals) - (0.0 if known is None else _waited_s(known))
            life.work_share = min(max(1.0 - waited_s / since_s, 0.0), 1.0)
        life.before[vitals.lease] = vitals

    def work_share(self, name: str) -> float | None:
        """Share of the time between its last two words in which this process did not wait; None before any."""
        life = self._lives.get(name)
        return None if life is None else life.work_share

    def due(self, counters: Counters, now_s: float, *, last: bool = False) -> VitalsReport | None:
        """The table of what happened since the one before, once `interval_s` has passed; the `last` one in any case."""
        past_s = now_s - self._reported_s
        if past_s < self._interval_s and not last:
            return None
        roles = [self._role(role) for role in ROLES if any(life.role == role for life in self._lives.values())]
        self._reported_s = now_s
        self._marks = {name: _Mark(life.elapsed_s, life.cpu_s, life.blocks) for name, life in self._lives.items()}
        heard = [role for role in roles if role is not None]
        if not heard:
            return None
        return VitalsReport(
            train_iter=counters.train_iter,
            env_step=counters.env_step,
            wall_s=counters.wall_s,
            past_s=past_s,
            roles=heard,
        )

    def document(self, wall_s: float) -> dict[str, object]:
        """What timers.json holds: for each role and process its tree of blocks, in seconds."""
        roles: dict[str, dict[str, object]] = {}
        for role in ROLES:
            lives = {name: life for name, life in self._lives.items() if life.role == role}
            if lives:
                roles[role] = dict(_processes(lives))
        return {"wall_s": round(wall_s, 6), "roles": roles}

    def _role(self, role: str) -> RoleVitals | None:
        """None where nothing was heard since the last report."""
        elapsed_s = cores = rss_bytes = 0.0
        blocks: Flat = {}
        processes, shares = 0, dict.fromkeys(("env", "wait_data", "wait_policy", "wait_credit", "wait_other"), 0.0)
        for name, life in self._lives.items():
            mark = self._marks.get(name, _Mark(0.0, 0.0, {}))
            since_s = life.elapsed_s - mark.elapsed_s
            if life.role != role or since_s <= 0:
                continue
            processes, elapsed_s = processes + 1, elapsed_s + since_s
            cores += (life.cpu_s - mark.cpu_s) / since_s
            rss_bytes += life.rss_bytes
            blocks = add(blocks, {path: (0, -seconds) for path, (_, seconds) in mark.blocks.items()})
            blocks = add(blocks, life.blocks)
        if not processes:
            return None
        for kind, seconds in _by_kind(blocks):
            if kind in shares:
                shares[kind] += seconds / elapsed_s
        return RoleVitals(
            role, processes, cores, rss_bytes / 2**20, work=max(0.0, 1.0 - sum(shares.values())), **shares
        )


def _waited_s(vitals: WorkerVitals) -> float:
    blocks = {block.path: (block.count, block.total_s) for block in vitals.blocks}
    return sum(seconds for kind, seconds in _by_kind(blocks) if kind.startswith("wait"))


def _by_kind(blocks: Flat) -> Iterable[tuple[str, float]]:
    for path, (_, seconds) in blocks.items():
        name = path.rpartition(SEPARATOR)[2]
        yield _WAITS.get(name, "wait_other" if name.startswith("waiting") else "work"), seconds


def _processes(lives: Mapping[str, _Life]) -> Iterable[tuple[str, object]]:
    names = list(lives)
    for name in names[-MOST_LIVES:]:
        yield name, tree(lives[name].blocks, lives[name].elapsed_s)
    if others := names[:-MOST_LIVES]:
        blocks: Flat = {}
        for name in others:
            blocks = add(blocks, lives[name].blocks)
        yield OTHERS, tree(blocks, sum(lives[name].elapsed_s for name in others))
