"""State, time and counters of a run, and its status."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End
from remuda.training.identity import Identity
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import (
    OVER,
    CheckpointRecord,
    Counters,
    ExperimentState,
    ExperimentStatus,
    LedgerCounts,
    PolicyRef,
)

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


class Learning(Protocol):
    """The progress of the learner."""

    @property
    def train_iter(self) -> int:
        """Updates done."""
        ...

    @property
    def policy(self) -> PolicyRef:
        """The newest published policy."""
        ...


class Reanalyzed(Protocol):
    """Amount of reanalysis."""

    @property
    def rows(self) -> int:
        """Number of rows, each as often as computed again."""
        ...

    @property
    def target(self) -> PolicyRef:
        """Target network of the newest reanalysis."""
        ...


@dataclass(kw_only=True)
class LiveStatus:
    """Reads counters from other objects; keeps the state, the time and the rates."""

    identity: Identity
    replay: ReplayAccounting
    learning: Learning
    commander: Commander
    before_s: float
    """Seconds of earlier incarnations of the run."""
    reanalyzed: Reanalyzed | None = None
    """None in serial mode."""
    state: ExperimentState = "queued"
    reason: str | None = None
    """Reason for the end."""
    over: bool = field(default=False, init=False)
    """Nothing more will happen."""
    _since_s: float | None = field(default=None, init=False)
    """Start of the clock; None while stopped."""
    _env_rate: Rate = field(default_factory=Rate, init=False)
    _train_rate: Rate = field(default_factory=Rate, init=False)

    def start(self, now_s: float, state: ExperimentState = "starting") -> None:
        """Start the clock."""
        self.state, self._since_s = state, now_s

    def finish(self, end: End, now_s: float) -> None:
        """Stop the clock at the end."""
        self.before_s, self._since_s = self.wall_s(now_s), None
        self.reason, self.state, self.over = end.reason, end.state, True

    def restore(self, state: ExperimentState, reason: str | None, wall_s: float, now_s: float) -> None:
        """Continue from a restart."""
        self.state, self.reason, self.before_s = state, reason, wall_s
        self.over = state in OVER
        self._since_s = None if state == "queued" or self.over else now_s

    def wall_s(self, now_s: float) -> float:
        """Return the seconds of the run over all its incarnations."""
        return self.before_s if self._since_s is None else self.before_s + now_s - self._since_s

    def note_rates(self, now_s: float) -> None:
        """Time has passed."""
        self._env_rate.note(self.replay.ledger.env_step, now_s)
        self._train_rate.note(self.learning.train_iter, now_s)

    def counters(self, now_s: float) -> Counters:
        """The present counters."""
        return Counters(
            env_step=self.replay.ledger.env_step,
            train_iter=self.learning.train_iter,
            episode=self.replay.ledger.episode,
            policy_version=self.learning.policy.version,
            wall_s=self.before_s if self._since_s is None else self.before_s + now_s - self._since_s,
        )

    def status(self, waiting_for: str | None, now_s: float) -> ExperimentStatus:
        """Return the status for `remuda status`."""
        last, best, again = self.commander.last, self.commander.best, self.reanalyzed
        return _status(
            self.identity,
            self.state,
            self.reason,
            self.counters(now_s),
            last_return=None if last is None else last.reward_mean,
            best_return=None if best is None else best.reward_mean,
            env_steps_per_s=self._env_rate.per_s(),
            train_iters_per_s=self._train_rate.per_s(),
            policy_lag=self.replay.policy_lag(self.learning.policy),
            samples_per_insert=self.replay.samples_per_insert,
            waiting_for=waiting_for,
            reanalyzed_rows=0 if again is None else again.rows,
            target_train_iter=0 if again is None else again.target.train_iter,
            ledger=self.replay.ledger.counts,
        )


def failed_status(
    identity: Identity, reason: str, last: CheckpointRecord | None, best: CheckpointRecord | None
) -> ExperimentStatus:
    """Return the status of a run known only by its `last` and `best` checkpoint."""
    return _status(
        identity,
        "failed",
        reason,
        Counters() if last is None else last.counters,
        last_return=None if last is None else last.reward,
        best_return=None if best is None else best.reward,
    )


def _status(
    identity: Identity,
    state: ExperimentState,
    reason: str | None,
    counters: Counters,
    *,
    last_return: float | None,
    best_return: float | None,
    env_steps_per_s: float = 0.0,
    train_iters_per_s: float = 0.0,
    policy_lag: int = 0,
    samples_per_insert: float | None = None,
    waiting_for: str | None = None,
    reanalyzed_rows: int = 0,
    target_train_iter: int = 0,
    ledger: LedgerCounts | None = None,
) -> ExperimentStatus:
    return ExperimentStatus(
        id=identity.id,
        name=identity.name,
        state=state,
        reason=reason,
        run_dir=identity.run_dir,
        env_step=counters.env_step,
        train_iter=counters.train_iter,
        episode=counters.episode,
        policy_version=counters.policy_version,
        wall_s=counters.wall_s,
        last_return=last_return,
        best_return=best_return,
        env_steps_per_s=env_steps_per_s,
        train_iters_per_s=train_iters_per_s,
        policy_lag=policy_lag,
        samples_per_insert=samples_per_insert,
        waiting_for=waiting_for,
        reanalyzed_rows=reanalyzed_rows,
        target_train_iter=target_train_iter,
        priority=identity.priority,
        ledger=ledger,
    )
