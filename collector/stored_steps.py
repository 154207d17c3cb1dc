"""Steps of a dataset in place of environments: the rows of an offline run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from gymnasium import spaces

from remuda.buffer.chunk import is_finite
from remuda.buffer.episodes import Column, Episodes
from remuda.buffer.minari_files import DatasetError, read_dataset
from remuda.collector.collected import Collected
from remuda.collector.recorder import Behavior
from remuda.config.declaration import Steps
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import Copies
from remuda.environments.spaces import Space, column_layout
from remuda.policy.algorithms import declaration
from remuda.policy.returns import n_step_windows


class StoredSteps:
    """Hands in all rows of a dataset as one chunk, without a step of an environment. Has the methods of a Rollout."""

    def __init__(self, columns: dict[str, Column], rng: np.random.Generator) -> None:
        self.rng = rng
        """Draws nothing."""
        self._columns: dict[str, Column] | None = columns

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


def stored_rows(config: ExperimentConfig, dataset: str, observation: Space, action: Space) -> dict[str, Column]:
    """Read a dataset as rows for the algorithm of a config, in an environment of these spaces. Raises DatasetError."""
    rows = declaration(config).rows
    if not isinstance(rows, Steps):
        raise DatasetError(
            f"policy.type {config.policy.type} does not learn from single steps, so not from a dataset: take dqn, "
            "rainbow, sac, td3, crossq or iql"
        )
    episodes = fitting(Path(dataset), observation, action)
    if episodes.steps > config.buffer.capacity:
        raise DatasetError(
            f"{dataset} has {episodes.steps} steps, and the buffer holds {config.buffer.capacity}: set buffer.capacity "
            f"to {episodes.steps}"
        )
    return rows_of(episodes, n_step=rows.n_step, discount=rows.discount)


def fitting(dataset: Path, observation: Space, action: Space) -> Episodes:
    """Read a dataset with the dtypes of columns. Raises DatasetError if it is not of an environment with these
    spaces."""
    read = read_dataset(dataset).episodes
    seen, acted = (
        _as_column(dataset, what, space, values)
        for what, space, values in (("observation", observation, read.observations), ("action", action, read.actions))
    )
    if isinstance(action, spaces.Discrete) and not action.start <= acted.min() <= acted.max() < action.start + action.n:
        raise DatasetError(f"{dataset} has actions from {acted.min()} to {acted.max()}, and the environment {action}")
    rewards = read.rewards.astype(np.float32)
    if not is_finite(rewards):
        raise DatasetError(f"{dataset} has rewards that are not finite")
    return Episodes(seen, acted, rewards, read.terminated, read.lengths)


def _as_column(dataset: Path, what: str, space: Space, values: Column) -> Column:
    shape, dtype = column_layout(space, what=what)
    if values.shape[1:] != shape or (values.dtype.kind == "f") != (dtype.kind == "f"):
        raise DatasetError(
            f"{dataset} has {what}s of {values.dtype}{list(values.shape[1:])}, and the environment of {dtype}"
            f"{list(shape)}: is it a dataset of this environment?"
        )
    column = values.astype(dtype)
    if not is_finite(column):
        raise DatasetError(f"{dataset} has {what}s that are not finite")
    return column


def rows_of(episodes: Episodes, *, n_step: int, discount: float) -> dict[str, Column]:
    """Return the rows that NStepRows makes of these episodes."""
    last = episodes.last
    windows = n_step_windows(
        episodes.rewards.astype(np.float64)[:, None], last[:, None], n_step=n_step, discount=discount
    )
    length, observed = windows.length[:, 0], episodes.observed
    continues = ~episodes.terminated[np.arange(episodes.steps) + length - 1]
    return {
        "obs": episodes.observations[observed],
        "next_obs": episodes.observations[observed + length],
        "action": episodes.actions,
        "reward": windows.reward[:, 0].astype(np.float32),
        "discount": (discount**length * continues).astype(np.float32),
    }
