"""Unrolls: each real step with what follows it in its episode, against the environment's own log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.buffer.chunk import read_chunk, write_chunk
from remuda.buffer.frames import FRAMES
from remuda.buffer.ring import ColumnRing
from remuda.collector.collected import Collected, CorruptExperienceError
from remuda.collector.rows import UnrollRows
from remuda.collector.trace import Trace
from remuda.environments.spaces import Array
from remuda.environments.vectors import Vector
from remuda.tests.buffer.chunks import WORKER
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.scripted import FunctionPolicy, ScriptedEnv, Step
from remuda.tests.policy.unrolled.algorithm import Acting, checked
from remuda.tests.policy.unrolled.trails import Trail, noted
from remuda.wire.messages import ChunkId

Row = tuple[Any, ...]
"""obs, action, reward, steps, terminated and what was recorded, as nested tuples."""


class Recording(FunctionPolicy):
    """Records what is 0 nowhere: twice what it sees plus 1, and its action plus 1."""

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"twice": ((4,), "float32"), "chosen": ((), "int64")}

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
        return actions, {"twice": 2 * observations + 1, "chosen": actions + 1}


def _itself(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return env


def rollout_of(
    envs: Sequence[gymnasium.Env[Any, Any]], *, unroll_steps: int, n_step: int, seed: int = 0, **options: Any
) -> OneRollout:
    vector: Vector = SyncVectorEnv([partial(_itself, env) for env in envs])
    return OneRollout(
        vector,
        options.pop("policy", Recording()),
        rows=UnrollRows(unroll_steps=unroll_steps, n_step=n_step, discount=0.9),
        rng=np.random.default_rng(seed),
        seeds=[seed * 100 + i for i in range(len(envs))],
        **options,
    )


def naive_rows(log: Sequence[Step], cuts: Sequence[int], unroll_steps: int, n_step: int) -> list[Row]:
    """One row per step, written down as the declaration says. No window reaches over a cut."""
    rows: list[Row] = []
    for start in range(len(log)):
        limit = min(cut for cut in (*cuts, len(log)) if cut > start)
        window: list[Step] = []
        for step in log[start : min(start + unroll_steps + n_step, limit)]:
            window.append(step)
            if step.terminated or step.truncated:
                break
        missing = unroll_steps + n_step - len(window)
        obs = [step.obs for step in window] + [window[-1].next_obs] * (missing + 1)
        action = [step.action for step in window] + [0] * missing
        reward = [float(np.float32(step.reward)) for step in window] + [0.0] * missing
        twice = [tuple(2 * number + 1 for number in step.obs) for step in window] + [(0.0,) * 4] * missing
        chosen = [step.action + 1 for step in window] + [0] * missing
        rows.append(
            (
                tuple(obs),
                tuple(action[:unroll_steps]),
                tuple(reward),
                len(window),
                window[-1].terminated,
                tuple(twice[: unroll_steps + 1]),
                tuple(chosen[: unroll_steps + 1]),
            )
        )
    return rows


NAMES = ("obs", "action", "reward", "steps", "terminated", "twice", "chosen")


def as_tuples(values: object) -> object:
    return tuple(map(as_tuples, cast("list[object]", values))) if isinstance(values, list) else values


def rows_of(chunks: Sequence[Collected]) -> list[Row]:
    rows: list[Row] = []
    for chunk in chunks:
        assert set(chunk.columns) == set(NAMES)
        assert {len(column) for column in chunk.columns.values()} == {chunk.rows}
        rows += zip(*(as_tuples(chunk.columns[name].tolist()) for name in NAMES), strict=True)
    return rows


# --- whatever the chunks --------------------------------------------------------------------------------------------
Operation = tuple[str, int]
operations = st.lists(
    st.tuples(st.sampled_from(["collect", "collect", "flush", "raise", "nan"]), st.integers(1, 20)),
    min_size=1,
    max_size=10,
)


@settings(deadline=None)
@given(
    num_envs=st.integers(1, 3),
    unroll_steps=st.integers(1, 3),
    n_step=st.integers(1, 3),
    longest=st.integers(1, 12),
    seed=st.integers(0, 1000),
    script=operations,
)
def test_rows_are_those_of_the_definition_whatever_the_chunks_and_a_chunk_that_fails_never_happened(
    num_envs: int, unroll_steps: int, n_step: int, longest: int, seed: int, script: list[Operation]
) -> None:
    envs = [ScriptedEnv(i, longest=longest) for i in range(num_envs)]
    rollout = rollout_of(envs, unroll_steps=unroll_steps, n_step=n_step, seed=seed)
    cuts: list[list[int]] = [[] for _ in envs]  # where windows end early: flushes and failures
    collected: list[Collected] = []
    for kind, number in script:
        known = [len(env.log) for env in envs]
        if kind == "collect":
            collected.append(rollout.collect(number, {"epsilon": 0.5}))
            continue
        for cut, length in zip(cuts, known, strict=True):
            cut.append(length)
        if kind == "flush":
            collected.append(rollout.flush())
            continue
        victim = envs[number % num_envs]
        victim.fails_in, victim.bad_reward = number, math.nan if kind == "nan" else None
        with pytest.raises(CorruptExperienceError if kind == "nan" else RuntimeError):
            rollout.collect(number * num_envs * 5, {})
        for env, length in zip(envs, known, strict=True):
            del env.log[length:]
    collected.append(rollout.flush())
    expected = [
        row for env, cut in zip(envs, cuts, strict=True) for row in naive_rows(env.log, cut, unroll_steps, n_step)
    ]
    assert sorted(rows_of(collected)) == sorted(expected)
    assert sum(chunk.env_steps for chunk in collected) == len(expected)


# --- by hand --------------------------------------------------------------------------------------------------------
def test_a_lost_life_ends_the_episode_and_the_game_goes_on() -> None:
    """Slots 0 to 3 of one environment: a reset, a step, one that loses a life, one more."""
    trace = Trace(spaces.Box(0, 9, (), np.uint8), spaces.Discrete(9), num_envs=1, kept=3)
    trace.begin(4)
    no = np.zeros(1, np.bool_)
    trace.append_reset(np.array([1]))
    for number in (2, 3, 4):
        lost = np.array([number == 3])
        trace.append(np.array([number]), np.array([number]), np.array([1.0]), no, no, no, lost)
    trace.pending[trace.new] = trace.real()
    columns, first_slot = UnrollRows(unroll_steps=1, n_step=2, discount=0.9).take(trace, last=True)
    assert first_slot == trace.kept + 1
    assert columns["obs"].tolist() == [[1, 2, 3, 3], [2, 3, 3, 3], [3, 4, 4, 4]]
    assert columns["steps"].tolist() == [2, 1, 1]
    assert columns["terminated"].tolist() == [True, True, False]


UNROLL_STEPS, N_STEP = 3, 4


def chunks(notes: Path, *, images: bool) -> Iterator[Collected]:
    """Twelve chunks, each of another policy, and what is left then."""
    vector: Any = SyncVectorEnv(
        [partial(Trail, images=images, notes=notes) for _ in range(3)], autoreset_mode=AutoresetMode.NEXT_STEP
    )
    policy = Acting()
    rows = UnrollRows(unroll_steps=UNROLL_STEPS, n_step=N_STEP, discount=0.9)
    rollout = OneRollout(vector, policy, rows=rows, rng=np.random.default_rng(1), seeds=[1, 2, 3])
    for number in range(12):
        policy.updates = number
        yield rollout.collect(2 + 5 * number, {})
    yield rollout.flush()
    vector.close()


def batch_of_all(place: Path, *, images: bool) -> dict[str, Array]:
    """Every row, from the ring."""
    ring = ColumnRing(1_000)
    for sequence, chunk in enumerate(chunks(place, images=images)):
        assert (FRAMES in chunk.columns) == images
        meta = write_chunk(place, chunk.meta(ChunkId(WORKER, 1, sequence)), chunk.columns)
        ring.write(ring.next_row, read_chunk(place / meta.file, meta))
    return dict(ring.gather(np.arange(ring.next_row)))


@pytest.mark.parametrize("images", [False, True])
def test_there_is_one_row_for_each_step_and_each_is_what_happened(tmp_path: Path, images: bool) -> None:
    batch = batch_of_all(tmp_path, images=images)
    found = checked(batch, unroll_steps=UNROLL_STEPS, n_step=N_STEP)
    taken = noted(tmp_path, "taken")
    assert sorted(map(tuple, found["step"].tolist())) == sorted(map(tuple, taken.tolist()))
    assert len(taken) > 300
    # The last row of each episode there was, and W - 1 of each that was cut at most.
    assert found["terminated"].sum() > 20
    assert found["truncated"].sum() > 10
    assert 0 < found["cut"].sum() <= 3 * (UNROLL_STEPS + N_STEP - 1)
    assert (batch["acted_after"].min(axis=1, where=batch["acted_after"] > 0, initial=99)
            < batch["acted_after"].max(axis=1)).any(), "windows in which the policy changed"  # fmt: skip
