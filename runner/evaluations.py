"""How a serial run plays its evaluations: by the weights in memory, of one policy or of all together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from remuda.config.schema import ExperimentConfig
from remuda.evaluator.actions import ActionCounts
from remuda.evaluator.agents import AgentsEpisode, Player
from remuda.evaluator.agents_player import AgentsPlayer
from remuda.evaluator.checkpoint_player import CheckpointPlayer
from remuda.evaluator.evaluate import Episode
from remuda.evaluator.films import Films
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.wire.messages import Task

Stepped = Callable[[int], None]
Finished = Callable[[Episode, int], None]


class Evaluations(Protocol):
    """Evaluates one policy as its learner has it now."""

    @property
    def films(self) -> Films:
        """The films of its evaluations, if there are to be any."""
        ...

    @property
    def policy(self) -> Policy:
        """What was evaluated last."""
        ...

    def action_counts(self) -> ActionCounts | None:
        """A counter for the actions of an evaluation; None if they are not counted."""
        ...

    def begin(self, task: Task) -> None:
        """Play at this task from now on. Raises EnvironmentBuildError."""
        ...

    def play(
        self, numbers: Sequence[int], *, actions: ActionCounts | None, progress: Stepped, finished: Finished
    ) -> list[Episode]:
        """Play, greedily, the episodes of these numbers; see CheckpointPlayer.play_policy. Raises as that."""
        ...


@dataclass(frozen=True)
class OwnEvaluations:
    """The evaluations of a run with one agent."""

    player: CheckpointPlayer
    algorithm: Algorithm
    policy: Policy

    @property
    def films(self) -> Films:
        """See Evaluations."""
        return self.player.films

    def action_counts(self) -> ActionCounts | None:
        """See Evaluations."""
        return self.player.action_counts()

    def begin(self, task: Task) -> None:
        """See Evaluations."""
        self.player.begin(task)

    def play(
        self, numbers: Sequence[int], *, actions: ActionCounts | None, progress: Stepped, finished: Finished
    ) -> list[Episode]:
        """See Evaluations."""
        self.policy.load_state(self.algorithm.published_state())
        return self.player.play_policy(self.policy, numbers, actions=actions, progress=progress, finished=finished)


@dataclass
class _Evaluated:
    """One of several policies that are evaluated together."""

    config: ExperimentConfig
    algorithm: Algorithm
    policy: Policy
    films: Films
    past: deque[tuple[int, Player]]
    """The newest checkpoints, each with its update; the newest is the last, and may be the one that is evaluated."""


@dataclass
class JointEvaluations:
    """The evaluations of several policies, which play together: one evaluation serves all of them, as long as no policy
    has learned since."""

    player: AgentsPlayer
    moment: Callable[[], Mapping[str, int]] = dict[str, int]
    """The updates that each policy has done: what was played at the same moment is not played again. Set by the
    loop."""
    _policies: dict[str, _Evaluated] = field(default_factory=dict[str, _Evaluated], init=False)
    _played: tuple[Mapping[str, int], Sequence[int], Mapping[str, list[Episode]]] | None = field(
        default=None, init=False
    )

    def add(self, name: str, config: ExperimentConfig, algorithm: Algorithm) -> OneOfSeveral:
        """Evaluate this policy, too; returns its own view."""
        policy = make_policy(config, algorithm.observation, algorithm.action)
        past = deque[tuple[int, Player]](maxlen=config.self_play.keep + 1)
        self._policies[name] = _Evaluated(config, algorithm, policy, Films(config), past)
        return OneOfSeveral(self, name)

    def remember(self, name: str, train_iter: int, policy: Policy) -> None:
        """Once it has learned further, policies also play against the policy of this name as it is after this
        update."""
        self._policies[name].past.append((train_iter, Player(policy)))

    def begin(self, task: Task) -> None:
        """Play at this task from now on; the same for all policies."""
        self.player.begin(task)
        self._played = None

    def of(self, name: str) -> _Evaluated:
        """What is known of a policy."""
        return self._policies[name]

    def play(self, name: str, numbers: Sequence[int], progress: Stepped, finished: Finished) -> list[Episode]:
        """The episodes as this policy sees them."""
        agents, now = self.player.assigned[name], self.moment()
        known = self._played
        if known is not None and known[:2] == (now, numbers):
            for count, episode in enumerate(known[2][name], 1):
                finished(episode, count)
            return known[2][name]
        players: dict[str, Player] = {}
        for each, evaluated in self._policies.items():
            evaluated.policy.load_state(evaluated.algorithm.published_state())
            players[each] = Player(evaluated.policy)

        def over(episode: AgentsEpisode, count: int) -> None:
            finished(episode.of_policy(agents), count)

        episodes = self.player.play(players, numbers, progress=progress, finished=over)
        results = {each: [one.of_policy(its) for one in episodes] for each, its in self.player.assigned.items()}
        past = {
            each: [player for train_iter, player in evaluated.past if train_iter != now.get(each)]
            for each, evaluated in self._policies.items()
        }
        for each, own in results.items():
            results[each] = self.player.with_past(each, players, past, numbers, own, progress=progress)
        self._played = now, numbers, results
        return results[name]


@dataclass(frozen=True)
class OneOfSeveral:
    """The evaluations of one of several policies."""

    joint: JointEvaluations
    name: str

    @property
    def films(self) -> Films:
        """There are none yet."""
        return self.joint.of(self.name).films

    @property
    def policy(self) -> Policy:
        """See Evaluations."""
        return self.joint.of(self.name).policy

    def action_counts(self) -> ActionCounts | None:
        """Actions are not counted."""
        return None

    def begin(self, task: Task) -> None:
        """See Evaluations."""
        self.joint.begin(task)

    def play(
        self, numbers: Sequence[int], *, actions: ActionCounts | None, progress: Stepped, finished: Finished
    ) -> list[Episode]:
        """See Evaluations."""
        return self.joint.play(self.name, numbers, progress, finished)
