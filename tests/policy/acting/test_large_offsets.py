"""Small signals on large offsets stay exact until the running mean is subtracted, where float32 would round."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from remuda.buffer.chunk import read_chunk, write_chunk
from remuda.buffer.ring import ColumnRing
from remuda.collector.collected import Collected
from remuda.collector.rows import SegmentRows
from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.files.exported_policies import model_actor
from remuda.policy.files.model_artifact import Exporter
from remuda.policy.spaces import ObservationSpec
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.policy.algorithms.segments import Batch, batch, experiment, on_policy
from remuda.wire.messages import ChunkId, Counters

OFFSET = 10**9
"""float32 represents every 64th integer there."""
OnPolicy = PpoConfig | ImpalaConfig
PPO = PpoConfig(hidden=(16, 8), epochs=2, minibatches=2, normalize_observations=True, normalize_rewards=True)
both = pytest.mark.parametrize("policy", [PPO, ImpalaConfig(hidden=(16, 8), normalize_observations=True)])
dtypes = pytest.mark.parametrize("dtype", ["float64", "int64"])


def rows(seed: int, dtype: str, *, drift: int = 0) -> Batch:
    """Observations without the offset: numbers of a few units, whole ones for integer dtypes."""
    made = batch(np.random.default_rng(seed))
    return made | {"obs": (np.rint(made["obs"] * 10) + drift * seed).astype(dtype)}


def moved(made: Batch) -> Batch:
    return made | {"obs": made["obs"] + made["obs"].dtype.type(OFFSET)}


def learned(policy: OnPolicy, dtype: str) -> tuple[Algorithm, Algorithm]:
    """Two algorithms with the same weights, one normalised with the offset; then both learn from the same rows."""
    near, far = (on_policy(policy, observation=ObservationSpec((4,), dtype), seed=3) for _ in range(2))
    for seed in range(3):
        near.learn(rows(seed, dtype))
    model = near.state()["model"]
    assert isinstance(model, dict)
    far.load_weights({"model": model | {"observations.mean": model["observations.mean"] + OFFSET}})
    near.load_state(near.state() | {"optimizer": far.state()["optimizer"], "schedules": far.state()["schedules"]})
    for seed in range(3, 5):
        near.learn(rows(seed, dtype))
        far.learn(moved(rows(seed, dtype)))
    return near, far


def acting(policy: OnPolicy, algorithm: Algorithm) -> Policy:
    acts = make_policy(experiment(policy), algorithm.observation, algorithm.action)
    acts.load_state(algorithm.acting_state())
    return acts


@both
@dtypes
def test_learning_is_the_same_with_an_offset_as_without(policy: OnPolicy, dtype: str) -> None:
    near, far = (algorithm.acting_state() for algorithm in learned(policy, dtype))
    np.testing.assert_allclose(far.pop("observations.mean") - OFFSET, near.pop("observations.mean"), atol=1e-3)
    for name, expected in near.items():
        np.testing.assert_allclose(far[name], expected, rtol=1e-3, atol=1e-3, err_msg=name)


@dtypes
def test_acting_is_the_same_with_an_offset_as_without(dtype: str, tmp_path: Path) -> None:
    """In numpy, in torch, and in an exported model/."""
    near, far = learned(PPO, dtype)
    seen = rows(9, dtype)["obs"].reshape(-1, 4)
    away = seen + seen.dtype.type(OFFSET)
    expected, (_, recorded) = acting(PPO, near).value(seen), _acted(acting(PPO, near), seen)
    np.testing.assert_allclose(acting(PPO, far).value(away), expected, atol=1e-3)
    actions, recorded_far = _acted(acting(PPO, far), away)
    np.testing.assert_array_equal(actions, _acted(acting(PPO, near), seen)[0])
    np.testing.assert_allclose(recorded_far["log_prob"], recorded["log_prob"], atol=1e-3)
    Exporter(far, experiment(PPO)).export(tmp_path, Counters())
    np.testing.assert_allclose(model_actor(tmp_path).value(away), expected, atol=1e-3)
    encoded = far.observation.encode(away, far.observation.numbers(normalised=True))
    with torch.no_grad():
        logits = far.network(torch.from_numpy(encoded))
        np.testing.assert_allclose(logits, near.network(torch.from_numpy(seen).double()), atol=1e-3)
    assert logits.dtype == torch.float32
    assert np.ptp(expected) > 0.05


# --- from the environment to the learner, and to the evaluator
class Far(gymnasium.ObservationWrapper[np.ndarray, int, np.ndarray]):
    """CartPole a long way off."""

    def __init__(self, dtype: str = "float64", offset: float = OFFSET) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._offset = offset
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.dtype(dtype).type)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return (observation.astype(np.float64) + self._offset).astype(self.observation_space.dtype)


def collected(policy: OnPolicy, dtype: str, *, offset: float = OFFSET) -> Collected:
    vector: Any = SyncVectorEnv([lambda: Far(dtype, offset)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    algorithm = on_policy(policy, observation=ObservationSpec((4,), dtype))
    acts, rng = acting(policy, algorithm), np.random.default_rng(0)
    try:
        return OneRollout(vector, acts, rows=SegmentRows(discount=0.9), rng=rng, seeds=[1, 2]).collect(32, {})
    finally:
        vector.close()


def test_columns_are_exact_from_the_environment_to_the_batch(tmp_path: Path) -> None:
    near, far = (collected(PPO, "float64", offset=offset) for offset in (0, OFFSET))
    meta = write_chunk(tmp_path, far.meta(ChunkId(str(uuid4()), 1, 1)), far.columns)
    ring = ColumnRing(4)
    ring.write(0, read_chunk(tmp_path / meta.file, meta))
    gathered = ring.gather(np.arange(far.rows))["obs"]
    assert gathered.dtype == np.float64
    first = near.columns["obs"][:, 1]  # of the slot before, the reset, nothing was seen
    np.testing.assert_array_equal(gathered[:, 1], first + OFFSET)


def _acted(acts: Policy, seen: np.ndarray) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    return acts.act_recording(seen, {}, np.random.default_rng(4))
