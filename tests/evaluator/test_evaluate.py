"""An evaluation plays one episode per seed, the same one whoever shares the work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.environments.make import SingleEnv
from remuda.evaluator.evaluate import Episode, EvaluationError
from remuda.evaluator.play_policy import evaluate
from remuda.tests.environments.scripted import FunctionPolicy, ScriptedEnv


def play(num_envs: int, seeds: list[int], **options: Any) -> list[Episode]:
    envs: list[SingleEnv] = [ScriptedEnv(0, longest=30) for _ in range(num_envs)]
    return evaluate(envs, options.pop("policy", FunctionPolicy()), seeds=seeds, rng=np.random.default_rng(0), **options)


@settings(max_examples=50, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 2**31 - 1), max_size=12),
    others=st.lists(st.integers(1, 15), min_size=1, max_size=3),
    longest=st.none() | st.integers(1, 20),
)
def test_results_depend_on_the_seed_alone(seeds: list[int], others: list[int], longest: int | None) -> None:
    alone = play(1, seeds, max_episode_steps=longest)
    assert [episode.seed for episode in alone] == seeds
    for num_envs in others:
        shared = play(num_envs, seeds, max_episode_steps=longest)
        assert [(e.seed, e.return_, e.length) for e in shared] == [(e.seed, e.return_, e.length) for e in alone]
        assert all(episode.env_index < num_envs for episode in shared)


def test_each_episode_is_what_the_environment_alone_would_give() -> None:
    policy = FunctionPolicy()
    for episode in play(3, [5, 6, 7, 8, 9], discount=0.9):
        env = ScriptedEnv(0, longest=30)
        obs, _ = env.reset(seed=episode.seed)
        total, discounted, length, done = 0.0, 0.0, 0, False
        while not done:
            batch = obs[None].astype(np.float32)
            action = policy.act(batch, {}, np.random.default_rng(), deterministic=True)[0]
            obs, reward, terminated, truncated, _ = env.step(action)
            discounted += 0.9**length * reward
            total, length, done = total + reward, length + 1, terminated or truncated
        assert (episode.return_, episode.length) == (total, length)
        assert episode.info == {"discounted_return": pytest.approx(discounted)}


def test_free_environments_go_on_with_the_next_seed() -> None:
    policy = FunctionPolicy()
    episodes = play(4, list(range(20)), policy=policy)
    steps = sum(episode.length for episode in episodes)
    assert sum(policy.batch_sizes) == steps  # no step is wasted
    busy = policy.batch_sizes[: -max(episode.length for episode in episodes)]
    assert set(busy) == {4}  # until seeds run out, all four play


def test_progress_and_finished_are_heard() -> None:
    steps: list[int] = []
    heard: list[tuple[Episode, int]] = []

    def finished(episode: Episode, count: int) -> None:
        heard.append((episode, count))

    episodes = play(3, [1, 2, 3, 4], progress=steps.append, finished=finished)
    assert [dict(episode.info) for episode in episodes] == [{}] * 4, "without a discount no discounted return"
    assert sum(steps) == sum(episode.length for episode in episodes)
    assert [count for _, count in heard] == [1, 2, 3, 4]
    assert sorted(heard[i][0].seed for i in range(4)) == [1, 2, 3, 4]


def test_a_reward_that_is_not_finite_names_environment_and_seed() -> None:
    envs = [ScriptedEnv(0, longest=30) for _ in range(2)]
    envs[1].fails_in, envs[1].bad_reward = 1, math.nan
    with pytest.raises(EvaluationError, match=r"environment 1 .* at step 1 of the episode with seed 8"):
        evaluate(envs, FunctionPolicy(), seeds=[7, 8], rng=np.random.default_rng(0))
