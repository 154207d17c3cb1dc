"""Steps of a dataset in place of environments: the collector of an offline run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.buffer.chunk import Columns
from remuda.buffer.minari_files import DatasetError
from remuda.collector.collected import Collected
from remuda.collector.recorder import Behavior
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import Copies
from remuda.environments.spaces import Space
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.training.replay.dataset import dataset_rows


class StoredSteps:
    """Hands in all rows of a dataset as one chunk, without a step of an environment. Has the methods of a Rollout."""

    def __init__(self, columns: Columns, rng: np.random.Generator) -> None:
        self.rng = rng
        """Draws nothing."""
        self._columns: Columns | None = columns

    def collect(
        self, env_steps: int, behaviors: Sequence[Behavior], *, longest_s: float | None = None
    ) -> list[Collected]:
        """Return the rows the first time, and nothing later."""
        columns, self._columns = self._columns, None
        return [] if columns is None else [Collected(columns, 0, behaviors[0].policy, [], [], 0.0)]

    def move(self, copies: Copies, seeds: Sequence[int]) -> None:
        """Do nothing: a task concerns evaluations alone."""

    def flush(self) -> list[Collected]:
        """Nothing waits for later steps."""
        return []


def stored_rows(config: ExperimentConfig, dataset: str, observation: Space, action: Space) -> Columns:
    """Read the rows of an offline run, in an environment of these spaces. Raises as dataset_rows, and DatasetError if
    the buffer is too small."""
    columns = dataset_rows(config, dataset, ObservationSpec.of(observation), ActionSpec.of(action))
    steps, capacity = len(columns["reward"]), config.buffer.capacity
    if steps > capacity:
        raise DatasetError(
            f"{dataset} has {steps} steps, and the buffer holds {capacity}: set buffer.capacity to {steps}"
        )
    return columns
