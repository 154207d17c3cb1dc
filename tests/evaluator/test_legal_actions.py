"""Policies are told which actions are legal where they are evaluated, and as plain functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.spaces import Array
from remuda.evaluator.evaluate import EvaluationError, evaluate
from remuda.evaluator.play_policy import run_policy
from remuda.policy.files.functions import GetAction, function_of
from remuda.policy.files.playable import Playable
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.environments.masked import Careful, Choosy, legal_in
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
        [Choosy() for _ in range(3)],
        policy,
        seeds=range(20),
        rng=np.random.default_rng(0),
        exploration=exploration,
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
    said = r"environment 0 has no legal action .* after step 2 of the episode with seed 7, which goes on"
    with pytest.raises(EvaluationError, match=said):
        evaluate([Stuck()], Careful(), seeds=[7], rng=np.random.default_rng(0))


def test_a_function_is_told_by_an_argument() -> None:
    get_action = function_of(CAREFUL)
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


def test_playing_a_function_tells_it() -> None:
    assert len(run_policy(Choosy(), function_of(CAREFUL), episodes=10, say=lambda text: None)) == 10


def test_a_function_of_an_algorithm_that_does_not_use_it_may_be_told_all_the_same() -> None:
    get_action: GetAction = function_of(replace(CAREFUL, actor=FunctionPolicy()))
    assert not get_action.uses_legal_actions
    seen: Array = np.array([1.0, 0.5], np.float32)
    assert get_action(seen, legal_actions=legal_in(seen[None])[0]) == get_action(seen) == 1
