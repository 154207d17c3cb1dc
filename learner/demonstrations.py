"""Steps of a dataset in every batch of a learner from replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from remuda.buffer.chunk import Columns
from remuda.config.schema import ExperimentConfig
from remuda.environments.seeding import generator
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.training.replay.dataset import dataset_rows

Learn = Callable[[Arrays], LearnResult]


def with_demonstrations(
    config: ExperimentConfig, algorithm: Algorithm, learn: Learn | None, *, epoch: int
) -> Learn | None:
    """Return an update like `learn` (None: the algorithm's) whose batches have rows of `buffer.demonstrations` as well;
    without that setting, return `learn`. `epoch`: of the learner, for its draws. Raises as dataset_rows."""
    shown, share = demonstrated(config, algorithm.observation, algorithm.action), config.buffer.demonstration_share
    if shown is None:
        return learn
    rng = generator(config.seed, "learner", 0, "demonstrations", incarnation=epoch)
    inner = learn or algorithm.learn

    def update(batch: Arrays) -> LearnResult:
        drawn = len(batch["reward"])
        more = max(1, round(drawn * share / (1.0 - share)))
        result = inner(joined(batch, shown, rng.integers(len(shown["reward"]), size=more)))
        return result if result.priorities is None else replace(result, priorities=result.priorities[:drawn])

    return update


def demonstrated(
    config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, *, sampled: bool = False
) -> Columns | None:
    """Read the rows of `buffer.demonstrations`; None without them. `sampled`: the rows of the first and last episode
    alone, for a check before the learner reads them all. Raises as dataset_rows."""
    dataset, share = config.buffer.demonstrations, config.buffer.demonstration_share
    if dataset is None or not share:
        return None
    return dataset_rows(config, dataset, observation, action, sampled=sampled)


def joined(batch: Arrays, shown: Arrays, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Append rows of the demonstrations, with weight 1, to the batch. A column without demonstrations, such as legal
    actions, gets 1 in the appended rows."""
    columns: dict[str, np.ndarray] = {}
    for name, own in batch.items():
        added = shown[name][rows] if name in shown else np.ones((len(rows), *own.shape[1:]), own.dtype)
        columns[name] = np.concatenate([own, added.astype(own.dtype, copy=False)])
    return columns
