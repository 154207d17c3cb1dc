"""MuJoCo and Box2D: what their extras bring can be stepped in vectors, and the same seeds give the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.spaces import Array
from remuda.tests.environments.stepping import begun, copies_of, spaces_of, stepped

SIMULATED = [
    ("mujoco", "HalfCheetah-v5", {}, (17,), np.float64, (6,)),
    ("mujoco", "Hopper-v5", {}, (11,), np.float64, (3,)),
    ("mujoco", "Walker2d-v5", {}, (17,), np.float64, (6,)),
    ("Box2D", "LunarLander-v3", {}, (8,), np.float32, ()),
    ("Box2D", "LunarLander-v3", {"continuous": True}, (8,), np.float32, (2,)),
]
"""Module, id, env.kwargs, shape and dtype of an observation, shape of an action."""


@pytest.mark.parametrize(("module", "id", "kwargs", "shape", "dtype", "action"), SIMULATED)
def test_simulated_environments_step_in_vectors(
    module: str, id: str, kwargs: dict[str, Any], shape: tuple[int, ...], dtype: type, action: tuple[int, ...]
) -> None:
    pytest.importorskip(module, reason=f"pip install 'remuda[{module.lower()}]'")
    env = EnvConfig(id=id, kwargs=kwargs, vectorization="sync")
    first, again = (played(env, steps=20) for _ in range(2))
    assert first.shape == (21, 2, *shape)
    assert first.dtype == dtype
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    assert actions(env).shape == (2, *action)


def played(env: EnvConfig, *, steps: int) -> Array:
    """Observations [steps + 1, 2, …] of two environments with seeds of their own and the same constant actions."""
    vector = copies_of(env, num_envs=2, source_dir=None)
    try:
        seen = [begun(vector, [3, 4]).copy()]
        act = actions(env)
        seen += [np.array(stepped(vector, act)[0]) for _ in range(steps)]
    finally:
        vector.close()
    return np.stack(seen)


def actions(env: EnvConfig) -> Array:
    """The same valid action for two environments."""
    vector = copies_of(env, num_envs=2, source_dir=None)
    try:
        _, space = spaces_of(vector)
        space.seed(0)
        one = np.asarray(space.sample())
    finally:
        vector.close()
    return np.stack([one, one])
