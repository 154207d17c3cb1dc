"""Plays the evaluations of a run, in copies of the environment built once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from remuda.config.current import evaluated, on_task
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import AGAINST_PAST, SCORE
from remuda.environments.copies import LocalCopies, local_copies
from remuda.environments.errors import RestartLimit
from remuda.environments.lanes import AGENT
from remuda.environments.make import check_environment, check_evaluated
from remuda.environments.seeding import episode_seed, generator
from remuda.environments.spaces import Array
from remuda.evaluator.evaluate import Episode, Game, Player, Progress, play
from remuda.evaluator.films import Films
from remuda.logbook.statistics import counted, put_together
from remuda.policy.algorithms import declaration
from remuda.policy.base import Policy
from remuda.policy.spaces import ActionSpec
from remuda.wire.messages import MOST_ACTION_DIMENSIONS, Histogram, Task

BUCKETS = 64
"""Buckets for each number of an action; also the most buckets of discrete actions, shared above this number."""
_WIDEST = 1_000.0
"""Above this range a number is counted as unbounded."""
_AT_ONCE = 4_096
"""Most actions kept before counting."""


class ActionCounts:
    """Histograms of the actions of an evaluation. Buckets depend on the action space alone, so histograms of several
    evaluators can be merged."""

    def __init__(self, action: ActionSpec) -> None:
        self._edges = _edges(action)
        self._waiting: list[NDArray[np.generic]] = []
        self._kept = 0
        self._counted: dict[str, Histogram] = {}

    def add(self, actions: NDArray[np.generic]) -> None:
        """Count actions [n, …] in the form of the environment."""
        self._waiting.append(actions.copy())
        self._kept += len(actions)
        if self._kept >= _AT_ONCE:
            self._count()

    def histograms(self) -> dict[str, Histogram]:
        """Return histograms of all actions so far: `action` for discrete actions; `action_0`, `action_1` … for the
        numbers of a Box or the components of other spaces, up to MOST_ACTION_DIMENSIONS. Empty without actions."""
        self._count()
        return dict(self._counted)

    def _count(self) -> None:
        if not self._kept:
            return
        actions = np.concatenate(self._waiting)
        columns = actions.reshape(len(actions), -1)
        self._waiting, self._kept = [], 0
        for column, (name, edges) in enumerate(self._edges.items()):
            new, before = counted(columns[:, column], edges), self._counted.get(name)
            self._counted[name] = new if before is None else put_together(before, new)


def _edges(action: ActionSpec) -> dict[str, NDArray[np.float64]]:
    if action.n is not None:
        return {"action": _edges_of(action.n, action.start)}
    if action.counts:
        each = [_edges_of(count, start) for count, start in zip(action.counts, action.starts, strict=True)]
    else:
        each = [_edges_between(low, high) for low, high in zip(action.low, action.high, strict=True)]
    return {f"action_{number}": edges for number, edges in enumerate(each[:MOST_ACTION_DIMENSIONS])}


def _edges_of(count: int, start: int) -> NDArray[np.float64]:
    """Return the edges of a bucket for each of `count` integers, or of fewer buckets for many integers."""
    first = start - 0.5
    return np.linspace(first, first + count, min(count, BUCKETS) + 1)


def _edges_between(low: float | None, high: float | None) -> NDArray[np.float64]:
    """Return the edges of buckets of equal width between bounds. Without bounds, buckets grow from 0.001 to 1000 on
    both sides of 0, with one bucket beyond."""
    if low is not None and high is not None and 0.0 < high - low <= _WIDEST:
        return np.linspace(low, high, BUCKETS + 1)
    outer = np.append(np.geomspace(1e-3, 1e3, BUCKETS // 2 - 1), 1e9)
    return np.concatenate([-outer[::-1], outer])


@dataclass(frozen=True)
class Evaluated:
    """Result of an evaluation, from the view of a policy."""

    episodes: Sequence[Episode]
    actions: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    """Histograms of the actions; empty if log.histograms is off."""


@dataclass(frozen=True)
class _Games:
    """The newest episodes of all policies together."""

    key: tuple[object, Sequence[int]]
    games: Sequence[Game]
    actions: Sequence[ActionCounts | None]
    """Of each policy."""
    viewed: set[int]
    """Policies that have used these games."""


class EpisodePlayer:
    """Plays episodes of evaluations. The seed of an episode depends only on the episode's number. Policies are numbered
    by the order of their names."""

    def __init__(
        self,
        config: ExperimentConfig,
        policies: Mapping[str, ExperimentConfig],
        *,
        num_envs: int,
        broke: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`policies`: settings of each policy of the run, by name. `broke` receives a text for the log about each
        replaced environment. Raises EnvironmentBuildError."""
        self._given, self._num_envs, self._log_broken = config, max(1, num_envs), broke
        self._league = config.self_play.league is not None
        self._explorations = [declaration(own).least_exploration for own in policies.values()]
        greedy = config.evaluator.deterministic
        self._in_evaluations = [None if greedy else exploration for exploration in self._explorations]
        self.env_restarts = 0
        """Number of replaced environments."""
        self._names = tuple(policies)
        self.agents = tuple(own.env.agents or (AGENT,) for own in policies.values())
        """Agents of each policy."""
        discounts = [declaration(own).rows.discount for own in policies.values()]
        self._discounts = {agent: one for its, one in zip(self.agents, discounts, strict=True) for agent in its}
        self._build(Task())

    def _build(self, task: Task) -> None:
        self._task, self._config = task, evaluated(on_task(self._given, task.kwargs_json))
        self._known: _Games | None = None
        config = self._config
        self.films = Films(config, self.agents[: 1 if self._league else None], self._in_evaluations)
        """Films of the evaluations."""
        try:
            self.copies: LocalCopies = local_copies(
                config.env,
                dict([*zip(self._names, self.agents, strict=True)][: 1 if self._league else None]),
                range(self._num_envs),
                source_dir=config.source_dir,
                limit=RestartLimit(config.env.restarts_per_hour, self._broke),
            )
        except BaseException:
            self.films.close()
            raise

    def _broke(self, text: str) -> None:
        self.env_restarts += 1
        self._log_broken(text)

    def begin(self, task: Task) -> None:
        """Play at this task from now on. Raises EnvironmentBuildError."""
        if task != self._task:
            self.close()
            self._build(task)

    def evaluate(
        self,
        policies: Sequence[Policy],
        judged: int,
        numbers: Sequence[int],
        *,
        older: Sequence[Sequence[Policy]] = (),
        key: object = None,
        progress: Progress = lambda env_steps: None,
        finished: Callable[[Episode, int], None] = lambda episode, count: None,
    ) -> Evaluated:
        """Let the policies play the episodes of these numbers, with exploration if `evaluator.deterministic` is false;
        return the view of the policy with the index `judged`. In self-play it also plays against `older` policies: see
        `play_against`. Equal policies have an equal `key`: then the newest episodes serve each policy once. In a league
        the policy plays all agents itself, and then against the pool. Raises EvaluationError and
        BrokenEnvironmentError."""
        if self._league:
            policies, key = [policies[judged]], None
        explorations = self._in_evaluations[judged if self._league else 0 :]
        players = [Player(*one) for one in zip(policies, explorations, strict=False)]
        agents = self.agents[judged]
        known = self._known
        if key is not None and known is not None and known.key == (key, numbers) and judged not in known.viewed:
            for count, game in enumerate(known.games, 1):
                finished(game.of_policy(agents), count)
        else:
            actions = [self._action_counts(index) for index in range(len(players))]

            def acted(policy_index: int, chosen: Array) -> None:
                if (counts := actions[policy_index]) is not None:
                    counts.add(chosen)

            seated = self.agents[: len(players)]
            everybody = {agent: one for one, its in zip(players, seated, strict=True) for agent in its}
            games = self._play(
                lambda position: everybody,
                numbers,
                progress,
                finished=lambda game, count: finished(game.of_policy(agents), count),
                acted=acted,
            )
            known = self._known = _Games((key, numbers), games, actions, set())
        known.viewed.add(judged)
        episodes = [game.of_policy(agents) for game in known.games]
        counts = known.actions[0 if self._league else judged]
        histograms = {} if counts is None else counts.histograms()
        if self._league:
            return Evaluated(self._in_league(episodes, judged, policies[0], older, numbers, progress), histograms)
        pools = [[Player(one, self._in_evaluations[index]) for one in pool] for index, pool in enumerate(older)]
        pools += [[] for _ in range(len(players) - len(pools))]
        if any(pool for index, pool in enumerate(pools) if index != judged or len(agents) > 1):
            against = self.play_against(judged, players, pools, numbers, progress=progress)
            episodes = [
                replace(one, info={**one.info, AGAINST_PAST: game.returns[agent]})
                for one, (agent, game) in zip(episodes, against, strict=True)
            ]
        return Evaluated(episodes, histograms)

    def _in_league(
        self,
        episodes: Sequence[Episode],
        judged: int,
        policy: Policy,
        older: Sequence[Sequence[Policy]],
        numbers: Sequence[int],
        progress: Progress,
    ) -> Sequence[Episode]:
        """Add the results of as many games against the pool. All explore as little as in training, so games differ."""
        pool = [Player(one, self._explorations[index]) for index, its in enumerate(older) for one in its]
        if not pool:
            return episodes
        agents, player = self.agents[judged], Player(policy, self._explorations[judged])
        seats = [players_against(number, 0, [player], [pool], [agents]) for number in numbers]
        games = self._play(lambda position: seats[position][1], numbers, progress)
        return [
            replace(one, info={**one.info, AGAINST_PAST: game.returns[agent], SCORE: score(game, agent)})
            for one, (agent, _), game in zip(episodes, seats, games, strict=True)
        ]

    def play_against(
        self,
        judged: int,
        players: Sequence[Player],
        others: Sequence[Sequence[Player]],
        numbers: Sequence[int],
        *,
        progress: Progress = lambda env_steps: None,
    ) -> list[tuple[str, Game]]:
        """Let one agent of the policy `judged` play against `others`; see `players_against`. Return the judged agent
        with every episode. Raises like `play`."""
        seats = [players_against(number, judged, players, others, self.agents) for number in numbers]
        games = self._play(lambda position: seats[position][1], numbers, progress)
        return [(agent, game) for (agent, _), game in zip(seats, games, strict=True)]

    def close(self) -> None:
        """Close the copies."""
        self.copies.close()
        self.films.close()

    def _action_counts(self, policy_index: int) -> ActionCounts | None:
        space = self.copies.lanes[policy_index].group.action
        return ActionCounts(ActionSpec.of(space)) if self._config.log.histograms else None

    def _play(
        self,
        players: Callable[[int], Mapping[str, Player]],
        numbers: Sequence[int],
        progress: Progress,
        finished: Callable[[Game, int], None] = lambda game, count: None,
        acted: Callable[[int, Array], None] = lambda policy_index, actions: None,
    ) -> list[Game]:
        return play(
            self.copies,
            players,
            seeds=[episode_seed(self._config.seed, number) for number in numbers],
            rng=generator(self._config.seed, "evaluator", numbers[0], "actions"),
            discounts=self._discounts,
            max_episode_steps=self._config.evaluator.max_episode_steps,
            episode_info=self._config.env.episode_info,
            progress=progress,
            finished=finished,
            acted=acted,
        )


