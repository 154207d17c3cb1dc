"""Self-play: draws the players of each episode, and acts for checkpoints of the run; in a league also the learners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remuda.collector.trace import Bools
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import Copies, Lanes
from remuda.environments.legal_actions import components_of, without_any
from remuda.environments.spaces import Array, column_layout
from remuda.policy.base import Policy
from remuda.policy.opponent_pool import Opponent, OpponentPool
from remuda.wire.messages import CheckpointFile, Opponents
from remuda.worker.stores.ports import CheckpointGoneError

Fetch = Callable[[str, str], Path]
Log = Callable[[str], None]
_FROZEN = -1
"""In place of a policy index: a checkpoint plays."""


class OpponentLanes:
    """Lanes of checkpoints.

    In a share of episodes one random agent uses the newest policy of its group; all others use one checkpoint per
    group. Groups without checkpoints use the newest policy. Players stay until the episode ends.
    """

    learns_at_first = True
    """Lanes learn unless an opponent plays them."""

    def __init__(self, copies: Copies, policies: Mapping[str, ExperimentConfig]) -> None:
        """`policies` are the settings of each policy, by name."""
        configs = tuple(policies.values())
        self._names, self._pool, self._share = tuple(policies), OpponentPool(configs), configs[0].self_play.share
        self._playing: list[list[Opponent]] = [[] for _ in configs]
        """Of each policy."""
        self._groups = [GroupOpponents(lanes, learns=self.learns_at_first) for lanes in copies.lanes]
        self.against: Bools = np.zeros(copies.num_envs, np.bool_)
        """[envs]: the learning policy plays against others in the episode under way."""

    @property
    def lanes(self) -> tuple[Bools, ...]:
        """Of each policy [lanes]: True if it does not learn in this lane in the current episode."""
        return tuple(group.by_past for group in self._groups)

    def follow(self, news: Opponents, fetches: Sequence[Fetch], *, say: Log, warn: Log) -> None:
        """Draw by this message from now on. `fetches` return the path of a checkpoint of each policy by name and
        checksum; `say` and `warn` receive texts for the log. Raises NotNowError; then nothing changes."""
        sound = [
            [one for one in files if self._is_sound(index, one, fetch, warn)]
            for index, (files, fetch) in enumerate(zip(news.pool, fetches, strict=True))
        ]
        pool = [
            self._pool.load_only(index, files, fetch)
            for index, (files, fetch) in enumerate(zip(sound, fetches, strict=True))
        ]
        for index, (files, before) in enumerate(zip(pool, self._playing, strict=True)):
            for one in files:
                if one not in before:
                    say(f"{self._called(index, one.file)} plays against newer policies from now on")
        there = [one in its for files, its in zip(news.pool, sound, strict=True) for one in files]
        self.play_against(pool, [_of_sound(weights, there) for weights in news.weights])

    def play_against(self, pool: Sequence[Sequence[Opponent]], weights: Sequence[Sequence[float]] = ()) -> None:
        """Draw from these checkpoints of each policy from now on; `weights`: see Opponents."""
        self._playing = [[*its] for its in pool]

    def move(self, copies: Copies) -> None:
        """Continue in other copies, of equal number and groups, before their first episode."""
        self.against[:] = False
        for group, lanes in zip(self._groups, copies.lanes, strict=True):
            group.lanes = lanes
            for env in range(copies.num_envs):
                group.clear(env)

    def log_drawn(self, policy_index: int, say: Log) -> None:
        """Log the numbers of episodes against each checkpoint of a policy since the last call."""
        drawn, self._groups[policy_index].drawn = self._groups[policy_index].drawn, Counter()
        if drawn:
            each = ", ".join(f"{count} against {self._called(policy_index, name)}" for name, count in drawn.items())
            say(f"episodes begun: {each}")

    def begin(self, begun: Bools, rng: np.random.Generator) -> None:
        """Draw the players of new episodes, bool [envs]."""
        for env in np.flatnonzero(begun).tolist():
            self.against[env] = False
            for group in self._groups:
                group.clear(env)
            self._draw(env, rng)

    def replace(
        self, actions: Sequence[Array], explorations: Sequence[Mapping[str, float]], rng: np.random.Generator
    ) -> Sequence[Array]:
        """Return the actions [lanes, …] of each group, with the actions of checkpoints in their lanes."""
        if not self.against.any():
            return actions
        return [
            group.replaced(acted, exploration, rng)
            for group, acted, exploration in zip(self._groups, actions, explorations, strict=True)
        ]

    def _draw(self, env: int, rng: np.random.Generator) -> None:
        if rng.random() >= self._share:
            return
        counts = [len(group.lanes.group.agents) for group in self._groups]
        learner = int(rng.integers(sum(counts)))
        for playing, group, count in zip(self._playing, self._groups, counts, strict=True):
            if playing:
                opponent = playing[int(rng.integers(len(playing)))]
                others = [agent for agent in range(count) if agent != learner]
                group.give(env, others, opponent)
                self.against[env] |= bool(others)
            learner -= count

    def _is_sound(self, policy_index: int, one: CheckpointFile, fetch: Fetch, warn: Log) -> bool:
        """Load a checkpoint; return False if its file is gone or damaged. Raises NotNowError."""
        from remuda.policy.files.checkpoint_file import CheckpointError  # with torch, which collectors begin without

        try:
            self._pool.load(policy_index, one, fetch)
        except (CheckpointGoneError, CheckpointError) as error:  # a newer message comes
            warn(f"{self._called(policy_index, one.file)} does not play: {error}")
            return False
        return True

    def _called(self, policy_index: int, file: str) -> str:
        name = file.removesuffix(".pth.tar")
        return f"{self._names[policy_index]}/{name}" if self._names[policy_index] else name


def _of_sound(weights: Sequence[float], there: Sequence[bool]) -> list[float]:
    """Return the weights without those of missing checkpoints, which come last."""
    live = len(weights) - len(there)
    return [*weights[:live], *(one for one, is_there in zip(weights[live:], there, strict=True) if is_there)]


class GroupOpponents:
    """Lanes of checkpoints in one group."""

    def __init__(self, lanes: Lanes, *, learns: bool) -> None:
        """`learns`: lanes learn unless an opponent plays them."""
        self.lanes = lanes
        self.drawn = Counter[str]()
        """Episodes against each checkpoint, by file."""
        self._learns = learns
        self.by_past: Bools = np.full(len(lanes), not learns, np.bool_)
        """[lanes]: no learning in this lane."""
        self._players: dict[int, Policy] = {}
        """By lane."""
        self._states: dict[int, Array] = {}
        """State of the player during the episode, by lane."""

    @property
    def plays(self) -> bool:
        """True if a checkpoint plays a lane."""
        return bool(self._players)

    def clear(self, env: int) -> None:
        """No checkpoint plays in this copy any more."""
        for lane in self.lanes.of_copy(env):
            self.by_past[lane] = not self._learns
            self._players.pop(lane, None)

    def give(self, env: int, agents: Sequence[int], opponent: Opponent) -> None:
        """Let a checkpoint play these agents of a copy."""
        lanes, player = self.lanes.of_copy(env), opponent.policy
        self.drawn.update([opponent.file] if agents else ())
        for agent in agents:
            lane = lanes[agent]
            self.by_past[lane] = True
            self._players[lane] = player
            self._states[lane] = np.zeros(player.state_size, np.float32)

    def replaced(self, actions: Array, exploration: Mapping[str, float], rng: np.random.Generator) -> Array:
        """Return the actions [lanes, …] with those of the checkpoints."""
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
