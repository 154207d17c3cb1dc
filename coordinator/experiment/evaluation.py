"""One evaluation of one checkpoint, shared between evaluators."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remuda.logbook.histogram import put_together
from remuda.logbook.statistics import merged
from remuda.training.commander.evaluation import EvaluationResult
from remuda.training.snapshot import EvaluationSnapshot
from remuda.wire.messages import MOST_ACTION_DIMENSIONS, CheckpointRecord, Histogram, Task


@dataclass(frozen=True)
class Share:
    """Consecutive episodes that one evaluator plays."""

    first_episode: int
    episodes: int


@dataclass
class Evaluation:
    """Distributes episodes to evaluators and collects the results, each episode exactly once.

    If an evaluator is lost, others play its episodes. A result that arrives twice counts once.
    """

    number: int
    record: CheckpointRecord
    episodes: int
    started_s: float
    beside: tuple[CheckpointRecord, ...] | None = None
    """What the other policies of the run play with; None until each of them has a checkpoint."""
    older: tuple[tuple[CheckpointRecord, ...], ...] = ()
    """In self-play the older checkpoints of each policy that are played against, too."""
    task: Task = field(default_factory=Task)
    """The task that is played."""
    _undealt: list[Share] = field(default_factory=list[Share])
    _dealt: dict[int, Share] = field(default_factory=dict[int, Share])
    """The shares under way, by lease of the evaluator."""
    _returns: dict[int, float] = field(default_factory=dict[int, float])
    _lengths: dict[int, int] = field(default_factory=dict[int, int])
    _info: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    _actions: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    _cut: int = 0

    def __post_init__(self) -> None:
        self._undealt = [Share(0, self.episodes)]

    def deal(self, evaluators: Sequence[int]) -> list[tuple[int, Share]]:
        """Give each idle evaluator (by lease) a share of the episodes that nobody plays yet."""
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
        """Add the results of a share. False if this evaluator was not asked for them."""
        share = self._dealt.get(lease)
        if share != Share(first_episode, len(returns)) or len(returns) != len(lengths):
            return False
        del self._dealt[lease]
        for offset, (return_, length) in enumerate(zip(returns, lengths, strict=True)):
            self._returns[first_episode + offset] = return_
            self._lengths[first_episode + offset] = length
        self._info = merged([self._info, info or {}])
        self._add_actions(actions or {})
        self._cut += cut
        return True

    def _add_actions(self, actions: Mapping[str, Histogram]) -> None:
        """Add the action counts of a share. A share with other buckets than those before is left out."""
        for name, new in actions.items():
            before = self._actions.get(name)
            if before is not None:
                with contextlib.suppress(ValueError):
                    self._actions[name] = put_together(before, new)
            elif len(self._actions) < MOST_ACTION_DIMENSIONS:
                self._actions[name] = new

    def lost(self, lease: int) -> None:
        """The evaluator is lost; its share has to be played by others."""
        share = self._dealt.pop(lease, None)
        if share is not None:
            self._undealt.insert(0, share)

    @property
    def complete(self) -> bool:
        """Whether every episode has been played."""
        return len(self._returns) == self.episodes

    def result(self, now_s: float) -> EvaluationResult:
        """The result of the whole evaluation; only when it is complete."""
        order = range(self.episodes)
        return EvaluationResult(
            record=self.record,
            returns=tuple(self._returns[i] for i in order),
            lengths=tuple(self._lengths[i] for i in order),
            duration_s=now_s - self.started_s,
            info=self._info,
            cut=self._cut,
            task=self.task,
        )

    @property
    def actions(self) -> Mapping[str, Histogram]:
        """How often the policy took which action, by name; empty if nobody counts that."""
        return self._actions

    def share_of(self, lease: int) -> Share | None:
        """The share that this evaluator is playing, if any."""
        return self._dealt.get(lease)

    def snapshot(self, now_s: float) -> EvaluationSnapshot:
        """What a restarted coordinator needs."""
        return EvaluationSnapshot(
            number=self.number,
            record=self.record,
            episodes=self.episodes,
            elapsed_s=now_s - self.started_s,
            undealt=[(share.first_episode, share.episodes) for share in self._undealt],
            dealt=[(lease, share.first_episode, share.episodes) for lease, share in self._dealt.items()],
            played=[(episode, self._returns[episode], self._lengths[episode]) for episode in self._returns],
            info=merged([self._info]),
            actions=dict(self._actions),
            cut=self._cut,
            beside=None if self.beside is None else list(self.beside),
            older=[list(records) for records in self.older],
            task=self.task,
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
        restored._returns = {episode: return_ for episode, return_, _ in snapshot.played}
        restored._lengths = {episode: length for episode, _, length in snapshot.played}
        restored._info = merged([snapshot.info])
        restored._actions = dict(snapshot.actions)
        restored._cut = snapshot.cut
        return restored
