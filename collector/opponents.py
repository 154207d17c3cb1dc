"""Self-play against older checkpoints: draws the players of each episode, and acts for older policies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from remuda.collector.trace import Bools
from remuda.environments.lanes import Copies, Lanes
from remuda.environments.legal_actions import components_of, without_any
from remuda.environments.spaces import Array, column_layout
from remuda.policy.base import Policy
from remuda.policy.opponent_pool import OpponentPool
from remuda.wire.messages import CheckpointFile, Opponents
from remuda.worker.stores.ports import CheckpointGoneError, NotNowError, RunStores


class OpponentLanes:
    """Lanes of older policies.

    In `share` of episodes one random agent uses the newest policy of its group; all others use one older policy per
    group, drawn from the pool. Groups without an older policy use the newest. Players stay until the episode ends.
    """

    def __init__(self, copies: Copies, pool: OpponentPool, share: float) -> None:
        """`share` of episodes, 0 to 1."""
        self.pool = pool
        self._share = share
        self._groups = [GroupOpponents(lanes) for lanes in copies.lanes]
        self.against: Bools = np.zeros(copies.num_envs, np.bool_)
        """[envs]: older policies play in the episode under way."""

    @property
    def lanes(self) -> tuple[Bools, ...]:
        """Of each group [lanes]: True if an older policy plays this lane in the current episode."""
        return tuple(group.by_past for group in self._groups)

    def move(self, copies: Copies) -> None:
        """Continue in other copies, of equal number and groups, before their first episode."""
        self.against[:] = False
        for group, lanes in zip(self._groups, copies.lanes, strict=True):
            group.lanes = lanes
            for env in range(copies.num_envs):
                group.clear(env)

    def take_drawn(self, policy_index: int) -> Mapping[str, int]:
        """Return the number of episodes of each older policy since the last call, by the name of the file."""
        drawn, self._groups[policy_index].drawn = self._groups[policy_index].drawn, Counter()
        return drawn

    def begin(self, begun: Bools, rng: np.random.Generator) -> None:
        """Draw the players of new episodes, bool [envs]."""
        for env in np.flatnonzero(begun).tolist():
            self.against[env] = False
            for group in self._groups:
                group.clear(env)
            if rng.random() < self._share:
                self._draw(env, rng)

    def replace(
        self, actions: Sequence[Array], explorations: Sequence[Mapping[str, float]], rng: np.random.Generator
    ) -> Sequence[Array]:
        """Return the actions [lanes, …] of each group, with the actions of older policies in their lanes."""
        if not self.against.any():
            return actions
        return [
            group.replaced(acted, exploration, rng)
            for group, acted, exploration in zip(self._groups, actions, explorations, strict=True)
        ]

    def _draw(self, env: int, rng: np.random.Generator) -> None:
        counts = [len(group.lanes.group.agents) for group in self._groups]
        learner = int(rng.integers(sum(counts)))
        for index, (group, count) in enumerate(zip(self._groups, counts, strict=True)):
            older = self.pool.newest(index)
            if older:
                opponent = older[int(rng.integers(len(older)))]
                others = [agent for agent in range(count) if agent != learner]
                group.give(env, others, opponent.policy)
                group.drawn.update([opponent.file] if others else ())
                self.against[env] |= bool(others)
            learner -= count


class GroupOpponents:
    """Lanes of older policies in one group."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.drawn = Counter[str]()
        self.by_past: Bools = np.zeros(len(lanes), np.bool_)
        self._players: dict[int, Policy] = {}
        """By lane."""
        self._states: dict[int, Array] = {}
        """State of the player during the episode, by lane."""

    @property
    def plays(self) -> bool:
        """True if an older policy plays a lane."""
        return bool(self._players)

    def clear(self, env: int) -> None:
        """No older policy plays in this copy any more."""
        for lane in self.lanes.of_copy(env):
            self.by_past[lane] = False
            self._players.pop(lane, None)

    def give(self, env: int, agents: Sequence[int], player: Policy) -> None:
        """Let an older policy play these agents of a copy."""
        lanes = self.lanes.of_copy(env)
        for agent in agents:
            lane = lanes[agent]
            self.by_past[lane] = True
            self._players[lane] = player
            self._states[lane] = np.zeros(player.state_size, np.float32)

    def replaced(self, actions: Array, exploration: Mapping[str, float], rng: np.random.Generator) -> Array:
        """Return the actions [lanes, …] with those of the older policies."""
        changed = actions.copy()
        of_player: dict[int, list[int]] = {}
        for lane, player in self._players.items():
            if not self.lanes.over[lane]:
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
        legal = self.lanes.legal(components, played) if components else None
        if legal is not None:
            legal[without_any(legal, components)] = True  # of a reset; in an episode the environment refuses it
        state = np.stack([self._states[lane] for lane in played]) if player.state_size else None
        actions = player.act(seen, exploration, rng, deterministic=False, legal=legal, state=state)
        if state is not None:
            self._states.update(zip(played, state, strict=True))
        return actions


class OpponentLoader:
    """Adds each checkpoint named by the coordinator to the pool, once. Collecting never waits: a checkpoint that is
    still on its way is tried again before the next chunk."""

    def __init__(
        self,
        names: Sequence[str],
        stores: RunStores,
        lanes: OpponentLanes | None,
        *,
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """`names` of the policies; `lanes` is None without self-play. `say` and `warn` receive texts for the log."""
        self._names = tuple(names)
        self._stores = [own.checkpoints for own in stores.of_policies]
        self._lanes, self._say, self._warn = lanes, say, warn
        self._known: dict[int, frozenset[str]] = {}
        """By policy index: the files in the newest message."""
        self._waiting = deque[tuple[int, CheckpointFile]]()

    def add(self, news: Opponents) -> None:
        """Queue the new checkpoints of a message; consecutive messages overlap."""
        known = self._known.get(news.policy_index, frozenset())
        self._waiting.extend((news.policy_index, one) for one in news.checkpoints if one.file not in known)
        self._known[news.policy_index] = frozenset(one.file for one in news.checkpoints)

    def load(self) -> None:
        """Add the queued checkpoints to the pool."""
        if self._lanes is not None and self._waiting:
            self._load_into(self._lanes.pool)

    def _load_into(self, pool: OpponentPool) -> None:
        from remuda.policy.files.checkpoint_file import CheckpointError  # with torch, which collectors begin without

        while self._waiting:
            index, one = self._waiting[0]
            try:
                pool.load(index, self._stores[index].fetch(one.file, one.sha256), file=one.file)
            except NotNowError:
                return
            except (CheckpointGoneError, CheckpointError) as error:  # newer ones have taken its place meanwhile
                self._warn(f"{self._called(index, one.file)} does not play: {error}")
            else:
                self._say(f"{self._called(index, one.file)} plays against newer policies from now on")
            del self._waiting[0]

    def log_drawn(self, policy_index: int) -> None:
        """Log the older checkpoints of a policy drawn since the last call."""
        drawn = dict[str, int]() if self._lanes is None else self._lanes.take_drawn(policy_index)
        if drawn:
            each = ", ".join(f"{count} against {self._called(policy_index, name)}" for name, count in drawn.items())
            self._say(f"episodes begun: {each}")

    def _called(self, policy_index: int, file: str) -> str:
        name = file.removesuffix(".pth.tar")
        return f"{self._names[policy_index]}/{name}" if self._names[policy_index] else name
