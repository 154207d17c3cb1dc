"""Images are stored once each and come back exactly as seen: whatever the wrapper does, wherever a chunk ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.buffer.frames import FRAMES, index_name
from remuda.collector.collected import Collected
from remuda.collector.rows import NStepRows, Rows, SegmentRows, UnrollRows, observation_columns
from remuda.tests.buffer.stacks import unstacked
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.policy.algorithms.untaught import Still

SIDE = 32  # 1024 bytes: just a frame
DEPTH = 4
PADDINGS = ("zeros", "first frame", "new frames", "stale frames")


class Screen(gymnasium.Env[Any, Any]):
    """Stacks of random frames, sometimes the same one again; logs every (obs, next_obs) that was a step."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 255, (DEPTH, SIDE, SIDE), np.uint8)

    def __init__(self, *, padding: str, longest: int) -> None:
        self._padding, self._longest = padding, longest
        self._stack: deque[np.ndarray] = deque([np.zeros((SIDE, SIDE), np.uint8)] * DEPTH, DEPTH)
        self.log: list[tuple[np.ndarray, np.ndarray]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, self._longest + 1))
        first = self._frame()
        padding = {
            "zeros": [np.zeros_like(first)] * (DEPTH - 1),
            "first frame": [first] * (DEPTH - 1),
            "new frames": [self._frame() for _ in range(DEPTH - 1)],
            "stale frames": list(self._stack)[1:],  # as if the episode before went on
        }[self._padding]
        self._stack.extend([*padding, first])
        return np.stack(self._stack), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = np.stack(self._stack)
        self._left -= 1
        self._stack.append(self._stack[-1] if self.np_random.random() < 0.2 else self._frame())
        after = np.stack(self._stack)
        self.log.append((before, after))
        terminates = bool(self.np_random.random() < 0.5)
        return after, 0.0, self._left == 0 and terminates, self._left == 0 and not terminates, {}

    def _frame(self) -> np.ndarray:
        frame = np.zeros((SIDE, SIDE), np.uint8)
        frame[0, :2] = self.np_random.integers(0, 256, 2)
        return frame


def _itself(env: Screen) -> Screen:
    return env


def rollout_of(screens: list[Screen], rows: Rows) -> OneRollout:
    vector: Any = SyncVectorEnv(
        [partial(_itself, screen) for screen in screens], autoreset_mode=AutoresetMode.NEXT_STEP
    )
    seeds = list(range(len(screens)))
    return OneRollout(vector, Still(), rows=rows, rng=np.random.default_rng(0), seeds=seeds)


def collected(rows: Rows, chunks: list[int], *, num_envs: int, padding: str, longest: int) -> Iterator[Collected]:
    rollout = rollout_of([Screen(padding=padding, longest=longest) for _ in range(num_envs)], rows)
    for env_steps in chunks:
        yield rollout.collect(env_steps, {})
    yield rollout.flush()


@settings(deadline=None)
@given(
    kind=st.sampled_from(["steps", "segments", "unrolls"]),
    n_step=st.integers(1, 5),
    chunks=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    num_envs=st.integers(1, 3),
    padding=st.sampled_from(PADDINGS),
    longest=st.sampled_from([1, 3, 8, 100]),
)
def test_what_is_read_is_what_was_seen(
    kind: str, n_step: int, chunks: list[int], num_envs: int, padding: str, longest: int
) -> None:
    """Against the same rollout with observations copied out whole."""
    kinds: dict[str, Rows] = {
        "steps": NStepRows(n_step=n_step, discount=0.9),
        "segments": SegmentRows(discount=0.9),
        "unrolls": UnrollRows(unroll_steps=2, n_step=n_step, discount=0.9),
    }
    rows = kinds[kind]
    run = partial(collected, rows, chunks, num_envs=num_envs, padding=padding, longest=longest)
    encoded = list(run())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("remuda.collector.rows._MIN_FRAME_BYTES", 1 << 60)
        plain = list(run())
    for got, expected in zip(encoded, plain, strict=True):
        assert FRAMES in got.columns
        assert FRAMES not in expected.columns
        assert (got.rows, got.env_steps) == (expected.rows, expected.env_steps)
        columns = unstacked(got.columns)
        assert columns.keys() == expected.columns.keys()
        for name, column in expected.columns.items():
            assert columns[name].dtype == column.dtype
            np.testing.assert_array_equal(columns[name], column)


