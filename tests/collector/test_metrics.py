"""What a policy says of the steps it was asked for: each real step once, resets never, and no means of nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.collector.collected import MetricError, metric_means
from remuda.collector.rows import NStepRows, Rows, SegmentRows, UnrollRows
from remuda.environments.spaces import Array
from remuda.environments.vectors import Vector
from remuda.policy.base import Arrays
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.scripted import FunctionPolicy, ScriptedEnv
from remuda.tests.policy.algorithms.untaught import Untaught
from remuda.wire.messages import ChunkId, MetricMean

Layouts = Mapping[str, tuple[tuple[int, ...], str]]
UUID = "6f1c9c3e-0d0a-4c5b-8a39-2f6f6f5c1e77"


class Saying(FunctionPolicy):
    """Says the mean number of an observation, which rows hold, and its action, which they do not."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Array]] = []

    def recorded(self) -> Layouts:
        return {"seen": ((4,), "float32")}

    def measured(self) -> Layouts:
        return {"chosen": ((), "int64")}

    def act_recording(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> tuple[Array, Mapping[str, Array]]:
        actions = self.act(observations, exploration, rng, deterministic=False)
        return actions, {"seen": observations, "chosen": actions}

    def collected_metrics(self, columns: Arrays) -> Arrays:
        self.asked.append({name: np.array(column) for name, column in columns.items()})
        return {"seen_mean": columns["seen"].mean(axis=1), "chosen_mean": columns["chosen"]}


NAMES = ("seen_mean", "chosen_mean")
SHAPES: dict[str, Callable[[], Rows]] = {
    "steps": lambda: NStepRows(n_step=3, discount=0.9),
    "segments": lambda: SegmentRows(discount=0.9),
    "unrolls": lambda: UnrollRows(unroll_steps=2, n_step=2, discount=0.9),
}


def _itself(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return env


def rollout_of(
    envs: Sequence[ScriptedEnv], policy: FunctionPolicy, shape: str = "steps", names: Sequence[str] = NAMES
) -> OneRollout:
    vector: Vector = SyncVectorEnv([partial(_itself, env) for env in envs])
    seeds = list(range(len(envs)))
    return OneRollout(vector, policy, rows=SHAPES[shape](), rng=np.random.default_rng(0), seeds=seeds, metrics=names)


@settings(max_examples=40, deadline=None)
@given(num_envs=st.integers(1, 4), shape=st.sampled_from(list(SHAPES)), chunks=st.lists(st.integers(1, 9), max_size=6))
def test_each_step_of_a_chunk_is_in_its_means_once(num_envs: int, shape: str, chunks: list[int]) -> None:
    envs, policy = [ScriptedEnv(number) for number in range(num_envs)], Saying()
    rollout = rollout_of(envs, policy, shape)
    for env_steps in chunks:
        policy.asked.clear()
        before = [len(env.log) for env in envs]
        chunk = rollout.collect(env_steps, {})
        taken = [step for env, start in zip(envs, before, strict=True) for step in env.log[start:]]
        if not taken:  # a segment may be one slot, in which all environments are reset
            assert (policy.asked, chunk.metrics) == ([], {})
            continue
        assert len(policy.asked) == 1, "once per chunk"
        assert {name: len(column) for name, column in policy.asked[-1].items()} == dict.fromkeys(
            ("seen", "chosen"), len(taken)
        )
        assert {metric.steps for metric in chunk.metrics.values()} == {chunk.env_steps} == {len(taken)}
        means = {name: metric.mean for name, metric in chunk.metrics.items()}
        assert means == pytest.approx(
            {
                "seen_mean": np.mean([step.obs for step in taken]),
                "chosen_mean": np.mean([step.action for step in taken]),
            },
            rel=1e-5,
        )
        assert "chosen" not in chunk.columns, "what is for metrics alone is in no row"
        assert chunk.meta(ChunkId(UUID, 1, 0)).metrics == chunk.metrics
    assert rollout.flush().metrics == {}, "no step was taken for it"


def test_a_metric_that_was_not_declared_is_an_error() -> None:
    rollout = rollout_of([ScriptedEnv()], Saying(), "steps", ["chosen_mean"])
    with pytest.raises(MetricError, match="'seen_mean', which its declaration does not list in `collected`"):
        rollout.collect(20, {})


class Returning(Untaught):
    """Says what it was made with."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._said = said

    def act(self, *_: Any, **__: Any) -> Array:
        raise AssertionError("it is asked for metrics alone")

    def collected_metrics(self, columns: Arrays) -> Arrays:
        return self._said


def means_of(steps: int = 4, **said: Any) -> dict[str, MetricMean]:
    return metric_means(Returning(said), {}, {"speed", "height"}, steps=steps)


def test_steps_without_a_finite_number_are_left_out() -> None:
    speed = [1.0, math.nan, 5.0, math.inf]
    assert means_of(speed=speed, height=[math.nan, -math.inf, math.nan, 1e301]) == {"speed": MetricMean(3.0, 2)}
    assert means_of(2, speed=np.array([True, False]), height=np.array([1, 2], np.int8)) == {
        "speed": MetricMean(0.5, 2),
        "height": MetricMean(1.5, 2),
    }


@pytest.mark.parametrize("wrong", [1.0, [1.0] * 3, [[1.0] * 4]])
def test_a_metric_is_one_number_for_each_step(wrong: object) -> None:
    with pytest.raises(MetricError, match=r"Returning.collected_metrics returned 'speed' of shape .* for 4 steps"):
        means_of(speed=wrong)
