"""The evaluation of a checkpoint: shares of its episodes for evaluators, and the result."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remuda.environments.assignment import SCORE
from remuda.logbook.statistics import merged, put_together
from remuda.training.snapshot import EvaluationResult, EvaluationSnapshot
from remuda.wire.messages import MOST_ACTION_DIMENSIONS, CheckpointRecord, Histogram, Task


@dataclass(frozen=True)
class Share:
    """Consecutive episodes for an evaluator."""

    first_episode: int
    episodes: int


@dataclass
class Evaluation:
    """Distributes episodes to evaluators and collects the results, every episode exactly once.

    Another evaluator plays the episodes of a lost one. A repeated result counts once.
    """

    number: int
    record: CheckpointRecord
    episodes: int
    started_s: float
    beside: tuple[CheckpointRecord, ...] | None = None
    """Checkpoints of the run's remaining policies; None until every policy has a checkpoint."""
    older: tuple[tuple[CheckpointRecord, ...], ...] = ()
    """Older checkpoints of every policy as opponents, in self-play."""
    task: Task = field(default_factory=Task)
    """Task of the evaluation."""
    _undealt: list[Share] = field(default_factory=list[Share])
    _dealt: dict[int, Share] = field(default_factory=dict[int, Share])
    """The shares under way, by lease of the evaluator."""
    _played: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])
    """Return and length of each finished episode."""
    _info: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    actions: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    """Histograms of the actions, by name; empty if they are not counted."""
    _cut: int = 0
    scores: dict[int, float] = field(default_factory=dict[int, float])
    """Of each game in a league."""

    def __post_init__(self) -> None:
        self._undealt = [Share(0, self.episodes)]

    def deal(self, evaluators: Sequence[int]) -> list[tuple[int, Share]]:
        """Give each idle evaluator (by lease) a share of the unassigned episodes."""
        idle = [lease for lease in evaluators if lease not in self._dealt]
        dealt: list[tuple[int, Share]] = []
        for position, lease in enumerate(idle):
            left = sum(share.episodes for share in self._undealt)
            if left == 0:
                break
            share = self._take(math.ceil(left / (len(idle) - position)))
            self._dealt[lease] = share
            dealt.append((lease, share))
        return dealt

    def _take(self, episodes: int) -> Share:
        first = self._undealt[0]
        taken = min(first.episodes, episodes)
        rest = Share(first.first_episode + taken, first.episodes - taken)
        self._undealt[0:1] = [rest] if rest.episodes else []
        return Share(first.first_episode, taken)

    def finished(
        self,
        lease: int,
        first_episode: int,
        returns: Sequence[float],
        lengths: Sequence[int],
        *,
        info: Mapping[str, Sequence[float]] | None = None,
        actions: Mapping[str, Histogram] | None = None,
        cut: int = 0,
    ) -> bool:
        """Add the results of a share. Return False if this evaluator was not asked for them."""
        share = self._dealt.get(lease)
        if share != Share(first_episode, len(returns)) or len(returns) != len(lengths):
            return False
        del self._dealt[lease]
        self._played |= enumerate(zip(returns, lengths, strict=True), first_episode)
        scores = (info or {}).get(SCORE, ())
        self.scores |= enumerate(scores, first_episode) if len(scores) == len(returns) else ()
        self._info = merged([self._info, info or {}])
        self._add_actions(actions or {})
        self._cut += cut
        return True

    def _add_actions(self, actions: Mapping[str, Histogram]) -> None:
        """Add the action counts of a share; counts in different buckets are left out."""
        for name, new in actions.items():
            before = self.actions.get(name)
            if before is not None:
                with contextlib.suppress(ValueError):
                    self.actions[name] = put_together(before, new)
            elif len(self.actions) < MOST_ACTION_DIMENSIONS:
                self.actions[name] = new

    def lost(self, lease: int) -> None:
        """Return the share of a lost evaluator to the unassigned episodes."""
        share = self._dealt.pop(lease, None)
        if share is not None:
            self._undealt.insert(0, share)

    @property
    def complete(self) -> bool:
        """True once every episode has been played."""
        return len(self._played) == self.episodes

    def result(self, now_s: float) -> EvaluationResult:
        """Return the result of a complete evaluation."""
        returns, lengths = zip(*map(self._played.__getitem__, range(self.episodes)), strict=True)
        return EvaluationResult(
            record=self.record,
            returns=returns,
            lengths=lengths,
            duration_s=now_s - self.started_s,
            info=self._info,
            cut=self._cut,
            task=self.task,
        )

    def share_of(self, lease: int) -> Share | None:
        """The share that this evaluator is playing, if any."""
        return self._dealt.get(lease)

    def snapshot(self, now_s: float) -> EvaluationSnapshot:
        """Return the state for a restarted coordinator."""
        return EvaluationSnapshot(
            number=self.number,
            record=self.record,
            episodes=self.episodes,
            elapsed_s=now_s - self.started_s,
            undealt=[(share.first_episode, share.episodes) for share in self._undealt],
            dealt=[(lease, share.first_episode, share.episodes) for lease, share in self._dealt.items()],
            played=[(episode, *played) for episode, played in self._played.items()],
            info=merged([self._info]),
            actions=dict(self.actions),
            cut=self._cut,
            beside=None if self.beside is None else list(self.beside),
            older=[list(records) for records in self.older],
            task=self.task,
            scores=[*self.scores.items()],
        )

    @classmethod
    def of(cls, snapshot: EvaluationSnapshot, now_s: float) -> Evaluation:
        """The evaluation of a snapshot."""
        beside = None if snapshot.beside is None else tuple(snapshot.beside)
        started_s = now_s - snapshot.elapsed_s
        older = tuple(tuple(records) for records in snapshot.older)
        restored = cls(snapshot.number, snapshot.record, snapshot.episodes, started_s, beside, older, snapshot.task)
        restored._undealt = [Share(*share) for share in snapshot.undealt]
        restored._dealt = {lease: Share(first, episodes) for lease, first, episodes in snapshot.dealt}
        restored._played = {episode: (return_, length) for episode, return_, length in snapshot.played}
        restored._info = merged([snapshot.info])
        restored.actions = dict(snapshot.actions)
        restored._cut = snapshot.cut
        restored.scores = dict(snapshot.scores)
        return restored
