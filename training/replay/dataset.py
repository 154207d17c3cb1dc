"""Rows of a dataset, as collectors make them of environment steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from remuda.buffer.chunk import Columns
from remuda.buffer.episodes import Episodes
from remuda.buffer.minari_files import DatasetError, Layout, fitting_episodes
from remuda.config.declaration import Steps
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.atari import NAMESPACE
from remuda.environments.make import settings_of_atari
from remuda.policy.algorithms import declaration
from remuda.policy.returns import n_step_windows


def dataset_rows(config: ExperimentConfig, dataset: str, observation: Layout, action: Layout) -> Columns:
    """Read a dataset as rows for the algorithm of a config, in an environment with these observations and actions.
    Rewards of Atari are clipped like those of collectors. Raises DatasetError and EnvironmentBuildError."""
    rows = declaration(config).rows
    if not isinstance(rows, Steps):
        raise DatasetError(
            f"policy.type {config.policy.type} does not learn from single steps, so not from a dataset: take dqn, "
            "rainbow, sac, td3, crossq or iql"
        )
    episodes = fitting_episodes(Path(dataset), observation, action)
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
