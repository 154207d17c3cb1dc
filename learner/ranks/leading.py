"""What rank 0 does with the other ranks: it splits batches, and puts together what was learned from the parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from remuda.config.current import Values
from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.following import SIGN_OF_LIFE_S, beginning
from remuda.learner.ranks.group import RankGroup
from remuda.learner.ranks.line import Line, Message
from remuda.learner.ranks.parts import packed, split, together, unpacked
from remuda.learner.ranks.trial import RanksTrial, Verdict
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.ranks import ONE_RANK, RankLostError


class Followers(Protocol):
    """The ranks besides rank 0, for one lease: processes of this machine, or of others."""

    @property
    def lines(self) -> Sequence[Line]:
        """To ranks 1, 2 …"""
        ...

    def describe(self) -> str:
        """Which processes they are, for people."""
        ...

    def check(self) -> None:
        """Raise RankLostError if one of them has ended."""
        ...

    def explained(self, error: RankLostError) -> RankLostError:
        """The same error, or one that says more."""
        ...

    def close(self) -> None:
        """Let go of them; may be called again."""
        ...


Recruits = Callable[[ExperimentConfig], Followers]
"""Gets the ranks for a lease. Raises RankLostError."""


class LearnerRanks:
    """The ranks of a learner, for one lease. This process is rank 0; the others hold nothing that would be lost with
    them."""

    def __init__(
        self, config: ExperimentConfig, algorithm: Algorithm, recruits: Recruits, *, trial: RanksTrial | None = None
    ) -> None:
        """Get the other ranks; returns once all can learn, with the state that `algorithm` has now.

        With `trial`, the first batches show whether it is worth while. Raises RankLostError.
        """
        self.world_size = config.learner.ranks
        self._algorithm = algorithm
        self._trial = trial
        self._found: Verdict | None = None
        self._followers = recruits(config)
        self._said_s = time.monotonic()
        try:
            self._begin(config)
        except RankLostError as error:
            explained = self._followers.explained(error)
            self._followers.close()
            raise explained from error
        except BaseException:
            self._followers.close()
            raise
        self._group = RankGroup(0, self.world_size, self._followers.lines)
        algorithm.ranks = self._group

    def describe(self) -> str:
        """Which processes the others are, for people."""
        return self._followers.describe()

    def learn(self, batch: Arrays) -> LearnResult:
        """Learn from a batch, a part of it in each rank. Raises RankLostError, and what the algorithm raises."""
        begun_s = time.perf_counter()
        before_s = self._group.spent_s
        own, *parts = split(batch, self.world_size, first=self._first(batch))
        try:
            for line, part in zip(self._followers.lines, parts, strict=True):
                line.send(Message.BATCH, *packed(part))
            computing_s = time.perf_counter()
            result = self._algorithm.learn(own)
            computing_s = time.perf_counter() - computing_s - (self._group.spent_s - before_s)
            others = [unpacked(line.expect(Message.RESULT)) for line in self._followers.lines]
        except RankLostError as error:
            raise self._followers.explained(error) from error
        whole = together(result, others)
        self._said_s = time.monotonic()
        if self._trial is not None:
            self._trial.note(update_s=time.perf_counter() - begun_s, computing_s=computing_s)
            if self._trial.over:
                self._found, self._trial = self._trial.verdict(), None
        return whole

    def adjust(self, config: ExperimentConfig, values: Values) -> None:
        """Learn with these settings from the next batch on, in all ranks. Raises RankLostError."""
        self._algorithm.adjust(config)
        try:
            for line in self._followers.lines:
                line.send(Message.ADJUST, msgspec.json.encode(values))
        except RankLostError as error:
            raise self._followers.explained(error) from error

    def take_verdict(self) -> Verdict | None:
        """What the trial has found, if it has ended since the last call."""
        found, self._found = self._found, None
        return found

    def wait(self) -> None:
        """Tell the others that this rank is there, though there is no batch; to be called again and again meanwhile.

        Raises RankLostError, also if one of them has ended."""
        self._followers.check()
        now_s = time.monotonic()
        if now_s - self._said_s < SIGN_OF_LIFE_S:
            return
        self._said_s = now_s
        try:
            for line in self._followers.lines:
                line.send(Message.WAIT)
        except RankLostError as error:
            raise self._followers.explained(error) from error

    def close(self) -> None:
        """End the lease of the other ranks; may be called again."""
        self._algorithm.ranks = ONE_RANK
        self._followers.close()

    def _begin(self, config: ExperimentConfig) -> None:
        """Let the others begin, and wait until they are ready."""
        parts = beginning(config, self._algorithm)
        for line in self._followers.lines:
            line.skip_to(Message.HELLO, timeout_s=config.limits.prepare_s)
            line.send(Message.BEGIN, *parts, timeout_s=config.limits.prepare_s)
        for line in self._followers.lines:
            line.expect(Message.READY, config.limits.prepare_s)

    def _first(self, batch: Arrays) -> int | None:
        """How many rows rank 0 is to take, if they are not to be shared evenly."""
        if self._trial is None or not self._trial.alone:
            return None
        return len(next(iter(batch.values()))) - (self.world_size - 1)
