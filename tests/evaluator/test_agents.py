"""Evaluations of several agents: what each episode says, and who plays in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.environments.assignment import configs_of_policies
from remuda.environments.copies import LocalCopies
from remuda.environments.lanes import Group
from remuda.environments.replaceable import ReplaceableEnv
from remuda.environments.spaces import Array
from remuda.evaluator.evaluate import Game, Player, play
from remuda.evaluator.player import EpisodePlayer
from remuda.tests.environments.leaving import Leaving
from remuda.tests.policy.algorithms.untaught import Still, Untaught
from remuda.tests.runner.several import several_config


def test_discounted_returns_count_the_steps_that_an_agent_took() -> None:
    """a1 comes after 2 of 4 steps: its rewards are 103 and 104, those of a0 are 1 and 2."""
    envs = [Leaving([2, 4], late=2), Leaving([2, 4], late=2)]
    names = tuple(envs[0].possible_agents)
    vector, player = LocalCopies(envs, [Group.of(envs[0], names)]), Player(Still())
    episodes = play(
        vector,
        lambda position: dict.fromkeys(names, player),
        seeds=[5, 6, 7],
        rng=np.random.default_rng(0),
        discounts={"a0": 0.5, "a1": 0.1},
    )
    for episode in episodes:
        assert episode.returns == {"a0": 3.0, "a1": 207.0}
        assert episode.discounted == pytest.approx({"a0": 1.0 + 0.5 * 2.0, "a1": 103.0 + 0.1 * 104.0})
        assert episode.length == 4


def test_an_episode_whose_environment_broke_is_played_again_with_its_seed() -> None:
    """And with another if that broke it, too."""
    made: list[Leaving] = []

    def build() -> Leaving:
        made.append(Leaving([2, 4], fails_at={0: 6, 1: 3}.get(len(made))))
        return made[-1]

    copy: Any = ReplaceableEnv(build, index=0, name="x", broke=lambda fault: None)
    names, player = tuple(copy.possible_agents), Player(Still())
    episodes = play(
        LocalCopies([copy], [Group.of(copy, names)]),
        lambda position: dict.fromkeys(names, player),
        seeds=[5, 6],
        rng=np.random.default_rng(0),
        discounts=dict.fromkeys(names, 1.0),
    )
    assert [episode.returns for episode in episodes] == [{"a0": 3.0, "a1": 410.0}] * 2
    assert [episode.length for episode in episodes] == [4, 4]
    assert made[0].seeds == [5, 6]
    assert made[1].seeds[1:] == [6], "after a reset with a seed of its own"
    assert made[2].seeds[1:] == [episodes[1].seed] != [6]


class Noting(Untaught):
    """Takes action 0, and notes for which agents it was asked."""

    def __init__(self) -> None:
        self.agents: set[int] = set()

    def act(self, observations: Array, exploration: Any, rng: Any, **options: Any) -> Array:
        self.agents |= set(observations[:, 0].astype(int).tolist())
        return np.zeros(len(observations), np.int64)


@pytest.fixture
def player(tmp_path: Path) -> Iterator[EpisodePlayer]:
    config = several_config(tmp_path, policies={})
    with closing(EpisodePlayer(config, configs_of_policies(config, ("a0", "a1", "a2")), num_envs=1)) as player:
        yield player


def test_each_agent_meets_each_opponent(player: EpisodePlayer) -> None:
    """Also where there are as many opponents as agents: they take turns, one round of agents after another."""
    met: dict[str, list[int]] = {"a0": [], "a1": [], "a2": []}
    for number in range(9):
        judged, others = Noting(), [Noting(), Noting(), Noting()]
        ((agent, episode),) = player.play_against(0, [Player(judged)], [[Player(other) for other in others]], [number])
        assert isinstance(episode, Game)
        assert judged.agents == {int(agent[1])}
        (opponent,) = (index for index, other in enumerate(others) if other.agents)
        assert others[opponent].agents == {0, 1, 2} - judged.agents
        met[agent].append(opponent)
    assert met == {"a0": [0, 1, 2], "a1": [0, 1, 2], "a2": [0, 1, 2]}
