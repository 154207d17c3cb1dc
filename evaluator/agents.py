"""Plays seeded episodes of environments with several agents, in which different policies may play."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from remuda.environments.agents import AgentsVector, Bools, Lanes
from remuda.environments.assignment import agent_columns
from remuda.environments.episode_info import DISCOUNTED_RETURN
from remuda.environments.legal_actions import ACTION_MASK, components_of, legal_of_each, without_any
from remuda.environments.spaces import Array, column_layout
from remuda.evaluator.evaluate import Episode, EvaluationError, Turn
from remuda.policy.base import Actor


@dataclass(frozen=True, eq=False)
class Player:
    """Who acts for an agent, and how."""

    actor: Actor
    exploration: Mapping[str, float] | None = None
    """None: it acts greedily."""


@dataclass
class AgentsEpisode:
    """An episode of all agents together."""

    seed: int
    env_index: int
    """Which of the copies played it."""
    returns: dict[str, float]
    """By agent: the undiscounted sum of its rewards."""
    discounted: dict[str, float]
    length: int = 0
    """Steps of the environment."""
    cut: bool = False
    """It had not ended: `max_episode_steps` cut it."""

    def of_policy(self, agents: Sequence[str]) -> Episode:
        """The episode as the policy of these agents sees it: its return is the mean of theirs."""
        columns = agent_columns(agents)
        info = {column: self.returns[agent] for agent, column in columns.items()}
        discounted = _mean(self.discounted, agents)
        if math.isfinite(discounted):
            info = {DISCOUNTED_RETURN: discounted, **info}
        return Episode(self.seed, self.env_index, _mean(self.returns, agents), self.length, info, cut=self.cut)


@dataclass
class _Running:
    """An episode under way."""

    turn: Turn
    episode: AgentsEpisode
    players: Mapping[str, Player]
    states: dict[str, Array]
    """float32 [Actor.state_size] by agent: what its player carries through the episode."""
    weights: dict[str, float] = field(default_factory=dict[str, float])
    """Weight of the next reward of an agent in its discounted return."""


def play_agents(
    vector: AgentsVector,
    players: Callable[[int], Mapping[str, Player]],
    *,
    seeds: Sequence[int],
    rng: np.random.Generator,
    discounts: Mapping[str, float],
    max_episode_steps: int | None = None,
    progress: Callable[[int], None] = lambda env_steps: None,
    finished: Callable[[AgentsEpisode, int], None] = lambda episode, count: None,
) -> list[AgentsEpisode]:
    """Play exactly one episode per seed and return them in the order of `seeds`.

    `players` says who acts for each agent in the episode at a position of `seeds`; each acts for all of its agents in
    all copies at once. `discounts` are those of the returns, by agent. `max_episode_steps` ends an episode early.
    `progress` is called with the number of environment steps as they are taken; `finished` with each episode and the
    number finished so far. An episode whose environment broke is played again from its start, with the same seed, and
    with another if that broke it before.

    Raises EvaluationError, and whatever environments or actors raise.
    """
    waiting = deque(Turn(position, seed) for position, seed in enumerate(seeds))
    playing: dict[int, _Running] = {}
    episodes: dict[int, AgentsEpisode] = {}
    for index in range(min(vector.num_envs, len(seeds))):
        playing[index] = _begin(vector, index, waiting.popleft(), players)
    while playing:
        acted = [lanes.live.copy() for lanes in vector.lanes]
        vector.step([_actions(lanes, playing, rng) for lanes in vector.lanes], sorted(playing))
        progress(len(playing))
        for index, running in sorted(playing.items()):
            if vector.replaced[index]:
                playing[index] = _begin(vector, index, running.turn.again(), players)
                continue
            _add(vector, index, running, acted, discounts)
            episode, over = running.episode, vector.over(index)
            if not over and episode.length != max_episode_steps:
                continue
            episode.cut = not over
            episodes[running.turn.position] = episode
            finished(episode, len(episodes))
            del playing[index]
            if waiting:
                playing[index] = _begin(vector, index, waiting.popleft(), players)
    return [episodes[position] for position in range(len(seeds))]


def _begin(
    vector: AgentsVector,
    index: int,
    turn: Turn,
    players: Callable[[int], Mapping[str, Player]],
) -> _Running:
    vector.reset_copy(index, turn.seed)
    while vector.replaced[index]:  # the new environment has begun with a seed of its own
        turn = turn.again()
        vector.reset_copy(index, turn.seed)
    known = players(turn.position)
    states = {agent: np.zeros(player.actor.state_size, np.float32) for agent, player in known.items()}
    nothing = dict.fromkeys(known, 0.0)
    return _Running(turn, AgentsEpisode(turn.seed, index, dict(nothing), dict(nothing)), known, states)


def _actions(lanes: Lanes, playing: Mapping[int, _Running], rng: np.random.Generator) -> Array:
    """The actions [lanes, …] of a group; 0 where nobody acts."""
    agents = lanes.group.agents
    shape, dtype = column_layout(lanes.group.action, what="action", keeps_float64=True)
    actions = np.zeros((len(lanes), *shape), dtype)
    at: dict[int, list[tuple[int, _Running, str]]] = {}
    players: dict[int, Player] = {}
    for index, running in sorted(playing.items()):
        for lane, agent in enumerate(agents, index * len(agents)):
            if lanes.live[lane]:
                player = running.players[agent]
                players[id(player)] = player
                at.setdefault(id(player), []).append((lane, running, agent))
    for key, places in at.items():
        actions[[lane for lane, _, _ in places]] = _act(players[key], lanes, places, rng)
    return actions


def _act(player: Player, lanes: Lanes, places: Sequence[tuple[int, _Running, str]], rng: np.random.Generator) -> Array:
    actor, group = player.actor, lanes.group
    _, dtype = column_layout(group.observation, what="observation", keeps_float64=actor.keeps_float64)
    seen = lanes.observations[[lane for lane, _, _ in places]].astype(dtype, copy=False)
    components, legal = components_of(group.action) if actor.uses_legal_actions else (), None
    if components:
        legal = legal_of_each([lanes.infos[lane] for lane, _, _ in places], components=components)
    if legal is not None and (stuck := without_any(legal, components)).any():
        _, running, agent = places[int(stuck.argmax())]
        raise EvaluationError(
            f"agent {agent} of environment {running.episode.env_index} has no legal action (info[{ACTION_MASK!r}]) "
            f"after step {running.episode.length} of the episode with seed {running.episode.seed}, which goes on"
        )
    state = np.stack([running.states[agent] for _, running, agent in places]) if actor.state_size else None
    deterministic = player.exploration is None
    actions = actor.act(seen, player.exploration or {}, rng, deterministic=deterministic, legal=legal, state=state)
    if state is not None:
        for (_, running, agent), carried in zip(places, state, strict=True):
            running.states[agent] = carried
    return actions


def _add(
    vector: AgentsVector, index: int, running: _Running, acted: Sequence[Bools], discounts: Mapping[str, float]
) -> None:
    """Add the rewards of the newest step of a copy; `acted` says for each group which lanes took part, bool [lanes].
    Raises EvaluationError."""
    episode = running.episode
    episode.length += 1
    for lanes, took_part in zip(vector.lanes, acted, strict=True):
        for lane, agent in enumerate(lanes.group.agents, index * len(lanes.group.agents)):
            reward = float(lanes.reward[lane])
            if not math.isfinite(reward) or not np.isfinite(lanes.observations[lane]).all():
                raise EvaluationError(
                    f"environment {index} returned a number that is not finite for agent {agent} at step "
                    f"{episode.length} of the episode with seed {episode.seed}"
                )
            if not took_part[lane]:
                continue
            weight = running.weights.get(agent, 1.0)
            episode.returns[agent] += reward
            episode.discounted[agent] += weight * reward
            running.weights[agent] = weight * discounts[agent]


def _mean(values: Mapping[str, float], agents: Sequence[str]) -> float:
    return math.fsum(values[agent] for agent in agents) / len(agents)
