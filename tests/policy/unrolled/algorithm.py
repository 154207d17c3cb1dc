"""An algorithm that learns nothing and checks that every row equals what happened in the environment."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import remuda
from remuda.environments.spaces import Array
from remuda.tests.policy.unrolled.trails import (
    ACTIONS,
    FIRST_ACTION,
    HALF,
    legal_at,
    length_of,
    numbers_in,
    reward_of,
    terminates,
)


def echo_of(numbers: Array) -> Array:
    """Columns that the policy records for an observation, int64 […, 2]: never 0."""
    return np.stack([1 + numbers[..., 0] + numbers[..., 2], 1 + numbers[..., 1]], axis=-1)


def checked(batch: Mapping[str, Array], *, unroll_steps: int, n_step: int) -> dict[str, Array]:
    """Check each row against the environment; raises AssertionError. Returns for each row `terminated`, `truncated` and
    `cut`, each bool [B], and its first `step`, int64 [B, 3]: key, number and action.

    Windows end with their episode, after W steps, or at the end of collected steps (cut).
    """
    window = unroll_steps + n_step
    offsets, steps = np.arange(window + 1), batch["steps"]
    rows = len(steps)
    held = offsets[:-1] < steps[:, None]  # [B, W]
    numbers = numbers_in(batch["obs"])
    assert numbers.shape == (rows, window + 1, 4)
    key = numbers[:, 0, 0] * HALF + numbers[:, 0, 1]
    first = numbers[:, 0, 2]
    assert (numbers[:, :, :2] == numbers[:, :1, :2]).all(), "another episode's observation"
    assert (numbers[:, :, 2] == first[:, None] + np.minimum(offsets, steps[:, None])).all(), "another step's"
    last = np.take_along_axis(batch["obs"], steps.reshape(-1, 1, *[1] * (batch["obs"].ndim - 2)).astype(int), axis=1)
    assert (batch["obs"] == np.where(held_after(held, batch["obs"]), batch["obs"], last)).all(), "not the last again"
    if batch["obs"].dtype == np.uint8:
        check_frames(batch["obs"], numbers, steps)

    acted = numbers[:, 1:, 3]  # each observation tells the action that led there
    action = batch["action"]
    assert (action.shape, action.dtype.name) == ((rows, unroll_steps), "int64")
    assert (action == np.where(held, acted, 0)[:, :unroll_steps]).all(), "another action"
    brought = reward_of(key[:, None], first[:, None] + offsets[:-1], acted)
    assert (batch["reward"].shape, batch["reward"].dtype.name) == ((rows, window), "float32")
    assert (batch["reward"] == np.where(held, brought, 0.0)).all(), "another reward"

    assert (steps.dtype.name, batch["terminated"].dtype.name) == ("int32", "bool")
    assert ((steps >= 1) & (steps <= window)).all()
    length = length_of(key)
    ended = first + steps == length
    assert (first + steps <= length).all(), "more steps than the episode has"
    assert (batch["terminated"] == (ended & terminates(key))).all(), "another ending"

    recorded = held[:, : unroll_steps + 1]
    echo = np.where(recorded[..., None], echo_of(numbers[:, : unroll_steps + 1]), 0)
    assert batch["echo"].dtype == np.int64
    assert (batch["echo"] == echo).all(), "another step's record"
    legal = legal_at(key[:, None], first[:, None] + offsets[: unroll_steps + 1])
    assert (batch["legal"] == (legal & recorded[..., None])).all(), "what was legal in another state"
    acting = batch["acted_after"]
    assert ((acting > 0) == recorded).all(), "a record of no step, or none of one"
    newer = np.where(recorded, acting, acting.max(axis=1, keepdims=True))
    assert (np.diff(newer, axis=1) >= 0).all(), "an older policy acted later"
    return {
        "terminated": batch["terminated"],
        "truncated": ended & ~batch["terminated"],
        "cut": ~ended & (steps < window),
        "step": np.stack([key, first, acted[:, 0]], axis=1),
    }


def held_after(held: Array, observations: Array) -> Array:
    """True for observations [B, W + 1, …] of the episode: the first, and one after each step."""
    there = np.concatenate([np.ones((len(held), 1), np.bool_), held], axis=1)
    return there.reshape(*there.shape, *[1] * (observations.ndim - 2))


def check_frames(observations: Array, numbers: Array, steps: Array) -> None:
    """Each stack is the previous frame and its own, byte by byte; an episode begins with a black frame."""
    plain = observations.copy()
    plain[..., 0, :16] = 0
    assert not plain.any(), "a frame of something else"
    before = np.ascontiguousarray(observations[..., 0, 0, :16]).view("<u4")
    assert not before[:, 0][numbers[:, 0, 2] == 0].any(), "the first frame before an episode"
    follows = np.arange(1, observations.shape[1]) <= steps[:, None]
    assert (before[:, 1:] == numbers[:, :-1])[follows].all(), "another frame before"


class Acting(remuda.Policy):
    """Draws legal actions, or takes the last legal one in evaluation."""

    uses_legal_actions = True
    updates = 0

    def load_state(self, state: Mapping[str, Array]) -> None:
        self.updates = int(state["updates"][0])

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
        assert legal is not None, "this environment always says it"
        preference = np.arange(ACTIONS) if deterministic else rng.random(legal.shape)
        chosen: Array = np.where(legal, 1 + preference, 0).argmax(axis=1)
        return chosen + FIRST_ACTION

    def value(self, observations: Array, *, state: Array | None = None) -> Array:
        return np.zeros(len(observations), np.float32)

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"echo": ((2,), "int64"), "acted_after": ((), "int64"), "legal": ((ACTIONS,), "bool")}

    def act_recording(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> tuple[Array, Mapping[str, Array]]:
        assert legal is not None, "this environment always says it"
        actions = self.act(observations, exploration, rng, deterministic=False, legal=legal)
        acted_after = np.full(len(observations), 1 + self.updates)
        return actions, {"echo": echo_of(numbers_in(observations)), "acted_after": acted_after, "legal": legal}
