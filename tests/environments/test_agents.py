"""Copies of an environment with several agents step together: who acts, what each saw, and when an episode is over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.copies import LocalCopies, agents_of, make_copies
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.lanes import Group, Lanes
from remuda.environments.make import make_parallel
from remuda.environments.spaces import Array, Space
from remuda.tests.environments.leaving import Leaving


def vector_of(envs: Sequence[Leaving], *groups: Sequence[str], max_episode_steps: int | None = None) -> LocalCopies:
    return LocalCopies(envs, [Group.of(envs[0], agents) for agents in groups], max_episode_steps=max_episode_steps)


def acting(vector: LocalCopies, action: int = 1) -> list[Array]:
    return [np.full(len(lanes), action, np.int64) for lanes in vector.lanes]


def test_lanes_are_the_agents_of_each_copy_in_turn() -> None:
    envs = [Leaving([3, 2, 3]), Leaving([3, 2, 3])]
    vector = vector_of(envs, ["a0", "a2"], ["a1"])
    vector.reset([7, 8])
    assert [env.seeds for env in envs] == [[7], [8]]
    first, second = vector.lanes
    np.testing.assert_array_equal(first.observations[:, 0], [0, 2, 0, 2])
    np.testing.assert_array_equal(second.observations[:, 0], [1, 1])
    assert vector.begun.all()
    assert vector.step([np.array([0, 1, 2, 0]), np.array([1, 2])]) == 2
    assert [done.action for done in envs[0].log] == [0, 1, 1], "a0, a1, a2"
    assert [done.action for done in envs[1].log] == [2, 2, 0]
    np.testing.assert_array_equal(first.reward, [1, 201, 1, 201])
    np.testing.assert_array_equal(second.reward, [101, 101])


def test_an_agent_that_left_stands_still_until_the_reset() -> None:
    """a0 leaves after one step (terminated), a1 after three (truncated); then comes a reset, in which nobody acts."""
    (env,) = envs = [Leaving([1, 3])]
    vector = vector_of(envs, ["a0"], ["a1"])
    vector.reset([0])
    short, long = vector.lanes
    seen: list[tuple[Any, ...]] = []
    steps: list[int] = []
    for _ in range(5):
        steps.append(vector.step(acting(vector)))
        told = (short.reward, short.terminated, short.truncated, ~short.over)
        seen.append((*(float(array[0]) for array in told), float(long.reward[0]), bool(long.truncated[0])))
    assert steps == [1, 1, 1, 0, 1]
    assert seen == [
        (1.0, 1.0, 0.0, 0.0, 101.0, False),
        (0.0, 0.0, 0.0, 0.0, 102.0, False),
        (0.0, 0.0, 0.0, 0.0, 103.0, True),
        (0.0, 0.0, 0.0, 1.0, 0.0, False),
        (1.0, 1.0, 0.0, 0.0, 101.0, False),
    ]
    assert env.seeds == [0, None], "the random stream goes on"
    np.testing.assert_array_equal(short.observations[0], [0, 1, 1])


def test_an_agent_may_come_late() -> None:
    vector = vector_of([Leaving([3, 4], late=2)], ["a0"], ["a1"])
    vector.reset([0])
    late = vector.lanes[1]
    there: list[bool] = []
    for _ in range(4):
        there.append(bool(not late.over[0]))
        vector.step(acting(vector))
    assert there == [False, False, True, True]
    assert vector.over(0)


@pytest.mark.parametrize(
    ("space", "absent"),
    [
        (gymnasium.spaces.Discrete(4), 0),
        (gymnasium.spaces.Discrete(4, start=1), 1),
        (gymnasium.spaces.Discrete(4, start=-9), -6),
        (gymnasium.spaces.MultiDiscrete([2, 3], start=[5, -1]), [5, 0]),
        (gymnasium.spaces.Box(np.array([-1.0, 2.0, -3.0]), np.array([1.0, 4.0, -2.0]), dtype=np.float64), [0, 2, -2]),
        (gymnasium.spaces.MultiBinary(2), [0, 0]),
    ],
)
def test_an_agent_that_is_not_there_sees_what_its_space_has(space: Space, absent: object) -> None:
    """Networks read it, and one that counts from 1 has no 0."""

    class Spaced(Leaving):
        def observation_space(self, agent: str) -> Space:
            return space

    group = Group.of(Spaced([1, 1]), ["a0", "a1"])
    assert group.absent in space
    for seen in Lanes.empty(group, 2).observations:
        np.testing.assert_array_equal(seen, absent)


def test_episodes_are_cut_for_all_agents() -> None:
    vector = vector_of([Leaving([9, 2])], ["a0", "a1"], max_episode_steps=3)
    vector.reset([0])
    for _ in range(3):
        vector.step(acting(vector))
    (lanes,) = vector.lanes
    np.testing.assert_array_equal(lanes.truncated, [True, False])
    np.testing.assert_array_equal(lanes.terminated, [False, False])
    assert vector.over(0)


class Uneven(Leaving):
    def action_space(self, agent: str) -> Space:
        return gymnasium.spaces.Discrete(3 + int(agent[1:]))


def test_agents_of_one_policy_need_the_same_spaces() -> None:
    env = Uneven([1, 1])
    with pytest.raises(EnvironmentBuildError, match=r"policies.all .* a0 has Discrete\(3\), a1 has Discrete\(4\)"):
        Group.of(env, ["a0", "a1"], policy="all")
    Group.of(env, ["a1"])


def module(folder: Path, text: str) -> EnvConfig:
    (folder / "several_of_mine.py").write_text(text)
    return EnvConfig(kind="pettingzoo", make="several_of_mine:make", kwargs={"lengths": [1, 2]})


OWN = """
from remuda.tests.environments.leaving import Leaving as Own

def make(lengths):
    return Own(lengths)
"""


def test_an_environment_of_the_users_own_is_built_and_closed(tmp_path: Path) -> None:
    env = module(tmp_path, OWN)
    assert agents_of(env, source_dir=str(tmp_path)) == ("a0", "a1")
    vector = make_copies(env, {"": ("a0", "a1")}, num_envs=2, source_dir=str(tmp_path), broke=print)
    vector.reset([0, 1])
    vector.close()
    assert vector.num_envs == 2


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (EnvConfig(kind="pettingzoo", id="no_such_package.game_v0"), "install the package no_such_package"),
        (EnvConfig(kind="pettingzoo", id="pettingzoo_missing"), "cannot be imported"),
        (EnvConfig(kind="pettingzoo", id="xml.dom.minidom_v5"), r"did you mean xml\.dom\.minidom\?"),
        (EnvConfig(kind="pettingzoo", id="xml.zzz"), "install the package xml"),
        (EnvConfig(kind="pettingzoo", id="json"), "has no parallel_env"),
        (EnvConfig(kind="pettingzoo", make="collections:OrderedDict"), "is not a pettingzoo.ParallelEnv"),
    ],
)
def test_what_is_no_environment_is_refused(env: EnvConfig, message: str) -> None:
    with pytest.raises(EnvironmentBuildError, match=message):
        make_parallel(env, source_dir=None)
