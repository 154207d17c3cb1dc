"""What a serial run is made of, and how it is timed, stopped and looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from remuda.collector.rollout import Rollout
from remuda.config.schema import ExperimentConfig
from remuda.evaluator.checkpoint_player import CheckpointPlayer
from remuda.learner.outputs import LearnerOutputs
from remuda.logbook.book import Logbook
from remuda.logbook.timers import Timers
from remuda.policy.base import Algorithm
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.training.journal import RunJournal
from remuda.wire.messages import ExperimentStatus

EXPLORATION = "exploration"
"""Under which name a checkpoint has the random state that actions are drawn with."""


class StopRequest(Protocol):
    """Whether somebody asks the run to end; see remuda.worker.shutdown_guard.ShutdownGuard."""

    @property
    def ending(self) -> bool:
        """The run is to end."""
        ...

    @property
    def reason(self) -> str:
        """Why, for people."""
        ...


@dataclass(frozen=True)
class RunHooks:
    """How a run is timed, stopped and looked at."""

    stop: StopRequest
    on_progress: Callable[[ExperimentStatus], None]
    clock: Callable[[], float] = time.monotonic
    """Seconds. Decides no number of the run but times, and max_wall_s."""


@dataclass(frozen=True)
class Components:
    """What the loop calls in turn."""

    config: ExperimentConfig
    folder: RunFolder
    logbook: Logbook
    algorithm: Algorithm
    rollout: Rollout
    player: CheckpointPlayer
    outputs: LearnerOutputs
    checkpoints: CheckpointIndex
    journal: RunJournal
    timers: Timers
    """What the run's time is spent on."""