# --- how much is stored ---------------------------------------------------------------------------------------------
def moving(steps: int, num_envs: int = 1, depth: int = DEPTH) -> np.ndarray:
    """Stacks [steps, env, depth, side, side] of one long episode in which no frame is like another."""
    numbers = np.arange(steps + depth - 1)[:, None] * num_envs + np.arange(num_envs)
    frames = np.zeros((*numbers.shape, SIDE, SIDE), np.uint8)
    frames[..., 0, 0], frames[..., 0, 1] = numbers // 256, numbers % 256
    return np.stack([frames[k : k + steps] for k in range(depth)], axis=2)


@given(n_step=st.integers(1, 5), num_envs=st.integers(1, 3), steps=st.integers(1, 40))
def test_a_row_costs_one_frame_and_a_chunk_the_few_of_its_border(n_step: int, num_envs: int, steps: int) -> None:
    """Per environment: 4 of the first stack, one of each later row, n that the last row looks ahead."""
    first = np.arange(steps * num_envs)
    picks = {"obs": first, "next_obs": first + n_step * num_envs}
    seen = moving(steps + n_step, num_envs)
    columns = observation_columns(seen, picks)
    between = max(n_step - (DEPTH - 1) - steps, 0)  # frames that neither the last row nor what it looks at contains
    assert len(columns[FRAMES]) == num_envs * (DEPTH + steps - 1 + n_step - between)
    np.testing.assert_array_equal(unstacked(columns)["obs"], seen.reshape(-1, *seen.shape[2:])[first])


# --- which observations are images ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shape", "index_shape", "frame_shape"),
    [
        ((4, 84, 84), (4,), (84, 84)),
        ((4, 40, 40, 3), (4,), (40, 40, 3)),
        ((1, 84, 84), (1,), (84, 84)),
        ((96, 96, 3), (), (96, 96, 3)),
        ((84, 84), (), (84, 84)),
        ((4, 16, 16), (), (4, 16, 16)),
    ],
)
def test_stacks_are_taken_apart_and_other_images_stored_whole(
    shape: tuple[int, ...], index_shape: tuple[int, ...], frame_shape: tuple[int, ...]
) -> None:
    seen = np.random.default_rng(0).integers(0, 256, (6, 2, *shape), dtype=np.uint8)
    columns = observation_columns(seen, {"obs": np.arange(8), "next_obs": np.arange(2, 10)})
    assert columns[index_name("obs")].shape == (8, *index_shape)
    assert columns[FRAMES].shape[1:] == frame_shape
    assert columns[FRAMES].size == 10 * np.prod(shape)  # what one row sees next, another sees first
    flat = seen.reshape(12, *shape)
    np.testing.assert_array_equal(unstacked(columns)["obs"], flat[:8])
    np.testing.assert_array_equal(unstacked(columns)["next_obs"], flat[2:10])


@pytest.mark.parametrize(("shape", "dtype"), [((128,), "u1"), ((10, 10, 4), "u1"), ((4, 84, 84), "f4"), ((), "i8")])
def test_everything_else_is_a_plain_column(shape: tuple[int, ...], dtype: str) -> None:
    seen = np.random.default_rng(0).integers(0, 100, (6, 2, *shape)).astype(dtype)
    columns = observation_columns(seen, {"obs": np.array([3, 1]), "segments": np.array([[0, 2], [1, 3]])})
    assert columns.keys() == {"obs", "segments"}
    np.testing.assert_array_equal(columns["obs"], seen.reshape(12, *shape)[[3, 1]])
    np.testing.assert_array_equal(columns["segments"], seen.reshape(12, *shape)[[[0, 2], [1, 3]]])
