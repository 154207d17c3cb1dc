"""Plays seeded episodes with the policies of a run, an episode per seed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from remuda.config.errors import Error
from remuda.environments.assignment import agent_columns
from remuda.environments.copies import LocalCopies
from remuda.environments.films import Camera
from remuda.environments.lanes import AGENT, DISCOUNTED_RETURN, Bools, Lanes, of_single
from remuda.environments.legal_actions import ACTION_MASK, Components, components_of, without_any
from remuda.environments.seeding import replacement_seed
from remuda.environments.spaces import Array, column_layout, usable_actions
from remuda.logbook.episode_reports import EpisodeReport
from remuda.policy.base import Actor


class EvaluationError(Error, ValueError):
    """An environment reports a number that is not finite, so an episode has no return; or no action is legal."""


@dataclass(frozen=True)
class Episode:
    """A finished episode, from the view of a policy."""

    seed: int
    env_index: int
    """Index of the copy of the environment."""
    return_: float
    """Undiscounted sum of rewards; of several agents the mean of theirs."""
    length: int
    """Steps."""
    info: Mapping[str, float] = field(default_factory=dict[str, float])
    """By name: the discounted return, if a discount is given; the returns of several agents; and the requested values
    from the last step."""
    cut: bool = False
    """True if `max_episode_steps` cut the episode."""


@dataclass(frozen=True, eq=False)
class Player:
    """The actor of an agent, with its exploration."""

    actor: Actor
    exploration: Mapping[str, float] | None = None
    """None: greedy."""


@dataclass(frozen=True)
class Game:
    """A finished episode of all agents together."""

    seed: int
    env_index: int
    """Index of the copy of the environment."""
    returns: Mapping[str, float]
    """Undiscounted sums of rewards, by agent."""
    discounted: Mapping[str, float]
    """By agent; empty without discounts."""
    length: int
    """Steps of the environment."""
    reported: Mapping[str, Mapping[str, float]]
    """Requested values from the last step, by agent."""
    cut: bool
    """True if `max_episode_steps` cut the episode."""

    def of_policy(self, agents: Sequence[str]) -> Episode:
        """Return the episode from the view of the policy of these agents, with the means of their numbers."""
        info = {column: self.returns[agent] for agent, column in agent_columns(agents).items()}
        if self.discounted and math.isfinite(discounted := _mean([self.discounted[agent] for agent in agents])):
            info = {DISCOUNTED_RETURN: discounted, **info}
        for name in dict.fromkeys(name for agent in agents for name in self.reported[agent]):
            info[name] = _mean([self.reported[agent][name] for agent in agents if name in self.reported[agent]])
        return_ = _mean([self.returns[agent] for agent in agents])
        return Episode(self.seed, self.env_index, return_, self.length, info, cut=self.cut)


Progress = Callable[[int], None]
Acted = Callable[[int, Array], None]


def play(
    copies: LocalCopies,
    players: Callable[[int], Mapping[str, Player]],
    *,
    seeds: Sequence[int],
    rng: np.random.Generator,
    discounts: Mapping[str, float] | None = None,
    max_episode_steps: int | None = None,
    episode_info: Sequence[str] = (),
    progress: Progress = lambda env_steps: None,
    finished: Callable[[Game, int], None] = lambda game, count: None,
    acted: Acted = lambda group_index, actions: None,
    camera: Camera | None = None,
) -> list[Game]:
    """Play exactly one episode per seed and return the episodes in the order of `seeds`.

    Each copy plays one episode after another, reset with the seed of the episode. Each player acts for all of its
    agents in all copies at once. Every begun episode is counted, so short episodes are not favoured. With deterministic
    players the result of an episode depends on the seed alone, not on the number of copies (except for the last bits,
    which the batch size of a network may change).

    A broken copy is replaced and plays the episode again from the start, with the same seed, or with another seed after
    a second failure. Results of the broken episode are dropped.

    Args:
        players: returns the player of each agent for the position of a seed.
        discounts: by agent; None: no discounted returns.
        episode_info: names of numbers that environments report with the last step of an episode.
        progress: receives the number of new steps.
        finished: receives each episode and the number of finished episodes.
        acted: receives the index of a group and the actions [n, …] of each step.
        camera: films the only copy.

    Raises EvaluationError, and errors of environments and actors.
    """
    playing = _Playing(copies, players, rng, discounts, episode_info, acted, camera)
    waiting = deque(EpisodeJob(position, seed) for position, seed in enumerate(seeds))
    games: dict[int, Game] = {}
    for index in range(min(copies.num_envs, len(seeds))):
        playing.begin(index, waiting.popleft())
    while playing.jobs:
        indices = sorted(playing.jobs)
        progress(len(indices))
        playing.step(indices)
        for index in indices:
            job = playing.jobs[index]
            if copies.any_replaced and copies.replaced[index]:
                playing.begin(index, job.again())
                continue
            over = copies.over(index)
            if not over and playing.length[index] != max_episode_steps:
                continue
            games[job.position] = playing.end(index, cut=not over)
            finished(games[job.position], len(games))
            if waiting:
                playing.begin(index, waiting.popleft())
    return [games[position] for position in range(len(seeds))]


@dataclass(frozen=True)
class EpisodeJob:
    """An episode to be played."""

    position: int
    """Position of the seed among all seeds."""
    seed: int
    broken: int = 0
    """Number of failures of the environment."""

    def again(self) -> EpisodeJob:
        """Return the job after a failure of the environment: first with the same seed, then with others."""
        seed = replacement_seed(self.seed) if self.broken else self.seed
        return EpisodeJob(self.position, seed, self.broken + 1)


class _Playing:
    """Current episodes, at most one per copy."""

    def __init__(
        self,
        copies: LocalCopies,
        players: Callable[[int], Mapping[str, Player]],
        rng: np.random.Generator,
        discounts: Mapping[str, float] | None,
        episode_info: Sequence[str],
        acted: Acted,
        camera: Camera | None,
    ) -> None:
        self.jobs: dict[int, EpisodeJob] = {}
        """By copy."""
        self.length = [0] * copies.num_envs
        """Steps, by copy."""
        self._copies, self._players, self._camera = copies, players, camera
        self._episode_info = episode_info
        self._groups = [
            _GroupPlaying(lanes, rng, discounts, partial(acted, at), checked=copies.checked)
            for at, lanes in enumerate(copies.lanes)
        ]

    def begin(self, index: int, job: EpisodeJob) -> None:
        """Begin an episode in a copy."""
        self._copies.reset_copy(index, job.seed)
        while self._copies.replaced[index]:  # the new environment has begun with a seed of its own
            job = job.again()
            self._copies.reset_copy(index, job.seed)
        self.jobs[index], self.length[index] = job, 0
        if self._camera is not None:
            self._camera.began()
        players = self._players(job.position)
        for group in self._groups:
            group.begin(index, players)

    def step(self, indices: Sequence[int]) -> None:
        """Take a step in these copies. Raises EvaluationError."""
        actions = [group.act(self.jobs, self.length) for group in self._groups]
        self._copies.step(actions, indices)
        if self._camera is not None:
            self._camera.stepped(over=self._copies.over(indices[0]))
        for index in indices:
            self.length[index] += 1
        for group in self._groups:
            group.add(self.jobs, self.length)

    def end(self, index: int, *, cut: bool) -> Game:
        """The episode of a copy is over."""
        job = self.jobs.pop(index)
        returns, discounted, reported = dict[str, float](), dict[str, float](), dict[str, Mapping[str, float]]()
        for group in self._groups:
            group.end(index, returns, discounted)
            infos = group.lanes.info
            assert isinstance(infos, list), "local copies have an info for each lane"
            for lane, agent in zip(group.lanes.of_copy(index), group.lanes.group.agents, strict=True):
                reported[agent] = of_single(infos[lane], self._episode_info)
        return Game(job.seed, index, returns, discounted, self.length[index], reported, cut=cut)


@dataclass(frozen=True)
class _PlayerLanes:
    """Lanes of a player in the next step."""

    player: Player
    lanes: Sequence[int]
    index: Array | slice
    """The same, as an index of arrays [lanes, …]."""
    dtype: np.dtype[Any]
    """Dtype of the player's observations."""
    components: Components
    """Components of the actions; empty for players that ignore masks."""


