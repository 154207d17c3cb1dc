"""The environment that notes its first step is CartPole, stepped as CartPole is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.benchmarks.noted_cartpole import ENV_ID, FILE
from remuda.config.environment import EnvConfig
from remuda.environments.seeding import environment_seeds
from remuda.environments.vectors import make_vector, reset_vector, vectorization


def test_the_first_step_of_all_vectors_is_noted_and_none_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "first"
    monkeypatch.setenv(FILE, str(noted))
    vectors = [make_vector(EnvConfig(id=env_id), num_envs=3, source_dir=None) for env_id in (ENV_ID, "CartPole-v1")]
    mine, real = vectors
    assert vectorization(mine) == "native"
    seeds = environment_seeds(0, "collector", 0, 3)
    assert np.array_equal(reset_vector(mine, seeds), reset_vector(real, seeds))
    assert not noted.exists()
    seen: set[str] = set()
    for step in range(20):
        taken, expected = (vector.step(np.array([0, 1, step % 2])) for vector in vectors)
        assert all(np.array_equal(one, other) for one, other in zip(taken[:4], expected[:4], strict=True))
        seen.add(noted.read_text())
    [first] = seen
    assert float(first) > 0
    other = make_vector(EnvConfig(id=ENV_ID), num_envs=1, source_dir=None)
    reset_vector(other, [0])
    other.step(np.array([0]))
    assert noted.read_text() == first
    for vector in (*vectors, other):
        vector.close()
