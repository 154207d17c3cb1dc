"""What an evaluator plays with: environments of one agent, or of several, in which one policy or more act."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from remuda.config.schema import ExperimentConfig
from remuda.environments.check import check_environment, check_evaluated
from remuda.evaluator.actions import ActionCounts
from remuda.evaluator.agents import AgentsEpisode, Player
from remuda.evaluator.agents_player import AgentsPlayer
from remuda.evaluator.checkpoint_player import CheckpointPlayer
from remuda.evaluator.evaluate import Episode
from remuda.evaluator.films import Films
from remuda.policy.base import Policy
from remuda.wire.messages import Task

Stepped = Callable[[int], None]
Finished = Callable[[Episode, int], None]


class PolicyPlayer(Protocol):
    """Plays episodes of evaluations. An episode number always has the same seed, whoever plays it and when."""

    @property
    def films(self) -> Films:
        """The films of its evaluations, if there are to be any."""
        ...

    def action_counts(self) -> ActionCounts | None:
        """A counter for the actions of an evaluation; None if they are not counted."""
        ...

    def begin(self, task: Task) -> None:
        """Play at this task from now on. Raises EnvironmentBuildError."""
        ...

    def play(
        self,
        policies: Sequence[Policy],
        judged: int,
        numbers: Sequence[int],
        *,
        older: Sequence[Sequence[Policy]],
        actions: ActionCounts | None,
        progress: Stepped,
        finished: Finished,
    ) -> list[Episode]:
        """Let the policies play, greedily, the episodes of these numbers; returns them as the policy at the place
        `judged` sees them. In self-play it also plays against `older` ones of each policy: see AgentsPlayer.with_past.
        Raises as CheckpointPlayer.play_policy and AgentsPlayer.play do."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


def make_player(
    config: ExperimentConfig,
    policies: Mapping[str, ExperimentConfig],
    *,
    num_envs: int,
    broke: Callable[[str], None],
) -> PolicyPlayer:
    """`policies` are the settings of each policy of the run, by name; `broke`: see CheckpointPlayer. Raises
    EnvironmentBuildError, also where evaluator.env does not fit the policies."""
    if config.evaluator.env is not None:
        for own in policies.values():
            check_evaluated(own, check_environment(own))
    if config.env.kind == "pettingzoo":
        return _SeveralAgents(config, policies, num_envs, broke)
    return _OneAgent(CheckpointPlayer(config, num_envs=num_envs, broke=broke))


class _OneAgent:
    def __init__(self, player: CheckpointPlayer) -> None:
        self._player = player

    @property
    def films(self) -> Films:
        return self._player.films

    def begin(self, task: Task) -> None:
        self._player.begin(task)

    def action_counts(self) -> ActionCounts | None:
        return self._player.action_counts()

    def play(
        self,
        policies: Sequence[Policy],
        judged: int,
        numbers: Sequence[int],
        *,
        older: Sequence[Sequence[Policy]],
        actions: ActionCounts | None,
        progress: Stepped,
        finished: Finished,
    ) -> list[Episode]:
        return self._player.play_policy(
            policies[judged], numbers, progress=progress, finished=finished, actions=actions
        )

    def close(self) -> None:
        self._player.close()


class _SeveralAgents:
    """Nothing is filmed and no actions are counted."""

    def __init__(
        self,
        config: ExperimentConfig,
        policies: Mapping[str, ExperimentConfig],
        num_envs: int,
        broke: Callable[[str], None],
    ) -> None:
        assigned = {name: own.env.agents for name, own in policies.items()}
        longest = config.evaluator.max_episode_steps
        self._assigned = tuple(assigned.items())
        self._player = AgentsPlayer(
            config, assigned, policies, num_envs=num_envs, max_episode_steps=longest, broke=broke
        )
        self.films = Films(config)

    def begin(self, task: Task) -> None:
        self._player.begin(task)

    def action_counts(self) -> ActionCounts | None:
        return None

    def play(
        self,
        policies: Sequence[Policy],
        judged: int,
        numbers: Sequence[int],
        *,
        older: Sequence[Sequence[Policy]],
        actions: ActionCounts | None,
        progress: Stepped,
        finished: Finished,
    ) -> list[Episode]:
        name, agents = self._assigned[judged]

        def over(episode: AgentsEpisode, count: int) -> None:
            finished(episode.of_policy(agents), count)

        players = {each: Player(policy) for (each, _), policy in zip(self._assigned, policies, strict=True)}
        episodes = self._player.play(players, numbers, progress=progress, finished=over)
        own = [episode.of_policy(agents) for episode in episodes]
        past = {each: [*map(Player, pool)] for (each, _), pool in zip(self._assigned, older, strict=False)}
        return self._player.with_past(name, players, past, numbers, own, progress=progress)

    def close(self) -> None:
        self._player.close()
        self.films.close()