class _GroupPlaying:
    """Lanes of a group in the current episodes: players, and sums of rewards."""

    def __init__(
        self,
        lanes: Lanes,
        rng: np.random.Generator,
        discounts: Mapping[str, float] | None,
        acted: Callable[[Array], None],
        *,
        checked: bool,
    ) -> None:
        self.lanes = lanes
        self._rng, self._acted, self._checked = rng, acted, checked
        count, copies = len(lanes), len(lanes) // len(lanes.group.agents)
        self._shape, self._dtype = column_layout(lanes.group.action, what="action", keeps_float64=True)
        self._players: list[Player | None] = [None] * count
        self._states: dict[int, Array] = {}
        """State of the player during the episode, float32 [Actor.state_size] by lane."""
        self._known: dict[int, tuple[Player, np.dtype[Any], Components]] = {}
        """Entries by `id` of the player. An entry keeps the player alive, so no other object gets the same id."""
        self._player_lanes: list[_PlayerLanes] | None = None
        """None after a change of players or lanes."""
        self._over: Bools = lanes.over.copy()
        """State of `lanes.over` at the last assignment of lanes to players."""
        self._played_lanes: Array | slice = np.zeros(0, np.intp)
        """Lanes of all players."""
        factors = [np.ones(count)]
        if discounts is not None:
            factors.append(np.array([discounts[agent] for agent in lanes.group.agents] * copies))
        self._discounts = np.stack(factors)
        """[1 or 2, lanes]: factor from the weight of a reward to the weight of the next: 1 for the return, then the
        discount of the discounted return."""
        self._sums, self._weights = np.zeros_like(self._discounts), np.ones_like(self._discounts)
        self._checks_observations = lanes.observations.dtype.kind == "f"
        self._may_leave = lanes.group.agents != (AGENT,)
        """Agents may leave before the episode is over."""

    def begin(self, index: int, players: Mapping[str, Player]) -> None:
        for lane, agent in zip(self.lanes.of_copy(index), self.lanes.group.agents, strict=True):
            self._players[lane] = players[agent]
            self._states[lane] = np.zeros(players[agent].actor.state_size, np.float32)
            self._sums[:, lane], self._weights[:, lane] = 0.0, 1.0
        self._player_lanes = None

    def end(self, index: int, returns: dict[str, float], discounted: dict[str, float]) -> None:
        for lane, agent in zip(self.lanes.of_copy(index), self.lanes.group.agents, strict=True):
            returns[agent] = float(self._sums[0, lane])
            if len(self._sums) > 1:
                discounted[agent] = float(self._sums[1, lane])
            self._players[lane] = None
        self._player_lanes = None

    def act(self, jobs: Mapping[int, EpisodeJob], length: Sequence[int]) -> Array:
        """Return the actions [lanes, …] of the next step; 0 in lanes without a player. Raises EvaluationError."""
        if self._player_lanes is None or (self._may_leave and (self._over != self.lanes.over).any()):
            self._player_lanes = self._group_lanes()
        if isinstance(self._played_lanes, slice) and len(self._player_lanes) == 1:
            return self._act(self._player_lanes[0], jobs, length)
        of_all = np.zeros((len(self.lanes), *self._shape), self._dtype)
        for played in self._player_lanes:
            of_all[played.index] = self._act(played, jobs, length)
        return of_all

    def _group_lanes(self) -> list[_PlayerLanes]:
        count = len(self.lanes)
        self._over = self.lanes.over.copy()
        of_player: dict[int, tuple[Player, list[int]]] = {}
        for lane, player in enumerate(self._players):
            if player is not None and not self._over[lane]:
                of_player.setdefault(id(player), (player, []))[1].append(lane)
        groups = [
            _PlayerLanes(player, lanes, _index(lanes, count), *self._needs(player))
            for player, lanes in of_player.values()
        ]
        self._played_lanes = _index(sorted(lane for one in groups for lane in one.lanes), count)
        return groups

    def _needs(self, player: Player) -> tuple[np.dtype[Any], Components]:
        """Return the dtype of a player's observations, and the components of the actions (empty without masks)."""
        known = self._known.get(id(player))
        if known is None:
            group, actor = self.lanes.group, player.actor
            _, dtype = column_layout(group.observation, what="observation", keeps_float64=actor.keeps_float64)
            components = components_of(group.action) if actor.uses_legal_actions else ()
            known = self._known[id(player)] = player, dtype, components
        return known[1:]

    def _act(self, played: _PlayerLanes, jobs: Mapping[int, EpisodeJob], length: Sequence[int]) -> Array:
        player, actor = played.player, played.player.actor
        seen = self.lanes.observations[played.index]  # of a slice no copy, and the next step overwrites it
        seen = seen.astype(played.dtype, copy=isinstance(played.index, slice))
        legal = self.lanes.legal(played.components, played.lanes) if played.components else None
        if legal is not None and (stuck := without_any(legal, played.components)).any():
            why = f"has no legal action (info[{ACTION_MASK!r}]), and its episode goes on, after"
            raise self._error(why, played.lanes[int(stuck.argmax())], jobs, length)
        state = np.stack([self._states[lane] for lane in played.lanes]) if actor.state_size else None
        greedy = player.exploration is None
        given = actor.act(seen, player.exploration or {}, self._rng, deterministic=greedy, legal=legal, state=state)
        actions = usable_actions(given, (len(seen), *self._shape), self._dtype, actor)
        if state is not None:
            self._states.update(zip(played.lanes, state, strict=True))
        self._acted(actions)
        return actions

    def add(self, jobs: Mapping[int, EpisodeJob], length: Sequence[int]) -> None:
        """Add the rewards of the newest step. Raises EvaluationError."""
        lanes, played = self.lanes, self._played_lanes
        if isinstance(played, slice):
            self._sums += self._weights * lanes.reward
            self._weights *= self._discounts
        else:
            self._sums[:, played] += self._weights[:, played] * lanes.reward[played]
            self._weights[:, played] *= self._discounts[:, played]
        if not self._checked:
            self._require_finite(self._sums[0], jobs, length)
            if self._checks_observations:
                self._require_finite(lanes.observations, jobs, length)

    def _require_finite(self, values: Array, jobs: Mapping[int, EpisodeJob], length: Sequence[int]) -> None:
        if math.isfinite(np.vdot(values, values)):  # of finite numbers it may be infinite
            return
        bad = ~np.isfinite(values)
        if bad.any():
            why = "got a reward or an observation that is not finite at"
            raise self._error(why, int(np.argwhere(bad)[0][0]), jobs, length)

    def _error(self, why: str, lane: int, jobs: Mapping[int, EpisodeJob], length: Sequence[int]) -> EvaluationError:
        agents = self.lanes.group.agents
        index, agent = divmod(lane, len(agents))
        who = f"environment {index}" if agents == (AGENT,) else f"agent {agents[agent]} of environment {index}"
        return EvaluationError(f"{who} {why} step {length[index]} of the episode with seed {jobs[index].seed}")


def _index(lanes: Sequence[int], count: int) -> Array | slice:
    return slice(None) if len(lanes) == count else np.array(lanes, np.intp)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def episode_report(episode: Episode, count: int, *, train_iter: int, env_step: int) -> EpisodeReport:
    """The evaluator log's line for the `count`-th finished episode of an evaluation."""
    return EpisodeReport(
        train_iter=train_iter,
        env_step=env_step,
        env=episode.env_index,
        final_reward=episode.return_,
        episode=count,
        cut_after=episode.length if episode.cut else None,
    )
