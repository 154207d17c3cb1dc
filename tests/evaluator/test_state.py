"""What a policy carries through an episode, where episodes are played one after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from remuda.environments.make import SingleEnv
from remuda.evaluator.evaluate import evaluate
from remuda.evaluator.play_policy import run_policy
from remuda.policy.files.functions import GetAction, function_of
from remuda.tests.environments.counting import Counting, CountsAlong
from remuda.tests.evaluator.test_legal_actions import CAREFUL

PLAYABLE = replace(CAREFUL, actor=CountsAlong(), exploration={})


def counting(length: int) -> SingleEnv:
    return Counting(length, terminates=True)


def test_every_episode_has_its_own() -> None:
    """The policy itself checks what it is given, while some environments have ended and others go on."""
    played = evaluate(
        [counting(length) for length in (2, 3, 5)], CountsAlong(), seeds=range(8), rng=np.random.default_rng(0)
    )
    assert len(played) == 8


def test_a_function_remembers_until_an_episode_begins() -> None:
    get_action: GetAction = function_of(PLAYABLE)
    for steps in (3, 1, 2):
        get_action.begin_episode()
        for step in range(steps):
            assert get_action(np.array([step], np.float32)) == 0


def test_playing_a_function_tells_it_when_an_episode_begins() -> None:
    assert len(run_policy(counting(3), function_of(PLAYABLE), episodes=4, say=lambda text: None)) == 4


def test_a_function_that_remembers_nothing_is_told_nothing() -> None:
    assert len(run_policy(counting(3), lambda seen: 0, episodes=2, say=lambda text: None)) == 2
