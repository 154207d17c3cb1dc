"""The progress of a serial run: its counters, the record of a checkpoint, and what the progress view shows."""

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
    """The progress of the learner, and the policy that the collector acts with, which is the one published last."""

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
    """What the run is doing instead of collecting and learning."""
    _declaration: Declaration = field(init=False)
    _shown_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self._declaration = declaration(self.config)

    def counters(self) -> Counters:
        """The present counters."""
        return self.live.counters(self.clock())

    def exploration(self) -> dict[str, float]:
        """The exploration settings of the collector now."""
        return self._declaration.exploration_at(self.live.replay.ledger.env_step)

    def reached(self, counters: Counters) -> Progress:
        """What a checkpoint records about the run."""
        best = self.live.commander.best
        return Progress(counters, self.learning.policy, self.exploration(), None if best is None else best.reward_mean)

    def news(self, now_s: float) -> ExperimentStatus | None:
        """The progress to show, every STATUS_INTERVAL_S seconds."""
        if now_s - self._shown_s < STATUS_INTERVAL_S:
            return None
        self._shown_s = now_s
        self.live.note_rates(now_s)
        return self.live.status(self.waiting_for, now_s)

    def status(self) -> ExperimentStatus:
        """As the progress view shows it."""
        return self.live.status(self.waiting_for, self.clock())
