"""What a herd keeps of its training time while somebody is killed now and then, and what each kill costs."""

from __future__ import annotations

import os
import statistics
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from remuda.benchmarks.figure import Figure, compare
from remuda.benchmarks.kill_schedule import VICTIMS, Kill, kill_schedule
from remuda.wire.messages import Status

MINUTES = 20.0
INTERVAL_S = 60.0
PEACE_SHARE = 0.25
"""How long a herd is left in peace before the kills, and as long after them, as a share of their time."""
SEED = 20

IsBack = Callable[[Status], bool]
"""Whether what was hit goes on, by the status of now."""


@dataclass(frozen=True)
class Plan:
    """A time in peace, one with kills, and one in peace again."""

    duration_s: float
    """Of the kills."""
    interval_s: float
    kills: Sequence[Kill]

    @property
    def peace_s(self) -> float:
        """Before the kills, and after them."""
        return PEACE_SHARE * self.duration_s

    @property
    def end_s(self) -> float:
        return self.duration_s + 2 * self.peace_s

    @property
    def how(self) -> str:
        """For the name of a figure."""
        return f"{self.duration_s / 60:g} min, a kill every {self.interval_s:g} s"


def plan(victims: Sequence[str] = VICTIMS, minutes: float = MINUTES) -> Plan:
    """By REMUDA_EFFECTIVE_MINUTES (else `minutes`) and REMUDA_EFFECTIVE_INTERVAL_S; the same for the same victims."""
    duration_s = 60 * float(os.environ.get("REMUDA_EFFECTIVE_MINUTES", minutes))
    interval_s = float(os.environ.get("REMUDA_EFFECTIVE_INTERVAL_S", INTERVAL_S))
    return Plan(duration_s, interval_s, kill_schedule(SEED, duration_s, interval_s, victims))


@dataclass
class Loss:
    """One kill and what became of it."""

    kill: Kill
    at_s: float
    """When it happened; later than planned where nobody of the role was there."""
    is_back: IsBack
    back_s: float | None = None
    """How long until it went on."""
    lost_s: float = 0.0
    """Training time that the herd lost until the next kill."""


@dataclass
class Watched:
    """What was seen of one herd. Times in seconds since the begin of its first time in peace."""

    plan: Plan
    at_s: list[float] = field(default_factory=list[float])
    env_steps: list[int] = field(default_factory=list[int])
    train_iters: list[int] = field(default_factory=list[int])
    losses: list[Loss] = field(default_factory=list[Loss])
    collector_pids: set[int] = field(default_factory=set[int])
    """Of every process of a collector."""

    def see(self, at_s: float, env_step: int, train_iter: int) -> None:
        """Note how far the run has come."""
        self.at_s.append(at_s)
        self.env_steps.append(env_step)
        self.train_iters.append(train_iter)

    @property
    def killed_steps_per_s(self) -> float:
        """While somebody was killed now and then: while no coordinator is there nothing is counted."""
        return self._killed(self.env_steps)

    @property
    def peace_steps_per_s(self) -> float:
        return self._in_peace(self.env_steps)

    @property
    def killed_updates_per_s(self) -> float:
        """Those that a learner loses by going back to its checkpoint are not counted."""
        return self._killed(self.train_iters)

    @property
    def peace_updates_per_s(self) -> float:
        return self._in_peace(self.train_iters)

    @property
    def lost_s(self) -> float:
        """Training time that one kill cost, the mean of all."""
        share = 1 - self.killed_steps_per_s / self.peace_steps_per_s
        return self.plan.duration_s * share / max(1, len(self.losses))

    def share_out(self) -> None:
        """Say of each kill how much time it cost, by the pace in peace."""
        ends_s = [*(loss.at_s for loss in self.losses[1:]), self.plan.peace_s + self.plan.duration_s]
        for loss, end_s in zip(self.losses, ends_s, strict=True):
            gained = self._gained(self.env_steps, loss.at_s, end_s)
            loss.lost_s = end_s - loss.at_s - gained / self.peace_steps_per_s

    def _killed(self, counts: Sequence[int]) -> float:
        begin_s = self.plan.peace_s
        return self._gained(counts, begin_s, begin_s + self.plan.duration_s) / self.plan.duration_s

    def _in_peace(self, counts: Sequence[int]) -> float:
        peace_s, again_s = self.plan.peace_s, self.plan.peace_s + self.plan.duration_s
        gained = self._gained(counts, 0.0, peace_s) + self._gained(counts, again_s, self.plan.end_s)
        return gained / (2 * peace_s)

    def _gained(self, counts: Sequence[int], begin_s: float, end_s: float) -> int:
        """By what was seen last until then."""
        first, last = (max(0, bisect_right(self.at_s, when_s) - 1) for when_s in (begin_s, end_s))
        return counts[last] - counts[first]


def print_tables(seen: Watched) -> None:
    """Every kill, and by role what one costs; to stderr. After `share_out`."""
    print(" killed at  what          goes on after", file=sys.stderr)
    for loss in seen.losses:
        back = "not seen" if loss.back_s is None else f"{loss.back_s:.1f} s"
        print(f"{loss.at_s:8.1f} s  {loss.kill.role:12}  {back:>13}", file=sys.stderr)
    print("what          kills  goes on after (median)  training time lost by one (mean)", file=sys.stderr)
    for role in dict.fromkeys(loss.kill.role for loss in seen.losses):
        losses = [loss for loss in seen.losses if loss.kill.role == role]
        backs_s = [loss.back_s for loss in losses if loss.back_s is not None]
        back_s = statistics.median(backs_s) if backs_s else float("nan")
        lost_s = statistics.mean(loss.lost_s for loss in losses)
        print(f"{role:12}  {len(losses):5}  {back_s:20.1f} s  {lost_s:30.1f} s", file=sys.stderr)
    print(
        f"env steps per second: {seen.killed_steps_per_s:.0f} with kills, {seen.peace_steps_per_s:.0f} in peace",
        file=sys.stderr,
        flush=True,
    )


def kept_figures(name: str, seen: Watched, least_ratio: float) -> list[Figure]:
    """Environment steps and updates of the time with kills, beside those of the same herd in peace."""
    pairs: dict[str, tuple[float, float]] = {
        "env steps": (seen.killed_steps_per_s, seen.peace_steps_per_s),
        "updates": (seen.killed_updates_per_s, seen.peace_updates_per_s),
    }
    return [
        figure
        for what, (killed, peace) in pairs.items()
        for figure in compare(
            f"{name}: {what}, {seen.plan.how}",
            unit="1/s",
            goal=f">= {least_ratio}",
            ours=lambda killed=killed: killed,  # type: ignore[misc]
            references={"undisturbed": lambda peace=peace: peace},  # type: ignore[misc]
            n=1,
        )
    ]
