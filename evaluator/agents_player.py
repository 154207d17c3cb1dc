"""Plays evaluations of runs with several agents, in copies of the environment that are built once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from remuda.config.current import evaluated, on_task
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import AgentsVector, make_agents_vector
from remuda.environments.assignment import AGAINST_PAST
from remuda.environments.seeding import episode_seed, generator
from remuda.evaluator.agents import AgentsEpisode, Player, play_agents
from remuda.evaluator.evaluate import Episode
from remuda.policy.algorithms import declaration
from remuda.wire.messages import Task


class AgentsPlayer:
    """Plays episodes of evaluations. An episode number always has the same seed, whoever plays it and when."""

    def __init__(
        self,
        config: ExperimentConfig,
        assigned: Mapping[str, Sequence[str]],
        configs: Mapping[str, ExperimentConfig],
        *,
        num_envs: int,
        max_episode_steps: int | None = None,
        broke: Callable[[str], None],
    ) -> None:
        """`assigned` is the agents of each policy, `configs` the settings of each. Episodes are cut after
        `max_episode_steps`. `broke` gets a text for the log about each environment that is made again. Raises
        EnvironmentBuildError."""
        self._config = config
        self._max_episode_steps = max_episode_steps
        self.assigned = assigned
        discounts = {name: declaration(own).rows.discount for name, own in configs.items()}
        self._discounts = {agent: discounts[name] for name, agents in assigned.items() for agent in agents}
        self._num_envs, self._broke, self._task = num_envs, broke, Task()
        self._vector = self._build()

    def _build(self) -> AgentsVector:
        config = evaluated(on_task(self._config, self._task.kwargs_json))
        return make_agents_vector(
            config.env, self.assigned, num_envs=self._num_envs, source_dir=config.source_dir, broke=self._broke
        )

    def begin(self, task: Task) -> None:
        """Play at this task from now on. Raises EnvironmentBuildError."""
        if task != self._task:
            self._vector.close()
            self._task = task
            self._vector = self._build()

    def play(
        self,
        players: Mapping[str, Player],
        numbers: Sequence[int],
        *,
        seed: int | None = None,
        progress: Callable[[int], None] = lambda env_steps: None,
        finished: Callable[[AgentsEpisode, int], None] = lambda episode, count: None,
    ) -> list[AgentsEpisode]:
        """Let each policy's player act for all of its agents, in the episodes of these numbers. `seed` is the run's
        unless given. Raises EvaluationError, and what the environment raises."""
        everybody = {agent: players[name] for name, agents in self.assigned.items() for agent in agents}
        return self._play(lambda position: everybody, numbers, seed, progress, finished)

    def play_against(
        self,
        judged: str,
        players: Mapping[str, Player],
        others: Mapping[str, Sequence[Player]],
        numbers: Sequence[int],
        *,
        seed: int | None = None,
        progress: Callable[[int], None] = lambda env_steps: None,
    ) -> list[tuple[str, AgentsEpisode]]:
        """Let one agent of the policy `judged` play against `others`: in episode n its agent number n, counting round.
        All other agents are played by one of the `others` of their policy, the next whenever all agents of `judged`
        have had a turn; by the player of their policy where there are none. Returns that agent with each episode.
        Raises as `play`."""
        own = self.assigned[judged]

        def in_episode(number: int) -> Mapping[str, Player]:
            learner, chosen = own[number % len(own)], dict[str, Player]()
            for name, agents in self.assigned.items():
                pool = others.get(name, ())
                other = pool[number // len(own) % len(pool)] if pool else players[name]
                chosen |= {agent: players[name] if agent == learner else other for agent in agents}
            return chosen

        episodes = self._play(lambda at: in_episode(numbers[at]), numbers, seed, progress, lambda episode, count: None)
        return [(own[number % len(own)], episode) for number, episode in zip(numbers, episodes, strict=True)]

    def with_past(
        self,
        judged: str,
        players: Mapping[str, Player],
        past: Mapping[str, Sequence[Player]],
        numbers: Sequence[int],
        episodes: Sequence[Episode],
        *,
        progress: Callable[[int], None],
    ) -> list[Episode]:
        """These `episodes` of the policy `judged`, each with the return of one of its agents against players of the
        `past` beside it, in self-play; without it where nobody that it plays against is of the past. Raises as
        `play`."""
        own = self.assigned[judged]
        if not any(pool for name, pool in past.items() if name != judged or len(own) > 1):
            return list(episodes)
        played = self.play_against(judged, players, past, numbers, progress=progress)
        pairs = zip(episodes, played, strict=True)
        return [replace(one, info={**one.info, AGAINST_PAST: game.returns[agent]}) for one, (agent, game) in pairs]

    def close(self) -> None:
        """Close the copies."""
        self._vector.close()

    def _play(
        self,
        players: Callable[[int], Mapping[str, Player]],
        numbers: Sequence[int],
        seed: int | None,
        progress: Callable[[int], None],
        finished: Callable[[AgentsEpisode, int], None],
    ) -> list[AgentsEpisode]:
        base = self._config.seed if seed is None else seed
        return play_agents(
            self._vector,
            players,
            seeds=[episode_seed(base, number) for number in numbers],
            rng=generator(base, "evaluator", 0, "actions"),
            discounts=self._discounts,
            max_episode_steps=self._max_episode_steps,
            progress=progress,
            finished=finished,
        )
