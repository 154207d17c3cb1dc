"""The parts of a serial run, and how it is timed, stopped and observed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remuda.config.schema import ExperimentConfig
from remuda.learner.callback import Callback
from remuda.learner.outputs import LearnerOutputs
from remuda.logbook.book import Logbook
from remuda.logbook.timers import Timers
from remuda.policy.base import Algorithm, Policy
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.training.journal import RunJournal
from remuda.wire.messages import CheckpointRecord, ExperimentStatus

SERIAL_WORKER = "00000000-0000-4000-8000-000000000000"
"""Names of the one worker and the one experiment of a serial run, which register nowhere."""
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


def _nothing(record: CheckpointRecord) -> None:
    pass


@dataclass(frozen=True)
class Components:
    """What is called in turn for one policy. A run with several agents may have several policies."""

    config: ExperimentConfig
    """The settings under which it learns."""
    folder: RunFolder
    logbook: Logbook
    algorithm: Algorithm
    acting: Policy
    """What the collector acts with."""
    rng: np.random.Generator
    """The collector's, for exploration."""
    evaluated: Policy
    """Plays evaluations with the weights of the algorithm."""
    outputs: LearnerOutputs
    checkpoints: CheckpointIndex
    journal: RunJournal
    timers: Timers
    """The timers of the run."""
    saved: Callable[[CheckpointRecord], None] = _nothing
    """Called with each checkpoint that is saved."""
    callbacks: Sequence[Callback] = ()
    """The user's, of this policy."""
    policy: str = ""
    """Which of several policies it is."""
