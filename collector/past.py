"""Self-play against older checkpoints: which agents older policies play, episode by episode, and their actions."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from remuda.environments.agents import AgentsVector, Lanes
from remuda.environments.legal_actions import components_of, legal_of_each, without_any
from remuda.environments.spaces import Array, column_layout
from remuda.policy.base import Policy

Bools = NDArray[np.bool_]


class PastPlayers:
    """In a share of episodes one agent, drawn at random, is played by the newest policy of its group, and all others by
    an older policy of theirs, one for each group, drawn from those that `remember` was given. Groups without an older
    policy are played by the newest. An episode keeps its players until it ends."""

    def __init__(self, vector: AgentsVector, share: float = 0.0, keep: int = 1) -> None:
        """`share` of episodes, 0 to 1; `keep`: of so many older policies of a group one is drawn."""
        self._share = share
        self._of_group = [_OfGroup(lanes, keep) for lanes in vector.lanes]
        self.against: Bools = np.zeros(vector.num_envs, np.bool_)
        """[envs]: older policies play in the episode under way."""

    @property
    def lanes(self) -> tuple[Bools, ...]:
        """Of each group [lanes]: an older policy plays this lane in the episode under way."""
        return tuple(group.by_past for group in self._of_group)

    def move(self, vector: AgentsVector) -> None:
        """Go on in other copies, as many, with the same groups, in which no episode has begun."""
        self.against[:] = False
        for group, lanes in zip(self._of_group, vector.lanes, strict=True):
            group.lanes = lanes
            for env in range(vector.num_envs):
                group.clear(env)

    def remember(self, group: int, policy: Policy, name: str = "") -> None:
        """Add an older policy of a group; of those only the newest are drawn, so many as the run keeps."""
        self._of_group[group].pool.append((policy, name))

    def take_drawn(self, group: int) -> Mapping[str, int]:
        """In how many episodes older policies of a group were drawn since the last call, by their names."""
        drawn, self._of_group[group].drawn = self._of_group[group].drawn, Counter()
        return drawn

    def begin(self, begun: Bools, rng: np.random.Generator) -> None:
        """Draw the players of the episodes that have just begun, bool [envs]."""
        if not self._share:
            return
        for env in np.flatnonzero(begun).tolist():
            self.against[env] = False
            for group in self._of_group:
                group.clear(env)
            if rng.random() < self._share:
                self._draw(env, rng)

    def replace(
        self, actions: Sequence[Array], explorations: Sequence[Mapping[str, float]], rng: np.random.Generator
    ) -> Sequence[Array]:
        """The actions [lanes, …] of each group, with those of older policies where they play."""
        if not self.against.any():
            return actions
        return [
            group.replaced(acted, exploration, rng)
            for group, acted, exploration in zip(self._of_group, actions, explorations, strict=True)
        ]

    def _draw(self, env: int, rng: np.random.Generator) -> None:
        counts = [len(group.lanes.group.agents) for group in self._of_group]
        learner = int(rng.integers(sum(counts)))
        for group, count in zip(self._of_group, counts, strict=True):
            if group.pool:
                player, name = group.pool[int(rng.integers(len(group.pool)))]
                others = [agent for agent in range(count) if agent != learner]
                group.give(env, others, player)
                group.drawn.update([name] if others else ())
                self.against[env] |= bool(others)
            learner -= count


class _OfGroup:
    """The older policies of one group, and where they play."""

    def __init__(self, lanes: Lanes, keep: int) -> None:
        self.lanes = lanes
        self.pool = deque[tuple[Policy, str]](maxlen=keep)
        """With their names."""
        self.drawn = Counter[str]()
        self.by_past: Bools = np.zeros(len(lanes), np.bool_)
        self._players: dict[int, Policy] = {}
        """By lane."""
        self._states: dict[int, Array] = {}
        """What the player of a lane carries through its episode."""

    def clear(self, env: int) -> None:
        count = len(self.lanes.group.agents)
        self.by_past[env * count : (env + 1) * count] = False
        for lane in range(env * count, (env + 1) * count):
            self._players.pop(lane, None)

    def give(self, env: int, agents: Sequence[int], player: Policy) -> None:
        for agent in agents:
            lane = env * len(self.lanes.group.agents) + agent
            self.by_past[lane] = True
            self._players[lane] = player
            self._states[lane] = np.zeros(player.state_size, np.float32)

    def replaced(self, actions: Array, exploration: Mapping[str, float], rng: np.random.Generator) -> Array:
        changed = actions.copy()
        of_player: dict[int, list[int]] = {}
        for lane, player in self._players.items():
            if self.lanes.live[lane]:
                of_player.setdefault(id(player), []).append(lane)
        for played in of_player.values():
            changed[played] = self._act(self._players[played[0]], played, exploration, rng)
        return changed

    def _act(
        self, player: Policy, played: Sequence[int], exploration: Mapping[str, float], rng: np.random.Generator
    ) -> Array:
        group = self.lanes.group
        _, dtype = column_layout(group.observation, what="observation", keeps_float64=player.keeps_float64)
        seen = self.lanes.observations[list(played)].astype(dtype, copy=False)
        components = components_of(group.action) if player.uses_legal_actions else ()
        legal = None
        if components:
            legal = legal_of_each([self.lanes.infos[lane] for lane in played], components=components)
        if legal is not None:
            legal[without_any(legal, components)] = True  # the environment refuses it, if it is one
        state = np.stack([self._states[lane] for lane in played]) if player.state_size else None
        actions = player.act(seen, exploration, rng, deterministic=False, legal=legal, state=state)
        if state is not None:
            self._states.update(zip(played, state, strict=True))
        return actions
