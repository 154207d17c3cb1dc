"""Policies are told which actions are legal where they are evaluated, and as plain functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.make import SingleEnv
from remuda.environments.seeding import episode_seed
from remuda.environments.spaces import Array
from remuda.evaluator.evaluate import EvaluationError
from remuda.evaluator.play_policy import evaluate, run_policy
from remuda.policy.files.functions import GetAction
from remuda.policy.files.playable import Playable
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.environments.counting import Counting, CountsAlong
from remuda.tests.environments.masked import Careful, Choosy, legal_in
from remuda.tests.environments.painter import LENGTH, Painter
from remuda.tests.environments.scripted import FunctionPolicy

CAREFUL = Playable(
    source=Path("nowhere"),
    actor=Careful(),
    observation=ObservationSpec((2,), "float32"),
    action=ActionSpec.of(Choosy.action_space),
    train_iter=0,
    env_step=0,
    env=EnvConfig(id="CartPole-v1"),
    source_dir=None,
    seed=0,
    exploration={},
    least_exploration={},
)


@pytest.mark.parametrize("exploration", [None, {}])
def test_an_evaluation_tells_it_for_each_environment(exploration: dict[str, float] | None) -> None:
    """The environments raise where they are told wrong, and the policy compares with what it sees."""
    policy = Careful()
    episodes = evaluate(
        [Choosy() for _ in range(3)], policy, seeds=range(20), rng=np.random.default_rng(0), exploration=exploration
    )
    assert len(episodes) == 20
    assert policy.times_told >= max(episode.length for episode in episodes)


class Stuck(Choosy):
    """Forbids everything after its second step."""

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._time += 1
        mask = np.full(4, self._time < 2, np.int8)
        return np.array([15, self._time], np.float32), 0.0, False, False, {"action_mask": mask}

    def reset(self, **how: Any) -> tuple[Array, dict[str, Any]]:
        self._time = 0
        return np.array([15, 0], np.float32), {}


def test_an_environment_that_forbids_everything_is_named_with_the_step() -> None:
    said = r"environment 0 has no legal action .* and its episode goes on, after step 2 of the episode with seed 7"
    with pytest.raises(EvaluationError, match=said):
        evaluate([Stuck()], Careful(), seeds=[7], rng=np.random.default_rng(0))


def test_a_function_is_told_by_an_argument() -> None:
    get_action = GetAction(CAREFUL)
    assert get_action.uses_legal_actions
    env = Choosy()
    observation, info = env.reset(seed=4)
    over = False
    while not over:
        action = get_action(observation, legal_actions=info.get("action_mask"))
        assert isinstance(action, int)
        observation, _, over, _, info = env.step(action)
    with pytest.raises(ValueError, match="legal_actions has no legal action"):
        get_action(observation, legal_actions=info["action_mask"])
    assert len(run_policy(Choosy(), get_action, episodes=10, say=lambda text: None)) == 10


def test_a_function_of_an_algorithm_that_does_not_use_it_may_be_told_all_the_same() -> None:
    get_action = GetAction(replace(CAREFUL, actor=FunctionPolicy()))
    assert not get_action.uses_legal_actions
    seen: Array = np.array([1.0, 0.5], np.float32)
    assert get_action(seen, legal_actions=legal_in(seen[None])[0]) == get_action(seen) == 1


def counting(length: int) -> SingleEnv:
    return Counting(length, terminates=True)


def test_every_episode_has_its_own() -> None:
    """The policy itself checks what it is given, while some environments have ended and others go on."""
    played = evaluate(
        [counting(length) for length in (2, 3, 5)], CountsAlong(), seeds=range(8), rng=np.random.default_rng(0)
    )
    assert len(played) == 8


def test_a_function_remembers_until_an_episode_begins() -> None:
    get_action = GetAction(replace(CAREFUL, actor=CountsAlong(), exploration={}))
    for steps in (3, 1, 2):
        get_action.begin_episode()
        for step in range(steps):
            assert get_action(np.array([step], np.float32)) == 0
    assert len(run_policy(counting(3), get_action, episodes=4, say=lambda text: None)) == 4


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


def test_actions_of_a_box_are_given_as_they_are() -> None:
    env, push = gymnasium.make("Pendulum-v1"), np.array([0.5], np.float32)
    (episode,) = run_policy(env, lambda seen: push, episodes=1, max_episode_steps=5, say=silently)
    assert episode.length == 5


class Broken(Painter):
    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        return np.zeros(1, np.float32), float("nan"), False, False, {}


def test_a_reward_that_is_no_number_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="not finite"):
        run_policy(Broken(), lambda seen: 0, episodes=1, say=silently)
