"""A league in training: draws learners and opponents of every episode, and acts for the checkpoints of the pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remuda.collector.opponents import GroupOpponents
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import Bools, Copies
from remuda.environments.spaces import Array
from remuda.policy.base import Policy
from remuda.policy.opponent_pool import OpponentPool
from remuda.wire.messages import LeagueMatches

_FROZEN = -1
"""In place of a policy index: a checkpoint plays."""


class LeagueLanes:
    """Lanes of a league. The group of each policy has all agents, so each agent of a copy has a lane in every group.

    In each episode one policy learns, each equally often. Its opponent is drawn by the weights of the newest message:
    itself, the newest version of another policy, or a checkpoint. Against itself the policy plays all agents and learns
    from all; otherwise it plays a random agent, and the opponent all further agents. Players stay until the episode
    ends. The environment receives the action of an agent's player, whatever the lane.
    """

    def __init__(self, copies: Copies, configs: Sequence[ExperimentConfig]) -> None:
        """`configs` are the settings of each policy."""
        count = len(configs)
        self._pool = OpponentPool(configs)
        self._agents = len(copies.lanes[0].group.agents)
        self._groups = [GroupOpponents(lanes) for lanes in copies.lanes]
        for group in self._groups:
            group.by_past[:] = True
        self._frozen: list[tuple[int, Policy]] = []
        """Policy index and policy of each checkpoint."""
        self._weights = np.eye(count)
        """[learning policy, opponent]: the newest version of each policy, then the checkpoints. At first each policy
        plays against itself."""
        self._player: NDArray[np.int64] = np.zeros(copies.num_envs * self._agents, np.int64)
        """[lanes]: index of the policy whose newest version plays, or _FROZEN."""
        self.against: Bools = np.zeros(copies.num_envs, np.bool_)
        """[envs]: the learning policy plays against others in the episode under way."""

    @property
    def lanes(self) -> tuple[Bools, ...]:
        """Of each policy [lanes]: True if it does not learn in this lane in the current episode."""
        return tuple(group.by_past for group in self._groups)

    def follow(self, news: LeagueMatches, fetches: Sequence[Callable[[str, str], Path]]) -> None:
        """Draw by this message from now on. `fetches` return the path of a checkpoint of each policy by name and
        checksum. Raises what they raise, and CheckpointError; then nothing changes."""
        frozen: list[tuple[int, Policy]] = []
        for index, (files, fetch) in enumerate(zip(news.pool, fetches, strict=True)):
            frozen += [(index, one.policy) for one in self._pool.load_only(index, files, fetch)]
        weights = np.array(news.weights)
        if weights.shape != (len(self._groups), len(self._groups) + len(frozen)):
            raise ValueError(f"weights {weights.shape} for {len(self._groups)} policies and {len(frozen)} checkpoints")
        self._frozen, self._weights = frozen, weights / weights.sum(axis=1, keepdims=True)

    def move(self, copies: Copies) -> None:
        """Continue in other copies, of equal number and groups, before their first episode."""
        self.against[:] = False
        for group, lanes in zip(self._groups, copies.lanes, strict=True):
            group.lanes = lanes
            for env in range(copies.num_envs):
                group.clear(env)
            group.by_past[:] = True

    def begin(self, begun: Bools, rng: np.random.Generator) -> None:
        """Draw the players of new episodes, bool [envs]."""
        for env in np.flatnonzero(begun).tolist():
            learner = int(rng.integers(len(self._groups)))
            opponent = int(rng.choice(self._weights.shape[1], p=self._weights[learner]))
            self._seat(env, learner, opponent, int(rng.integers(self._agents)))

    def _seat(self, env: int, learner: int, opponent: int, agent: int) -> None:
        lanes = self._groups[0].lanes.of_copy(env)
        for group in self._groups:
            group.clear(env)
            group.by_past[lanes.start : lanes.stop] = True
        learns = self._groups[learner].by_past
        self.against[env] = opponent != learner
        self._player[lanes.start : lanes.stop] = learner
        if opponent == learner:
            learns[lanes.start : lanes.stop] = False
            return
        learns[lanes.start + agent] = False
        others = [one for one in range(self._agents) if one != agent]
        index = opponent - len(self._groups)
        self._player[[lanes.start + one for one in others]] = opponent if index < 0 else _FROZEN
        if index >= 0:
            policy, player = self._frozen[index]
            self._groups[policy].give(env, others, player)

    def replace(
        self, actions: Sequence[Array], explorations: Sequence[Mapping[str, float]], rng: np.random.Generator
    ) -> Sequence[Array]:
        """Return the actions [lanes, …] of the players, for each group the same."""
        played = actions[0].copy()
        for index, acted in enumerate(actions[1:], 1):
            mine = self._player == index
            played[mine] = acted[mine]
        for group, exploration in zip(self._groups, explorations, strict=True):
            if group.plays:
                played = group.replaced(played, exploration, rng)
        return [played] * len(self._groups)
