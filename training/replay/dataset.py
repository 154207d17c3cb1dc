"""Rows of a dataset, as collectors make them of environment steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from remuda.buffer.chunk import Columns
from remuda.buffer.episodes import Episodes
from remuda.buffer.minari_files import DatasetError, Layout, fitting_episodes
from remuda.config.declaration import Steps
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import declaration
from remuda.policy.returns import n_step_windows


def dataset_rows(config: ExperimentConfig, dataset: str, observation: Layout, action: Layout) -> Columns:
    """Read a dataset as rows for the algorithm of a config, in an environment with these observations and actions.
    Raises DatasetError."""
    rows = declaration(config).rows
    if not isinstance(rows, Steps):
        raise DatasetError(
            f"policy.type {config.policy.type} does not learn from single steps, so not from a dataset: take dqn, "
            "rainbow, sac, td3, crossq or iql"
        )
    return rows_of(fitting_episodes(Path(dataset), observation, action), n_step=rows.n_step, discount=rows.discount)


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
