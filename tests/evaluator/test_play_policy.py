"""Playing a plain function: the episodes of `remuda evaluate`, told and returned."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from remuda.environments.seeding import episode_seed
from remuda.evaluator.evaluate import EvaluationError
from remuda.evaluator.play_policy import run_policy
from remuda.tests.environments.painter import LENGTH, Painter


def silently(text: str) -> None:
    """Nobody listens."""


def test_every_episode_and_the_summary_are_said_and_returned() -> None:
    said: list[str] = []
    asked: list[object] = []

    def get_action(observation: object) -> int:
        asked.append(observation)
        return 1

    episodes = run_policy(Painter(), get_action, episodes=3, seed=5, say=said.append)
    assert [(one.return_, one.length) for one in episodes] == [(LENGTH, LENGTH)] * 3
    assert [one.seed for one in episodes] == [episode_seed(5, number) for number in range(3)]
    assert len(asked) == 3 * LENGTH
    assert isinstance(asked[0], np.ndarray)
    assert said[0] == "[EVALUATOR] env 0 finished episode, final reward: 10.0000, current episode: 1"
    assert len(said) == 4
    assert "| reward_mean " in said[3]


def test_the_same_seed_plays_the_same_episodes() -> None:
    env = gymnasium.make("CartPole-v1")
    one, two, other = (
        [episode.return_ for episode in run_policy(env, lambda seen: 1, episodes=4, seed=seed, say=silently)]
        for seed in (0, 0, 1)
    )
    assert one == two
    assert one != other


def test_episodes_can_be_cut_short() -> None:
    (episode,) = run_policy(Painter(), lambda seen: 0, episodes=1, max_episode_steps=4, say=silently)
    assert episode.length == 4


def test_actions_of_a_box_are_given_as_they_are() -> None:
    env = gymnasium.make("Pendulum-v1", max_episode_steps=5)
    (episode,) = run_policy(env, lambda seen: np.array([0.5], np.float32), episodes=1, say=silently)
    assert episode.length == 5


class Broken(Painter):
    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        return np.zeros(1, np.float32), float("nan"), False, False, {}


def test_a_reward_that_is_no_number_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="not finite"):
        run_policy(Broken(), lambda seen: 0, episodes=1, say=silently)
