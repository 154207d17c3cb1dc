"""A policy that wants to know which actions are legal is told so for each step; others are asked as ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from remuda.collector.collected import CorruptExperienceError
from remuda.collector.rows import NStepRows, Rows, SegmentRows, SequenceRows
from remuda.environments.spaces import Array
from remuda.environments.vectors import Vector
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.environments.masked import ACTIONS, FIRST, Careful, Choosy, legal_in


class CarefulUntilTold(Careful):
    """Chooses what is illegal while it `fails`."""

    fails = False

    def act(self, observations: Array, *arguments: Any, **options: Any) -> Array:
        chosen = super().act(observations, *arguments, **options)
        return (observations[:, -1] * 8).astype(np.int64) % 3 if self.fails else chosen


def rollout_in(vector: Vector, policy: Any, rows: Rows | None = None) -> OneRollout:
    rows = rows or NStepRows(n_step=2, discount=0.9)
    return OneRollout(vector, policy, rows=rows, rng=np.random.default_rng(3), seeds=list(range(vector.num_envs)))


ROWS: dict[str, Rows] = {
    "steps": NStepRows(n_step=3, discount=0.9),
    "segments": SegmentRows(discount=0.9),
    "sequences": SequenceRows(slots=5, period_slots=2, discount=0.9),
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_hold_what_was_legal_in_each_of_their_observations(kind: str) -> None:
    """Over chunks, resets and a chunk that failed. All are where nothing is: there no action is used."""
    policy = CarefulUntilTold()
    rollout = rollout_in(SyncVectorEnv([Choosy] * 3), policy, ROWS[kind])
    chunks = [rollout.collect(steps, {}).columns for steps in (9, 30, 60)]
    policy.fails = True
    with pytest.raises(ValueError, match="is illegal"):
        rollout.collect(500, {})
    policy.fails = False
    chunks += [rollout.flush().columns, rollout.collect(60, {}).columns]
    pairs = {"legal": "obs", "next_legal": "next_obs"} if kind == "steps" else {"legal": "obs"}
    for columns in chunks:
        assert {name for name in columns if "legal" in name} == set(pairs)
        for name, of in pairs.items():
            seen = columns[of]
            expected = legal_in(seen.reshape(-1, 2)).reshape(*seen.shape[:-1], ACTIONS)
            if kind == "segments" and columns is chunks[0]:
                expected[:, 0] = True  # each environment's first segment begins before its first reset
            assert columns[name].dtype == np.bool_
            np.testing.assert_array_equal(columns[name], expected)
    assert not all(columns["legal"].all() for columns in chunks)


class Scripted(Choosy):
    """Says what it is given of reset and steps."""

    def __init__(self, *said: dict[str, Any]) -> None:
        self._said = said

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self._time = 0
        return np.zeros(2, np.float32), self._said[0]

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._time += 1
        return np.zeros(2, np.float32), 0.0, self._time == len(self._said) - 1, False, self._said[self._time]


ALL, NONE = {"action_mask": np.ones(4, np.int8)}, {"action_mask": np.zeros(4, np.int8)}


class Unasked(Careful):
    """Chooses the first action there is."""

    def act(self, observations: Array, *args: Any, legal: Array | None = None, **others: Any) -> Array:
        return np.full(len(observations), FIRST) if legal is None else FIRST + legal.argmax(axis=1)


def test_an_environment_that_forbids_everything_is_named_with_the_step() -> None:
    fine, stuck = Scripted(ALL, ALL, ALL, ALL, NONE), Scripted(ALL, ALL, ALL, NONE, ALL)
    rollout = rollout_in(SyncVectorEnv([lambda: fine, lambda: stuck]), Unasked())
    rollout.collect(4, {})  # two steps of each, after the reset
    said = r"environment 1 has no legal action in an episode that goes on \(info\['action_mask'\]\) at step 3 of"
    with pytest.raises(CorruptExperienceError, match=said):
        rollout.collect(2, {})


def test_an_environment_that_masks_for_the_first_time_after_its_reset_is_named() -> None:
    """Rows could not say it of what came before, and those of other collectors may have no such column."""
    late = Scripted({}, {}, {"action_mask": [1, 0, 1, 1]}, {})
    rollout = rollout_in(SyncVectorEnv([lambda: Scripted({}, {}, {}, {}), lambda: late]), Unasked())
    with pytest.raises(CorruptExperienceError, match=r"environment 1 says which actions are legal .* at step 2 of"):
        rollout.collect(20, {})


def test_nothing_is_said_by_a_late_mask_that_forbids_nothing_or_by_that_of_an_episode_that_is_over() -> None:
    assert (
        "legal"
        not in rollout_in(SyncVectorEnv([lambda: Scripted({}, ALL, ALL)] * 2), Unasked()).collect(20, {}).columns
    )
    columns = rollout_in(SyncVectorEnv([lambda: Scripted(ALL, NONE)] * 2), Unasked()).collect(20, {}).columns
    assert columns["next_legal"].all()
