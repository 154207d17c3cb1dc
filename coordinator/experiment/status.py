"""How far an experiment is: its state, its time, its counters, and what status shows of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from remuda.coordinator.experiment.flow_control import FlowControl
from remuda.coordinator.experiment.identity import Identity
from remuda.training.commander.commander import Commander, End
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import OVER, Counters, ExperimentState, ExperimentStatus

NATURAL_ENDS = ("stop_value", "max_env_steps", "max_train_iters", "max_wall_s")


@dataclass(kw_only=True)
class LiveStatus:
    """Reads counters off those who count; itself it keeps the state and the time."""

    identity: Identity
    experience: ReplayAccounting
    flow: FlowControl
    commander: Commander
    before_s: float
    """How long the run had gone on before this life of it."""
    state: ExperimentState = "queued"
    reason: str | None = None
    """Why it is over."""
    _since_s: float | None = field(default=None, init=False)
    """Since when its time runs; None while it does not."""

    @property
    def over(self) -> bool:
        """Nothing more will happen."""
        return self.state in OVER

    def start(self, now_s: float) -> None:
        """It has got its first worker: its time begins."""
        self.state, self._since_s = "starting", now_s

    def finish(self, end: End, now_s: float) -> None:
        """It is over, and its time stands still."""
        self.before_s, self._since_s = self.wall_s(now_s), None
        self.reason = end.reason
        self.state = "finished" if end.reason in NATURAL_ENDS else "stopped" if end.reason == "stopped" else "failed"

    def restore(self, state: ExperimentState, reason: str | None, wall_s: float, now_s: float) -> None:
        """Go on from there."""
        self.state, self.reason, self.before_s = state, reason, wall_s
        self._since_s = None if state == "queued" or self.over else now_s

    def wall_s(self, now_s: float) -> float:
        """How long the run has gone on, over all its lives."""
        return self.before_s if self._since_s is None else self.before_s + now_s - self._since_s

    def counters(self, now_s: float) -> Counters:
        """The one set of counters, as of now."""
        return Counters(
            env_step=self.experience.env_step,
            train_iter=self.flow.train_iter,
            episode=self.experience.episode,
            policy_version=self.flow.policy.version,
            wall_s=self.wall_s(now_s),
        )

    def status(self, waiting_for: str | None, now_s: float) -> ExperimentStatus:
        """As `remuda status` shows it."""
        last, best, counters = self.commander.last, self.commander.best, self.counters(now_s)
        return ExperimentStatus(
            id=self.identity.id,
            name=self.identity.name,
            state=self.state,
            reason=self.reason,
            run_dir=self.identity.run_dir,
            env_step=counters.env_step,
            train_iter=counters.train_iter,
            episode=counters.episode,
            policy_version=counters.policy_version,
            wall_s=counters.wall_s,
            last_return=None if last is None else last.reward_mean,
            best_return=None if best is None else best.reward_mean,
            env_steps_per_s=self.flow.env_rate.per_s(),
            train_iters_per_s=self.flow.train_rate.per_s(),
            policy_lag=self.experience.policy_lag(self.flow.policy),
            samples_per_insert=self.experience.samples_per_insert,
            waiting_for=waiting_for,
        )
