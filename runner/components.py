"""The parts of a serial run, and how it is timed, stopped and observed."""

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
"""The name under which a checkpoint has the random state for drawing actions."""


class StopRequest(Protocol):
    """Whether the run was asked to end; see remuda.worker.shutdown_guard.ShutdownGuard."""

    @property
    def ending(self) -> bool:
        """Whether the run has to end."""
        ...

    @property
    def reason(self) -> str:
        """Why, for people."""
        ...


@dataclass(frozen=True)
class RunHooks:
    """How a run is timed, stopped and observed."""

    stop: StopRequest
    on_progress: Callable[[ExperimentStatus], None]
    clock: Callable[[], float] = time.monotonic
    """A clock in seconds. It affects times and max_wall_s, and no other number of the run."""


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
    """The timers of the run."""
