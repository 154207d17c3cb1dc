"""Rows of a real simulator: set into its state again, the action of a row leads to the rest of the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from remuda.config.load import load_settings
from remuda.environments.vectors import make_vector, single_spaces
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.collector.rollouts import OneRollout

DISCOUNT = 0.97
LONGEST = 30
"""Steps of an episode: some end before, others are cut there."""
FASTEST = 9.9
"""Observations hold speeds within 10: of a faster joint they do not tell the state."""


@pytest.mark.parametrize(("env_id", "seed"), [("Hopper-v5", 0), ("Walker2d-v5", 1)])
def test_a_step_from_the_state_of_a_row_gives_the_rest_of_it(env_id: str, seed: int, tmp_path: Path) -> None:
    pytest.importorskip("mujoco", reason="pip install 'remuda[mujoco]'")
    settings = {
        "name": "rows",
        "seed": seed,
        "env": {"id": env_id, "num_envs": 2, "vectorization": "sync", "max_episode_steps": LONGEST},
        "policy": {"type": "sac", "hidden": [16], "discount": DISCOUNT},
    }
    config = load_settings(settings, folder=tmp_path).config
    vector = make_vector(config.env, num_envs=2, source_dir=None)
    try:
        seen, taken = single_spaces(vector)
        spaces = ObservationSpec.of(seen), ActionSpec.of(taken)
        acts = make_policy(config, *spaces)
        acts.load_state(make_algorithm(config, *spaces, seed=seed).acting_state())
        rollout = OneRollout.made(config, vector, acts)
        columns = rollout.collect(1_200, {"random": 0.5}).columns
    finally:
        vector.close()

    simulator, told, ends = Simulator(env_id), 0, 0
    for obs, action, next_obs, reward, discount in zip(
        *(columns[name] for name in ("obs", "action", "next_obs", "reward", "discount")), strict=True
    ):
        fell = not simulator.stands(next_obs)
        assert discount == pytest.approx(0.0 if fell else DISCOUNT)
        ends += fell
        if np.abs(obs).max() <= FASTEST:
            stepped, gained = simulator.stepped(obs, action)
            np.testing.assert_allclose(next_obs, stepped, atol=1e-2)
            assert reward == pytest.approx(gained, abs=1e-2)
            told += 1
    assert ends > 10
    assert told > len(columns["obs"]) / 10


class Simulator:
    """Of the state that an observation tells: all but the place, on which nothing depends."""

    def __init__(self, env_id: str) -> None:
        self._env: Any = gymnasium.make(env_id).unwrapped
        self._env.reset(seed=0)

    def stands(self, obs: np.ndarray) -> bool:
        """Whether the body is upright enough to go on."""
        self._set(obs)
        return bool(self._env.is_healthy)

    def stepped(self, obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, float]:
        """Next observation and reward."""
        self._set(obs)
        stepped, gained, *_ = self._env.step(action)
        return stepped, float(gained)

    def _set(self, obs: np.ndarray) -> None:
        positions = self._env.model.nq - 1
        self._env.set_state(np.concatenate([[0.0], obs[:positions]]), np.asarray(obs[positions:], np.float64))
