"""A league in training: draws learners and opponents of every episode, and acts for the checkpoints of the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from remuda.collector.opponents import OpponentLanes
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import Copies
from remuda.environments.spaces import Array
from remuda.policy.opponent_pool import Opponent

_FROZEN = -1
"""In place of a policy index: a checkpoint plays."""


class LeagueLanes(OpponentLanes):
    """Lanes of a league. The group of each policy has all agents, so each agent of a copy has a lane in every group.

    In each episode one policy learns, each equally often. Its opponent is drawn by the weights of the newest message:
    itself, the newest version of another policy, or a checkpoint. Against itself the policy plays all agents and learns
    from all; otherwise it plays a random agent, and the opponent all further agents. The environment receives the
    action of an agent's player, whatever the lane.
    """

    learns_at_first = False

    def __init__(self, copies: Copies, policies: Mapping[str, ExperimentConfig]) -> None:
        super().__init__(copies, policies)
        self._agents = len(copies.lanes[0].group.agents)
        self._weights = np.eye(len(policies))
        """[learning policy, opponent]: the newest version of each policy, then the checkpoints. At first each policy
        plays against itself."""
        self._player: NDArray[np.int64] = np.zeros(copies.num_envs * self._agents, np.int64)
        """[lanes]: index of the policy whose newest version plays, or _FROZEN."""

    def play_against(self, pool: Sequence[Sequence[Opponent]], weights: Sequence[Sequence[float]] = ()) -> None:
        """See OpponentLanes."""
        given, count = np.array(weights), len(self._groups)
        if given.shape != (count, count + sum(map(len, pool))):
            raise ValueError(f"weights {given.shape} for {count} policies and {sum(map(len, pool))} checkpoints")
        given[~given.any(axis=1), :count] = 1.0  # all its opponents are gone
        super().play_against(pool)
        self._weights = given / given.sum(axis=1, keepdims=True)

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

    def _draw(self, env: int, rng: np.random.Generator) -> None:
        learner = int(rng.integers(len(self._groups)))
        opponent = int(rng.choice(self._weights.shape[1], p=self._weights[learner]))
        agent = int(rng.integers(self._agents))
        lanes = self._groups[0].lanes.of_copy(env)
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
            frozen = [(policy, one) for policy, its in enumerate(self._playing) for one in its]
            policy, player = frozen[index]
            self._groups[policy].give(env, others, player)
