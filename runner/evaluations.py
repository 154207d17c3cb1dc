"""Plays the evaluations of a serial run, with the weights in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from remuda.environments.spaces import Array
from remuda.evaluator.evaluate import Episode, Player, Progress
from remuda.evaluator.films import Films
from remuda.evaluator.player import EpisodePlayer, Finished
from remuda.policy.base import Algorithm, Policy
from remuda.policy.opponent_pool import OpponentPool
from remuda.wire.messages import Histogram, Task


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation, as one policy sees it."""

    episodes: Sequence[Episode]
    actions: Mapping[str, Histogram]
    """Histograms of its actions; empty if log.histograms is off."""


@dataclass(frozen=True)
class _Played:
    """The newest evaluation of several policies, which serves all of them until one has learned further."""

    train_iters: Sequence[int]
    numbers: Sequence[int]
    results: Sequence[Evaluated]


@dataclass
class JointEvaluations:
    """The evaluations of all policies of a run, which play together."""

    player: EpisodePlayer
    pool: OpponentPool | None = None
    """The older policies of self-play."""
    train_iters: Callable[[], Sequence[int]] = tuple[int, ...]
    """The updates that each policy has done. Set by the loop."""
    _algorithms: list[Algorithm] = field(default_factory=list[Algorithm], init=False)
    policies: list[Policy] = field(default_factory=list[Policy], init=False)
    """Of each policy: the weights that were evaluated last."""
    _played: _Played | None = field(default=None, init=False)

    def add(self, algorithm: Algorithm, policy: Policy) -> Evaluations:
        """Evaluate another policy; `policy` plays with the weights of `algorithm`. Returns its own view."""
        self._algorithms.append(algorithm)
        self.policies.append(policy)
        return Evaluations(self, len(self.policies) - 1)

    def begin(self, task: Task) -> None:
        """Play at this task from now on; the same for all policies. Raises EnvironmentBuildError."""
        self.player.begin(task)
        self._played = None

    def play(self, policy_index: int, numbers: Sequence[int], progress: Progress, finished: Finished) -> Evaluated:
        """The evaluation of one policy. Raises as EpisodePlayer.evaluate."""
        now, known = self.train_iters(), self._played
        if known is not None and (known.train_iters, known.numbers) == (now, numbers):
            for count, episode in enumerate(known.results[policy_index].episodes, 1):
                finished(episode, count)
            return known.results[policy_index]
        results = self._play(policy_index, numbers, now, progress, finished)
        self._played = _Played(now, numbers, results) if len(results) > 1 else None
        return results[policy_index]

    def _play(
        self, policy_index: int, numbers: Sequence[int], now: Sequence[int], progress: Progress, finished: Finished
    ) -> list[Evaluated]:
        player, indices = self.player, range(len(self.policies))
        for policy, algorithm in zip(self.policies, self._algorithms, strict=True):
            policy.load_state(algorithm.published_state())
        players = [Player(policy) for policy in self.policies]
        counts = [player.action_counts(index) for index in indices]
        agents = player.agents

        def acted(index: int, actions: Array) -> None:
            own = counts[index]
            if own is not None:
                own.add(actions)

        games = player.play(
            players,
            numbers,
            progress=progress,
            finished=lambda game, count: finished(game.of_policy(agents[policy_index]), count),
            acted=acted,
        )
        older: list[list[Player]] = []
        if self.pool is not None:
            pool = self.pool
            older = [[Player(one) for one in pool.all_but(index, now[index] if now else None)] for index in indices]
        results: list[Evaluated] = []
        for index in indices:
            own = [game.of_policy(agents[index]) for game in games]
            episodes = player.against_older(index, players, older, numbers, own, progress=progress)
            counted = counts[index]
            results.append(Evaluated(episodes, {} if counted is None else counted.histograms()))
        return results


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of one policy."""

    joint: JointEvaluations
    policy_index: int

    @property
    def films(self) -> Films:
        """The films of its evaluations, if there are to be any."""
        return self.joint.player.films

    @property
    def policies(self) -> Sequence[Policy]:
        """All policies of the run, with the weights that were evaluated last."""
        return self.joint.policies

    def begin(self, task: Task) -> None:
        """See JointEvaluations."""
        self.joint.begin(task)

    def play(self, numbers: Sequence[int], *, progress: Progress, finished: Finished) -> Evaluated:
        """Play, greedily, the episodes of these numbers. Raises as EpisodePlayer.evaluate."""
        return self.joint.play(self.policy_index, numbers, progress, finished)
