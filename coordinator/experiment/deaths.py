"""Deaths of an experiment's workers under its leases: which of them count, and when the experiment fails for it.

A process that dies gives no reason: it may be the environment, or a library that the run uses. Chunks that it handed in
before prove nothing, since the next incarnation may die at the same place. A lease that works for a while does prove
that the role can work: so a run that loses a worker now and then never fails for it, however long it takes.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from remuda.coordinator.experiment.failures import FAILURES_IN_A_ROW, Streak
from remuda.training.snapshot import DeathsSnapshot
from remuda.wire.messages import Role, shortened

GOOD_LEASE_S = 30.0
"""A lease whose worker still hands in work this long after it was ready shows that the role can do its work: deaths
before it are forgotten, and its own death does not count."""

_CONTAINED = "; an environment in a process of its own (env.vectorization: async) ends no collector when it crashes"


@dataclass
class _Served:
    """What is known about an open lease."""

    counts: bool
    """It began under this coordinator. For a recovered lease, too little is known about its time before."""
    since_s: float | None = None
    """When its work began; None while it is prepared."""
    good: bool = False


@dataclass
class _OfRole:
    streak: Streak = field(default_factory=Streak)
    newest: deque[tuple[str, str]] = field(default_factory=lambda: deque[tuple[str, str]](maxlen=FAILURES_IN_A_ROW))
    """The newest deaths: workers (by UUID) and how they ended."""


class Deaths:
    """Counts the deaths of one experiment's workers, separately for each role."""

    def __init__(self) -> None:
        self._served: dict[int, _Served] = {}
        self._roles: dict[Role, _OfRole] = {}

    # --- leases ---

    def begun(self, lease: int) -> None:
        """A worker was drawn from the herd."""
        self._served[lease] = _Served(counts=True)

    def taken_up(self, lease: int, now_s: float) -> None:
        """A lease that was open when an earlier coordinator ended."""
        self._served[lease] = _Served(counts=False, since_s=now_s)

    def ready(self, lease: int, now_s: float) -> None:
        """The worker of this lease is ready."""
        if lease in self._served:
            self._served[lease].since_s = now_s

    def worked(self, lease: int, role: Role, now_s: float) -> None:
        """The worker of this lease has handed in some work."""
        served = self._served.get(lease)
        if served is not None and served.since_s is not None and now_s - served.since_s >= GOOD_LEASE_S:
            served.good = True
            self._roles.pop(role, None)

    def ended(self, lease: int) -> None:
        """The lease ended in another way than by a death."""
        self._served.pop(lease, None)

    def died(self, lease: int, role: Role, worker: str, how: str, now_s: float) -> None:
        """The process of its worker ended without a message."""
        served = self._served.pop(lease, None)
        if served is None or not served.counts or served.good:
            return
        of_role = self._roles.setdefault(role, _OfRole())
        of_role.streak.add(now_s)
        of_role.newest.append((worker, how))

    def explained(self, worker: str, how: str) -> None:
        """It has become known how a lost worker ended."""
        for of_role in self._roles.values():
            known = [(uuid, how if uuid == worker and was.startswith("lost") else was) for uuid, was in of_role.newest]
            of_role.newest.clear()
            of_role.newest.extend(known)

    # --- what follows ---

    def hopeless(self, now_s: float) -> str | None:
        """Why the experiment has to fail; None if it has not."""
        for role, of_role in self._roles.items():
            if of_role.streak.hopeless(now_s):
                often = Counter(how for _, how in of_role.newest)
                hows = ", ".join(f"{how} ({times} times)" if times > 1 else how for how, times in often.items())
                return shortened(
                    f"{of_role.streak.count} deaths of {role}s in a row, none of which had worked for "
                    f"{GOOD_LEASE_S:g} s; the last: {hows}; what they wrote to standard error may say why"
                    + (_CONTAINED if role == "collector" else "")
                )
        return None

    def rest_s(self, now_s: float) -> float:
        """Seconds for which the experiment still takes no workers."""
        return max((of_role.streak.rest_s(now_s) for of_role in self._roles.values()), default=0.0)

    # --- over a restart ---

    def snapshot(self, now_s: float) -> list[DeathsSnapshot]:
        """What a restarted coordinator needs; times as seconds from now."""
        return [
            DeathsSnapshot(role, of_role.streak.count, now_s - of_role.streak.first_s, list(of_role.newest))
            for role, of_role in self._roles.items()
        ]

    def restore(self, snapshot: list[DeathsSnapshot], now_s: float) -> None:
        """Continue from a snapshot."""
        for each in snapshot:
            newest = deque(each.newest, maxlen=FAILURES_IN_A_ROW)
            self._roles[each.role] = _OfRole(Streak(each.in_a_row, now_s - each.elapsed_s), newest)
