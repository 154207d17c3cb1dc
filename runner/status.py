"""How far a serial run is: its counters, what a checkpoint says of it, and what the progress view shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from remuda.config.declaration import Declaration
from remuda.config.schema import ExperimentConfig
from remuda.learner.checkpoint import Progress
from remuda.learner.loop import LearnerLoop
from remuda.policy.algorithms import declaration
from remuda.runner.checkpoint_journal import SERIAL_WORKER
from remuda.training.commander.commander import Commander
from remuda.training.rate import Rate
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import Counters, ExperimentState, ExperimentStatus, PolicyRef

STATUS_INTERVAL_S = 0.2


@dataclass(kw_only=True)
class SerialStatus:
    """Reads off those who know; itself it keeps the policy that acts and the state."""

    config: ExperimentConfig
    root: Path
    experience: ReplayAccounting
    learner: LearnerLoop
    commander: Commander
    clock: Callable[[], float]
    started_s: float
    """On the clock; of a resumed run, as if it had never been interrupted."""
    policy: PolicyRef
    """That the collector acts with."""
    state: ExperimentState = "running"
    waiting_for: str | None = None
    """What keeps the run from collecting and learning."""
    _declaration: Declaration = field(init=False)
    _rates: tuple[Rate, Rate] = field(default_factory=lambda: (Rate(), Rate()), init=False)
    _shown_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self._declaration = declaration(self.config)

    def counters(self) -> Counters:
        """The one set of counters, as of now."""
        return Counters(
            env_step=self.experience.env_step,
            train_iter=self.learner.train_iter,
            episode=self.experience.episode,
            policy_version=self.policy.version,
            wall_s=self.clock() - self.started_s,
        )

    def exploration(self) -> dict[str, float]:
        """How much chance there is in what the collector does now."""
        return self._declaration.exploration_at(self.experience.env_step)

    def reached(self, counters: Counters) -> Progress:
        """What a checkpoint says of the run."""
        best = self.commander.best
        return Progress(counters, self.policy, self.exploration(), None if best is None else best.reward_mean)

    def news(self, now_s: float) -> ExperimentStatus | None:
        """What there is to show, every STATUS_INTERVAL_S seconds."""
        if now_s - self._shown_s < STATUS_INTERVAL_S:
            return None
        self._shown_s = now_s
        for rate, value in zip(self._rates, (self.experience.env_step, self.learner.train_iter), strict=True):
            rate.note(value, now_s)
        return self.status()

    def status(self) -> ExperimentStatus:
        """As the progress view shows it."""
        commander, (env_rate, train_rate) = self.commander, self._rates
        last, best, end = commander.last, commander.best, commander.ending
        counters = self.counters()
        return ExperimentStatus(
            id=SERIAL_WORKER,
            name=self.config.name,
            state=self.state,
            reason=None if end is None else end.reason,
            run_dir=str(self.root),
            env_step=counters.env_step,
            train_iter=counters.train_iter,
            episode=counters.episode,
            policy_version=counters.policy_version,
            wall_s=counters.wall_s,
            last_return=None if last is None else last.reward_mean,
            best_return=None if best is None else best.reward_mean,
            env_steps_per_s=env_rate.per_s(),
            train_iters_per_s=train_rate.per_s(),
            policy_lag=self.experience.policy_lag(self.policy),
            samples_per_insert=self.experience.samples_per_insert,
            waiting_for=self.waiting_for,
        )
