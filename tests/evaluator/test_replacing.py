"""A broken episode is never a return: it is played again, from its start."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from remuda.environments.errors import RestartLimit
from remuda.environments.make import SingleEnv
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.seeding import replacement_seed
from remuda.environments.spaces import Array
from remuda.evaluator.evaluate import Episode
from remuda.evaluator.play_policy import evaluate
from remuda.tests.environments.counting import Counting, CountsAlong, LosesCount
from remuda.tests.environments.scripted import FunctionPolicy, ScriptedEnv

SEEDS = [5, 6, 7, 8, 9]


def play(build: Callable[[], SingleEnv], num_envs: int, *, per_hour: int = 20, **options: Any) -> list[Episode]:
    limit = RestartLimit(per_hour, lambda text: None)
    envs: list[Any] = [ReplaceableEnv(build, index=index, name="it", broke=limit) for index in range(num_envs)]
    return evaluate(envs, options.pop("policy", FunctionPolicy()), seeds=SEEDS, rng=np.random.default_rng(0), **options)


def results(episodes: list[Episode]) -> list[tuple[int, float, int]]:
    return [(episode.seed, episode.return_, episode.length) for episode in episodes]


@pytest.mark.parametrize(("num_envs", "bad_reward"), [(1, math.nan), (3, None)])
def test_one_that_breaks_once_gives_the_results_of_one_that_does_not(num_envs: int, bad_reward: float | None) -> None:
    built: list[ScriptedEnv] = []

    def build() -> SingleEnv:
        env = ScriptedEnv(0, longest=30)
        if not built:
            env.fails_in, env.bad_reward = 3, bad_reward
        built.append(env)
        return env

    heard: list[int] = []
    episodes = play(build, num_envs, discount=0.9, finished=lambda episode, count: heard.append(count))
    assert len(built) == num_envs + 1
    assert heard == [1, 2, 3, 4, 5]
    expected = play(partial(ScriptedEnv, 0, longest=30), num_envs, discount=0.9)
    assert results(episodes) == results(expected)
    assert [episode.info for episode in episodes] == [episode.info for episode in expected]


class Picky(ScriptedEnv):
    """Breaks in an episode with seed 7, in its second step or at its reset."""

    def __init__(self, *, at_reset: bool) -> None:
        super().__init__(0, longest=30)
        self.at_reset = at_reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self.bad = seed == 7
        if self.bad and self.at_reset:
            raise RuntimeError("not this one")
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self.bad and self.step_number == 1:
            raise RuntimeError("not this one")
        return super().step(action)


@pytest.mark.parametrize("at_reset", [False, True])
def test_an_episode_that_breaks_twice_is_played_with_another_seed(at_reset: bool) -> None:
    episodes = play(partial(Picky, at_reset=at_reset), 2)
    assert [episode.seed for episode in episodes] == [5, 6, replacement_seed(7), 8, 9]
    expected = play(partial(ScriptedEnv, 0, longest=30), 2)
    assert [results(episodes)[position] for position in (0, 1, 3, 4)] == [
        results(expected)[position] for position in (0, 1, 3, 4)
    ]


def test_a_policy_that_carries_a_state_begins_again_with_0() -> None:
    left: list[SingleEnv] = [LosesCount(5, terminates=True), Counting(5, terminates=True)]
    episodes = play(lambda: left.pop(0), 1, policy=CountsAlong())
    assert [(episode.return_, episode.length) for episode in episodes] == [(15.0, 5)] * 5
