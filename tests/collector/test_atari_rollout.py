"""What a collector makes of Atari games: every step once, raw scores told, clipped rewards and lives learned from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from remuda.buffer.ring import ColumnRing
from remuda.collector.collected import Collected
from remuda.collector.rows import NStepRows
from remuda.config.environment import EnvConfig
from remuda.environments.make import make_single
from remuda.environments.spaces import Array
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.stepping import copies_of
from remuda.tests.policy.algorithms.untaught import Untaught

ENVS, SEEDS, DISCOUNT = 2, [3, 4], 0.9


class RandomPolicy(Untaught):
    """Presses any button, in an order of its own."""

    def act(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> Array:
        actions: Array = rng.integers(4, size=len(observations))
        return actions


def breakout(**kwargs: Any) -> EnvConfig:
    return EnvConfig(id="ALE/Breakout-v5", kwargs={"repeat_action_probability": 0.0, "noop_max": 1, **kwargs})


def gathered(collected: Collected) -> dict[str, Array]:
    """The columns as a learner sees them."""
    ring = ColumnRing(collected.rows)
    ring.write(0, collected.columns)
    return dict(ring.gather(np.arange(collected.rows)))


def test_every_step_is_a_row_once_and_returns_are_the_games_own() -> None:
    """One environment's rows against the same game played alone by hand."""
    config = breakout(episodic_life=True, reward_clipping=True)
    vector = copies_of(config, num_envs=1, source_dir=None)
    collector = OneRollout(
        vector,
        RandomPolicy(),
        rows=NStepRows(n_step=1, discount=DISCOUNT),
        rng=np.random.default_rng(0),
        seeds=[3],
    )
    chunks = [collector.collect(150, {}) for _ in range(4)]
    chunks.append(collector.flush())
    rows = [gathered(chunk) for chunk in chunks if chunk.rows]
    column = {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}
    assert sum(chunk.env_steps for chunk in chunks) == len(column["reward"]) >= 600

    game = make_single(config, source_dir=None)
    observation, info = game.reset(seed=3)
    returns: list[float] = []
    score, lives = 0.0, info["lives"]
    for t, action in enumerate(column["action"]):
        np.testing.assert_array_equal(column["obs"][t], observation, err_msg=f"row {t}")
        observation, paid, terminated, truncated, info = game.step(action)
        reward = float(paid)
        np.testing.assert_array_equal(column["next_obs"][t], observation, err_msg=f"row {t}")
        score += reward
        assert column["reward"][t] == min(reward, 1.0)
        ends = terminated or info["lives"] < lives
        assert column["discount"][t] == pytest.approx(0.0 if ends else DISCOUNT)
        lives = info["lives"]
        if terminated or truncated:
            returns.append(score)
            observation, info = game.reset()
            score, lives = 0.0, info["lives"]
    assert len(returns) >= 2
    assert [value for chunk in chunks for value in chunk.episode_returns] == returns