def score(game: Game, agent: str) -> float:
    """Return 1 if the agent has won, a higher return than the mean of all others; 0.5 for equal returns, else 0."""
    others = [value for one, value in game.returns.items() if one != agent]
    mine, theirs = game.returns[agent], math.fsum(others) / max(1, len(others))
    return 0.5 if mine == theirs else float(mine > theirs)


def require_evaluated(policies: Mapping[str, ExperimentConfig]) -> None:
    """Raise EnvironmentBuildError if evaluator.env does not fit the policies."""
    for own in policies.values():
        if own.evaluator.env is not None:
            check_evaluated(own, check_environment(own))


def players_against(
    number: int,
    judged: int,
    players: Sequence[Player],
    others: Sequence[Sequence[Player]],
    agents: Sequence[Sequence[str]],
) -> tuple[str, Mapping[str, Player]]:
    """Return the judged agent of the episode with this number, and the player of each agent.

    The judged agent is agent `number` of the policy `judged`, counting round. The `others` play all remaining agents,
    each for its own policy and changing after each round; without others, the player of the policy does.
    """
    own = agents[judged]
    learner, seats = own[number % len(own)], dict[str, Player]()
    for player, pool, its in zip(players, others, agents, strict=True):
        other = pool[number // len(own) % len(pool)] if pool else player
        seats |= {agent: player if agent == learner else other for agent in its}
    return learner, seats
