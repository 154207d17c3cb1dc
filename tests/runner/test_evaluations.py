"""Evaluations of several policies together: against which older checkpoints they are judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.environments.spaces import Array
from remuda.policy.base import Policy
from remuda.policy.opponent_pool import Opponent
from remuda.runner.building import build
from remuda.runner.evaluations import JointEvaluations
from remuda.tests.policy.algorithms.untaught import Untaught
from remuda.tests.runner.several import several_config

ONE, TWO = {"one": {"agents": ["a0"]}, "two": {"agents": ["a1", "a2"]}}, {"one": {"agents": ["a0", "a1", "a2"]}}


class Asked(Untaught):
    """Takes action 0, and knows whether it was asked to act."""

    def __init__(self) -> None:
        self.acted = False

    def act(self, observations: Array, exploration: Any, rng: Any, **options: Any) -> Array:
        self.acted = True
        return np.zeros(len(observations), np.int64)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def joint_of(folder: Path, stack: ExitStack, policies: dict[str, Any], train_iters: dict[str, int]) -> Joint:
    config = several_config(folder, "self_play.share=1.0", "self_play.keep=2", policies=policies)
    joint = build(config, stack).joint
    joint.train_iters = lambda: list(train_iters.values())
    return Joint(joint, list(policies))


@dataclass
class Joint:
    evaluations: JointEvaluations
    names: list[str]

    def remember(self, name: str, train_iter: int, policy: Policy) -> None:
        assert self.evaluations.pool is not None
        self.evaluations.pool.add(self.names.index(name), Opponent(policy, train_iter=train_iter))


def against_past(joint: Joint, name: str, episodes: int = 4) -> list[float]:
    played = joint.evaluations.play(
        joint.names.index(name), range(episodes), lambda env_steps: None, lambda episode, count: None
    )
    return [one.info["against_past"] for one in played.episodes if "against_past" in one.info]


@pytest.mark.parametrize("policies", [ONE, TWO])
def test_a_checkpoint_is_not_judged_against_itself(tmp_path: Path, stack: ExitStack, policies: dict[str, Any]) -> None:
    """The checkpoint that is judged was saved before it is evaluated."""
    present = dict.fromkeys(policies, 0)
    joint = joint_of(tmp_path, stack, policies, present)
    saved = {train_iter: [Asked() for _ in policies] for train_iter in (0, 10, 20, 30)}

    def save(train_iter: int) -> None:
        for name, policy in zip(policies, saved[train_iter], strict=True):
            present[name] = train_iter
            joint.remember(name, train_iter, policy)
        for policy in chain.from_iterable(saved.values()):
            policy.acted = False

    save(0)
    assert all(against_past(joint, name) == [] for name in policies), "there is none that is older"
    assert not any(policy.acted for policy in saved[0])
    for train_iter in (10, 20, 30):
        save(train_iter)
        assert all(len(against_past(joint, name)) == 4 for name in policies)
    acted = {train_iter: all(policy.acted for policy in at) for train_iter, at in saved.items()}
    assert acted == {0: False, 10: True, 20: True, 30: False}, "the two newest that are older"


def test_nothing_is_said_where_no_opponent_is_an_older_one(tmp_path: Path, stack: ExitStack) -> None:
    """`one` has learned, `two` has not: the only agent of `one` has no older opponent."""
    joint = joint_of(tmp_path, stack, ONE, {"one": 10, "two": 0})
    for name, train_iter in (("one", 0), ("two", 0), ("one", 10)):
        joint.remember(name, train_iter, Asked())
    assert against_past(joint, "one") == []
    assert len(against_past(joint, "two")) == 4
