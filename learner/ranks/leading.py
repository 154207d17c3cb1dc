"""Rank 0's side: splits batches among the ranks and joins their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import msgspec
import numpy as np

from remuda.config.current import Values
from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.following import as_body, device_of, joined, saved
from remuda.learner.ranks.group import Message, RankGoneError
from remuda.learner.ranks.meeting import Lease, Meeting
from remuda.learner.ranks.parts import joined_result, packed, split, unpacked
from remuda.learner.ranks.trial import RanksTrial, Verdict
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.ranks import ONE_RANK, RankLostError

SIGN_OF_LIFE_S = 10.0
"""Interval of rank 0's signs of life while no batch is ready."""
_ENDED_S = 5.0
"""Longest wait for the exit status of a process with broken connections."""


class RankFailedError(RankLostError):
    """An error of the algorithm or environment in another rank. The rank's process stays ready for the next lease."""


class Followers:
    """The processes of ranks 1 and up. This base class is for processes that torchrun watches."""

    def __init__(self, meeting: Meeting, lost: type[RankLostError] = RankLostError) -> None:
        """Keep the meeting point. `lost`: the error to raise when a rank is lost."""
        self.meeting = meeting
        self.lost = lost

    def ended(self, within_s: float = 0.0) -> str:
        """Describe the processes that ended within this time, and how; empty if all are alive."""
        return ""

    def close(self) -> None:
        """Release the processes; may be called again."""


Recruits = Callable[[ExperimentConfig], Followers]
"""Gets the ranks for a lease. Raises RankLostError."""


class LearnerRanks:
    """The ranks of a learner for a lease. This process is rank 0; the other ranks hold only copies."""

    def __init__(
        self, config: ExperimentConfig, algorithm: Algorithm, recruits: Recruits, *, trial: RanksTrial | None = None
    ) -> None:
        """Start the other ranks and wait until all can learn from the present state of `algorithm`.

        `trial` measures with the first batches if several ranks are faster than one. Raises RankLostError.
        """
        self.world_size = config.learner.ranks
        self._algorithm = algorithm
        self._trial = trial
        self._verdict: Verdict | None = None
        self._followers = recruits(config)
        self._opened = ExitStack()
        self._opened.callback(self._followers.close)
        try:
            self._begin(config)
        except BaseException:
            self.close()
            raise
        self._last_sent_s = time.monotonic()

    def describe(self) -> str:
        """Describe the processes of the other ranks, for the log."""
        return self._described

    def learn(self, batch: Arrays) -> LearnResult:
        """Learn from a batch, each rank from its part. Raises RankLostError and the algorithm's errors."""
        begun_s = time.perf_counter()
        before_s = self._group.spent_s
        own, *parts = split(batch, self.world_size, first=self._first(batch))
        with self._explained():
            for rank, part in enumerate(parts, start=1):
                self._group.send(rank, Message.BATCH, packed(part))
            computing_s = time.perf_counter()
            result = self._algorithm.learn(own)
            computing_s = time.perf_counter() - computing_s - (self._group.spent_s - before_s)
            others = [unpacked(self._group.expect(rank, Message.RESULT)) for rank in range(1, self.world_size)]
        whole = joined_result(result, others)
        self._last_sent_s = time.monotonic()
        if self._trial is not None:
            self._trial.note(update_s=time.perf_counter() - begun_s, computing_s=computing_s)
            if self._trial.over:
                self._verdict, self._trial = self._trial.verdict(), None
        return whole

    def adjust(self, config: ExperimentConfig, values: Values) -> None:
        """Learn with these settings from the next batch on, in all ranks. Raises RankLostError."""
        self._algorithm.adjust(config)
        self._send_all(Message.ADJUST, as_body(msgspec.json.encode(values)))

    def take_verdict(self) -> Verdict | None:
        """Return the verdict of the trial once, after the trial has ended; else None."""
        verdict, self._verdict = self._verdict, None
        return verdict

    def wait(self) -> None:
        """Send a sign of life if the last message is old. Call repeatedly while no batch is ready.

        Raises RankLostError, also if a rank has ended.
        """
        if ended := self._followers.ended():
            raise self._followers.lost(ended)
        if time.monotonic() - self._last_sent_s >= SIGN_OF_LIFE_S:
            self._last_sent_s = time.monotonic()
            self._send_all(Message.WAIT, np.empty(0, np.uint8))

    def close(self) -> None:
        """End the lease of the other ranks; may be called again."""
        self._algorithm.ranks = ONE_RANK
        self._opened.close()

    def _begin(self, config: ExperimentConfig) -> None:
        """Start the lease in the other ranks and wait until they are ready."""
        meeting = self._followers.meeting
        self._lease = Lease(config, meeting.store)
        self._opened.callback(self._lease.end)
        with self._explained():
            here = meeting.begin(self._lease, self._followers.ended)
            self._described = ", ".join(f"rank {each.rank}: pid {each.pid} on {each.host}" for each in here)
            self._group = joined(self._lease, meeting, 0)
            self._opened.callback(self._group.close)
            self._opened.callback(self._lease.end)  # before the others see that the connections break
            self._group.names[1:] = map(str, here)
            self._group.use_gpus(device_of(config, 0))
            if self._group.on_gpus:
                self._trial = None  # the host's time says nothing about that of the GPUs
            self._algorithm.ranks = self._group
            self._send_all(Message.STATE, as_body(saved(self._algorithm)))

    def _send_all(self, kind: Message, body: np.ndarray) -> None:
        """Send the same message to all other ranks. Raises RankLostError."""
        with self._explained():
            for rank in range(1, self.world_size):
                self._group.send(rank, kind, body)
            self._group.flush()

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Add the cause to the loss of a rank, if known: the rank that failed or ended, and how."""
        try:
            yield
        except RankLostError as error:
            if failure := self._lease.failure():
                raise RankFailedError(failure) from error
            ended = self._followers.ended(_ENDED_S if isinstance(error, RankGoneError) else 0.0)
            raise self._followers.lost(ended or str(error)) from error

    def _first(self, batch: Arrays) -> int | None:
        """Return the number of rows for rank 0; None for an even split."""
        if self._trial is None or not self._trial.alone:
            return None
        return len(next(iter(batch.values()))) - (self.world_size - 1)
