"""State and time of a run, and its status."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from remuda.training.commander.end import End
from remuda.training.commander.together import joined_counters, mean_return
from remuda.training.run_snapshot import Identity
from remuda.wire.messages import OVER, CheckpointRecord, Counters, ExperimentState, ExperimentStatus, PolicyStatus

RATE_WINDOW_S = 10.0
"""Window of rates, in seconds."""


class Rate:
    """Growth of a counter per second over a sliding window, with at most a sample every half second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, value: int, now_s: float) -> None:
        """The counter has this value now."""
        if not self._samples or now_s - self._samples[-1][0] >= 0.5:
            self._samples.append((now_s, value))
        while len(self._samples) > 2 and now_s - self._samples[0][0] > RATE_WINDOW_S:
            self._samples.popleft()

    def per_s(self) -> float:
        """Growth per second; 0 before two samples."""
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s)


@dataclass
class RunState:
    """State and time of a run, over all its incarnations."""

    before_s: float = 0.0
    """Seconds until the clock was last started or stopped."""
    state: ExperimentState = "queued"
    reason: str | None = None
    """Reason for the end."""
    over: bool = field(default=False, init=False)
    """Nothing more will happen."""
    since_s: float | None = field(default=None, init=False)
    """Start of the clock; None while stopped."""

    def start(self, now_s: float) -> None:
        """Start the clock."""
        self.state, self.since_s = "starting", now_s

    def pause(self, now_s: float) -> None:
        """Stop the clock, until the next start."""
        self.before_s, self.since_s, self.state = self.wall_s(now_s), None, "starting"

    def finish(self, end: End, now_s: float) -> None:
        """Stop the clock at the end."""
        self.before_s, self.since_s = self.wall_s(now_s), None
        self.reason, self.state, self.over = end.reason, end.state, True

    def restore(self, states: Sequence[ExperimentState], reason: str | None, wall_s: float, now_s: float) -> None:
        """Continue from a restart, with the state of each policy."""
        if states[0] in OVER or len(set(states)) == 1:
            self.state = states[0]
        else:
            self.state = "stopping" if "stopping" in states else "starting"
        self.reason, self.before_s, self.over = reason, wall_s, self.state in OVER
        self.since_s = None if self.state == "queued" or self.over else now_s

    def wall_s(self, now_s: float) -> float:
        """Return the seconds of the run so far."""
        return self.before_s if self.since_s is None else self.before_s + now_s - self.since_s


def joined_status(known: Mapping[str, ExperimentStatus], last_returns: Sequence[float | None]) -> ExperimentStatus:
    """Return the status of a run with several policies, from the status and the last return of each."""
    each = list(known.values())
    counters = joined_counters(
        [Counters(one.env_step, one.train_iter, one.episode, one.policy_version, one.wall_s) for one in each]
    )
    return replace(
        each[0],
        env_step=counters.env_step,
        train_iter=counters.train_iter,
        episode=counters.episode,
        policy_version=counters.policy_version,
        train_iters_per_s=sum(one.train_iters_per_s for one in each),
        last_return=mean_return(last_returns),
        best_return=None,
        rating=None,
        policy_lag=max(one.policy_lag for one in each),
        samples_per_insert=None,
        reanalyzed_rows=sum(one.reanalyzed_rows for one in each),
        target_train_iter=max(one.target_train_iter for one in each),
        policies=[
            PolicyStatus(
                name, one.train_iter, one.episode, one.policy_version, one.last_return, one.best_return,
                one.train_iters_per_s, one.policy_lag, one.samples_per_insert, one.rating,
            )
            for name, one in known.items()
        ],
    )  # fmt: skip


def failed_status(
    identity: Identity, reason: str, last: CheckpointRecord | None, best: CheckpointRecord | None
) -> ExperimentStatus:
    """Return the status of a run known only by its `last` and `best` checkpoint."""
    counters = Counters() if last is None else last.counters
    return ExperimentStatus(
        id=identity.id,
        name=identity.name,
        state="failed",
        reason=reason,
        run_dir=identity.run_dir,
        env_step=counters.env_step,
        train_iter=counters.train_iter,
        episode=counters.episode,
        policy_version=counters.policy_version,
        wall_s=counters.wall_s,
        last_return=None if last is None else last.reward,
        best_return=None if best is None else best.reward,
        env_steps_per_s=0.0,
        train_iters_per_s=0.0,
        policy_lag=0,
        samples_per_insert=None,
        waiting_for=None,
        priority=identity.priority,
    )
