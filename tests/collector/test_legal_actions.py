"""A policy that wants to know which actions are legal is told so for each step; others are asked as ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from remuda.collector.rollout import Rollout
from remuda.collector.rows import NStepRows
from remuda.config.schema import EnvConfig
from remuda.environments.vectors import Vector, make_vector
from remuda.tests.environments.masked import Careful, Choosy
from remuda.tests.environments.scripted import FunctionPolicy, ScriptedEnv


def rollout_in(vector: Vector, policy: Any) -> Rollout:
    rows = NStepRows(n_step=2, discount=0.9)
    return Rollout(vector, policy, rows=rows, rng=np.random.default_rng(3), seeds=list(range(vector.num_envs)))


def test_it_is_told_over_chunks_and_resets() -> None:
    """The environment raises where it was told wrong, and the policy compares with what it sees."""
    policy = Careful()
    rollout = rollout_in(SyncVectorEnv([Choosy] * 3), policy)
    chunks = [rollout.collect(steps, {}) for steps in (1, 2, 50, 7)]
    rollout.flush()
    chunks.append(rollout.collect(30, {}))
    assert sum(len(chunk.episode_returns) for chunk in chunks) > 10
    assert policy.times_told > 30


def test_it_is_told_right_after_a_chunk_that_failed() -> None:
    """All environments are reset then, and what was legal before is not what is legal now."""
    rollout = rollout_in(SyncVectorEnv([Choosy] * 3), Careful())
    careful, fails = rollout.policy, FunctionPolicy()
    for _ in range(5):
        rollout.collect(20, {})
        rollout.policy = fails  # chooses what is illegal
        with pytest.raises(ValueError, match="is illegal"):
            rollout.collect(500, {})
        rollout.policy = careful


@pytest.mark.processes
def test_it_is_told_by_environments_in_processes() -> None:
    config = EnvConfig(make="remuda.tests.environments.masked:make", vectorization="async")
    vector = make_vector(config, num_envs=4, source_dir=None)
    try:
        rollout = rollout_in(vector, Careful())
        assert sum(rollout.collect(40, {}).env_steps for _ in range(3)) >= 120
    finally:
        vector.close()


def test_where_an_environment_says_nothing_all_are_legal() -> None:
    class Asked(FunctionPolicy):
        uses_legal_actions = True

        def act_recording(
            self, observations: Any, exploration: Any, rng: Any, *, legal: Any = "not said", state: Any = None
        ) -> Any:
            assert legal is None
            return self.act(observations, exploration, rng, deterministic=False), {}

    rollout_in(SyncVectorEnv([ScriptedEnv] * 2), Asked()).collect(20, {})
