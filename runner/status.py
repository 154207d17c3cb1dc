"""How far a serial run is: its counters, what a checkpoint says of it, and what the progress view shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from remuda.config.declaration import Declaration
from remuda.config.schema import ExperimentConfig
from remuda.learner.checkpoint import Progress
from remuda.learner.loop import LearnerLoop
from remuda.policy.algorithms import declaration
from remuda.training.status import LiveStatus
from remuda.wire.messages import Counters, ExperimentStatus, PolicyRef

STATUS_INTERVAL_S = 0.2


@dataclass
class SerialLearning:
    """How far the learner is, and which policy the collector acts with: the one published last."""

    learner: LearnerLoop
    policy: PolicyRef

    @property
    def train_iter(self) -> int:
        """Updates done."""
        return self.learner.train_iter


@dataclass(kw_only=True)
class SerialStatus:
    """The status of the run, by the run's own clock."""

    live: LiveStatus
    learning: SerialLearning
    config: ExperimentConfig
    clock: Callable[[], float]
    waiting_for: str | None = None
    """What keeps the run from collecting and learning."""
    _declaration: Declaration = field(init=False)
    _shown_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self._declaration = declaration(self.config)

    def counters(self) -> Counters:
        """The one set of counters, as of now."""
        return self.live.counters(self.clock())

    def exploration(self) -> dict[str, float]:
        """How much chance there is in what the collector does now."""
        return self._declaration.exploration_at(self.live.replay.env_step)

    def reached(self, counters: Counters) -> Progress:
        """What a checkpoint says of the run."""
        best = self.live.commander.best
        return Progress(counters, self.learning.policy, self.exploration(), None if best is None else best.reward_mean)

    def news(self, now_s: float) -> ExperimentStatus | None:
        """What there is to show, every STATUS_INTERVAL_S seconds."""
        if now_s - self._shown_s < STATUS_INTERVAL_S:
            return None
        self._shown_s = now_s
        self.live.note_rates(now_s)
        return self.live.status(self.waiting_for, now_s)

    def status(self) -> ExperimentStatus:
        """As the progress view shows it."""
        return self.live.status(self.waiting_for, self.clock())
