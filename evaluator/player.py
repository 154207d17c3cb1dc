"""Plays the evaluations of a run, in copies of its environment built once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from remuda.config.current import evaluated, on_task
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import AGAINST_PAST
from remuda.environments.check import check_environment, check_evaluated
from remuda.environments.copies import LocalCopies, make_local_copies
from remuda.environments.lanes import AGENT
from remuda.environments.seeding import episode_seed, generator
from remuda.environments.spaces import Array
from remuda.evaluator.actions import ActionCounts
from remuda.evaluator.evaluate import Episode, Game, Player, Progress, play
from remuda.evaluator.films import Films
from remuda.policy.algorithms import declaration
from remuda.policy.base import Policy
from remuda.policy.spaces import ActionSpec
from remuda.wire.messages import Task

Finished = Callable[[Episode, int], None]


class EpisodePlayer:
    """Plays episodes of evaluations. The seed of an episode depends only on its number. Policies are numbered by the
    order of their names."""

    def __init__(
        self,
        config: ExperimentConfig,
        policies: Mapping[str, ExperimentConfig],
        *,
        num_envs: int,
        broke: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`policies` are the settings of each policy of the run, by name. `broke` receives a text for the log about
        each replaced environment. Raises EnvironmentBuildError."""
        self._given, self._num_envs, self._broke = config, max(1, num_envs), broke
        self._names = tuple(policies)
        self.agents = tuple(own.env.agents or (AGENT,) for own in policies.values())
        """Agents of each policy."""
        discounts = [declaration(own).rows.discount for own in policies.values()]
        self._discounts = {agent: one for its, one in zip(self.agents, discounts, strict=True) for agent in its}
        self._build(Task())

    def _build(self, task: Task) -> None:
        self._task, self._config = task, evaluated(on_task(self._given, task.kwargs_json))
        config = self._config
        self.films = Films(config, self.agents)
        """Films of the evaluations."""
        try:
            self.copies: LocalCopies = make_local_copies(
                config.env,
                dict(zip(self._names, self.agents, strict=True)),
                num_envs=self._num_envs,
                source_dir=config.source_dir,
                broke=self._broke,
            )
        except BaseException:
            self.films.close()
            raise

    def begin(self, task: Task) -> None:
        """Play at this task from now on. Raises EnvironmentBuildError."""
        if task != self._task:
            self.close()
            self._build(task)

    def action_counts(self, policy_index: int = 0) -> ActionCounts | None:
        """Return a counter for the actions of a policy in an evaluation; None if log.histograms is off."""
        space = self.copies.lanes[policy_index].group.action
        return ActionCounts(ActionSpec.of(space)) if self._config.log.histograms else None

    def evaluate(
        self,
        policies: Sequence[Policy],
        judged: int,
        numbers: Sequence[int],
        *,
        older: Sequence[Sequence[Policy]] = (),
        actions: ActionCounts | None = None,
        progress: Progress = lambda env_steps: None,
        finished: Finished = lambda episode, count: None,
    ) -> list[Episode]:
        """Let the policies play, greedily, the episodes of these numbers; return them from the view of the policy with
        the index `judged`. `actions` counts its actions. In self-play it also plays against `older` policies: see
        `against_older`. Raises EvaluationError and BrokenEnvironmentError."""
        players, agents = [Player(policy) for policy in policies], self.agents[judged]

        def acted(policy_index: int, chosen: Array) -> None:
            if actions is not None and policy_index == judged:
                actions.add(chosen)

        games = self.play(
            players,
            numbers,
            progress=progress,
            finished=lambda game, count: finished(game.of_policy(agents), count),
            acted=acted,
        )
        own = [game.of_policy(agents) for game in games]
        pools = [[Player(policy) for policy in pool] for pool in older]
        pools += [[] for _ in range(len(players) - len(pools))]
        return self.against_older(judged, players, pools, numbers, own, progress=progress)

    def play(
        self,
        players: Sequence[Player],
        numbers: Sequence[int],
        *,
        progress: Progress = lambda env_steps: None,
        finished: Callable[[Game, int], None] = lambda game, count: None,
        acted: Callable[[int, Array], None] = lambda policy_index, actions: None,
    ) -> list[Game]:
        """Play the episodes of these numbers, with one player for all agents of each policy. Raises EvaluationError,
        and errors of the environment."""
        everybody = {agent: one for one, its in zip(players, self.agents, strict=True) for agent in its}
        return self._play(lambda position: everybody, numbers, progress, finished, acted)

    def play_against(
        self,
        judged: int,
        players: Sequence[Player],
        others: Sequence[Sequence[Player]],
        numbers: Sequence[int],
        *,
        progress: Progress = lambda env_steps: None,
    ) -> list[tuple[str, Game]]:
        """Let one agent of the policy `judged` play against `others`; see `seats_against`. Returns the judged agent
        with each episode. Raises like `play`."""
        seats = [seats_against(number, judged, players, others, self.agents) for number in numbers]
        games = self._play(lambda position: seats[position][1], numbers, progress)
        return [(agent, game) for (agent, _), game in zip(seats, games, strict=True)]

    def against_older(
        self,
        judged: int,
        players: Sequence[Player],
        older: Sequence[Sequence[Player]],
        numbers: Sequence[int],
        episodes: Sequence[Episode],
        *,
        progress: Progress,
    ) -> list[Episode]:
        """Return the `episodes` of the policy `judged`, each with the return of one agent against `older` players of
        each policy, in self-play; unchanged without older opponents. Raises like `play`."""
        own = self.agents[judged]
        if not any(pool for index, pool in enumerate(older) if index != judged or len(own) > 1):
            return list(episodes)
        played = self.play_against(judged, players, older, numbers, progress=progress)
        pairs = zip(episodes, played, strict=True)
        return [replace(one, info={**one.info, AGAINST_PAST: game.returns[agent]}) for one, (agent, game) in pairs]

    def close(self) -> None:
        """Close the copies."""
        self.copies.close()
        self.films.close()

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
            rng=generator(self._config.seed, "evaluator", 0, "actions"),
            discounts=self._discounts,
            max_episode_steps=self._config.evaluator.max_episode_steps,
            episode_info=self._config.env.episode_info,
            progress=progress,
            finished=finished,
            acted=acted,
        )


def require_evaluated(policies: Mapping[str, ExperimentConfig]) -> None:
    """Raise EnvironmentBuildError if evaluator.env does not fit the policies."""
    for own in policies.values():
        if own.evaluator.env is not None:
            check_evaluated(own, check_environment(own))


def seats_against(
    number: int,
    judged: int,
    players: Sequence[Player],
    others: Sequence[Sequence[Player]],
    agents: Sequence[Sequence[str]],
) -> tuple[str, Mapping[str, Player]]:
    """Return the judged agent of the episode with this number, and the player of each agent.

    The judged agent is agent `number` of the policy `judged`, counting round. All other agents are played by one of the
    `others` of their policy, changing after each round; without others, by the player of their policy.
    """
    own = agents[judged]
    learner, seats = own[number % len(own)], dict[str, Player]()
    for player, pool, its in zip(players, others, agents, strict=True):
        other = pool[number // len(own) % len(pool)] if pool else player
        seats |= {agent: player if agent == learner else other for agent in its}
    return learner, seats
