"""Rows of a dataset, as collectors make them of environment steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from gymnasium.spaces import Discrete

from remuda.buffer.chunk import Columns, is_finite
from remuda.buffer.episodes import Column, Dataset, DatasetError, Episodes, read_dataset
from remuda.config.declaration import Steps
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.atari import NAMESPACE
from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.make import settings_of_atari
from remuda.policy.algorithms import declaration
from remuda.policy.returns import n_step_windows
from remuda.policy.spaces import ActionSpec, ObservationSpec


def fitting_episodes(
    source: Path, observation: ObservationSpec, action: ActionSpec, *, sampled: bool = False
) -> Episodes:
    """Read a dataset with the dtypes of columns: floats become float32. Raises DatasetError if it is not of an
    environment with such observations and actions, or has numbers that are not finite, and UnsupportedSpaceError for
    observations of several parts. `sampled`: see read_dataset."""
    layout = observation.of_dataset
    dataset = read_dataset(source, sampled=sampled)
    _require_same_values(source, dataset, observation)
    _require_same_actions(source, dataset, action)
    read = dataset.episodes
    seen = _column(source, "observations", layout, read.observations)
    acted = _column(source, "actions", (action.shape, action.dtype), read.actions)
    rewards = _column(source, "rewards", ((), "float32"), read.rewards)
    if not action.has(acted):
        raise DatasetError(f"{source} has actions from {acted.min()} to {acted.max()}, outside of {action.text}")
    return Episodes(seen, acted, rewards, read.terminated, read.lengths)


def _require_same_values(source: Path, dataset: Dataset, observation: ObservationSpec) -> None:
    """Compare the values of Discrete observations. Other spaces are compared by shape and dtype of the column."""
    space = dataset.spaces[0]
    if observation.n is not None and space != Discrete(observation.n, start=observation.start):
        raise DatasetError(
            f"{source} has observations of {space}, and the environment of "
            f"{Discrete(observation.n, start=observation.start)}: is it a dataset of this environment?"
        )


def _require_same_actions(source: Path, dataset: Dataset, action: ActionSpec) -> None:
    try:
        there = ActionSpec.of(dataset.spaces[1])
    except UnsupportedSpaceError as error:
        raise DatasetError(f"{source}: {error}") from error
    if not action.means_the_same(there):
        raise DatasetError(
            f"{source} has actions of {there.text}, and the environment of {action.text}: take a dataset of this "
            "environment, or make env.id, env.make or env.kwargs those of the dataset"
        )


def _column(source: Path, what: str, layout: tuple[tuple[int, ...], str], values: Column) -> Column:
    shape, dtype = layout[0], np.dtype(layout[1])
    if values.shape[1:] != shape or (values.dtype.kind == "f") != (dtype.kind == "f"):
        raise DatasetError(
            f"{source} has {what} of {values.dtype}{list(values.shape[1:])}, and the environment of {dtype}"
            f"{list(shape)}: is it a dataset of this environment?"
        )
    column: Column = values.astype(np.float32 if dtype.kind == "f" else dtype)
    if not is_finite(column):
        raise DatasetError(f"{source} has {what} that are not finite")
    return column


def dataset_rows(
    config: ExperimentConfig,
    dataset: str,
    observation: ObservationSpec,
    action: ActionSpec,
    *,
    sampled: bool = False,
) -> Columns:
    """Read a dataset as rows for the algorithm of a config, in an environment with these observations and actions.
    Rewards of Atari are clipped like those of collectors. `sampled`: see read_dataset. Raises as `fitting_episodes`,
    and EnvironmentBuildError."""
    rows = declaration(config).rows
    if not isinstance(rows, Steps):
        raise DatasetError(
            f"policy.type {config.policy.type} does not learn from single steps, so not from a dataset: take dqn, "
            "rainbow, sac, td3, crossq or iql"
        )
    episodes = fitting_episodes(Path(dataset), observation, action, sampled=sampled)
    if _clips_rewards(config.env):
        episodes = replace(episodes, rewards=episodes.rewards.clip(-1.0, 1.0))
    return rows_of(episodes, n_step=rows.n_step, discount=rows.discount)


def _clips_rewards(env: EnvConfig) -> bool:
    if NAMESPACE not in (env.id or ""):
        return False  # a learner's machine need not know other environments
    game = settings_of_atari(env)
    return game is not None and game.clips_rewards


def rows_of(episodes: Episodes, *, n_step: int, discount: float) -> Columns:
    """Return the rows that NStepRows makes of these episodes."""
    windows = n_step_windows(
        episodes.rewards.astype(np.float64)[:, None], episodes.last[:, None], n_step=n_step, discount=discount
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
