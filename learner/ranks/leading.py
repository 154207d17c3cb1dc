"""What rank 0 does with the other ranks: it splits batches, and puts together what was learned from the parts."""

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
from remuda.learner.ranks.parts import packed, split, together, unpacked
from remuda.learner.ranks.trial import RanksTrial, Verdict
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.ranks import ONE_RANK, RankLostError

SIGN_OF_LIFE_S = 10.0
"""How often rank 0 says that it is there, while there are no batches."""
_ENDED_S = 5.0
"""How long the system may take to say how a process has ended whose connections are broken."""


class RankFailedError(RankLostError):
    """An error of the algorithm or environment in another rank, which is free for the next lease."""


class Followers:
    """The processes of the ranks besides rank 0. Here somebody else watches them."""

    def __init__(self, meeting: Meeting, lost: type[RankLostError] = RankLostError) -> None:
        """`lost` is raised when one is lost."""
        self.meeting = meeting
        self.lost = lost

    def ended(self, within_s: float = 0.0) -> str:
        """Which have ended and how, for people; empty if none has within this time."""
        return ""

    def close(self) -> None:
        """Let go of them; may be called again."""


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
        self._opened = ExitStack()
        self._opened.callback(self._followers.close)
        try:
            self._begin(config)
        except BaseException:
            self.close()
            raise
        self._said_s = time.monotonic()

    def describe(self) -> str:
        """Which processes the others are, for people."""
        return self._described

    def learn(self, batch: Arrays) -> LearnResult:
        """Learn from a batch, a part of it in each rank. Raises RankLostError, and what the algorithm raises."""
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
        self._tell(Message.ADJUST, as_body(msgspec.json.encode(values)))

    def take_verdict(self) -> Verdict | None:
        """What the trial has found, if it has ended since the last call."""
        found, self._found = self._found, None
        return found

    def wait(self) -> None:
        """Tell the others that this rank is there, though there is no batch; to be called again and again meanwhile.

        Raises RankLostError, also if one of them has ended."""
        if ended := self._followers.ended():
            raise self._followers.lost(ended)
        if time.monotonic() - self._said_s >= SIGN_OF_LIFE_S:
            self._said_s = time.monotonic()
            self._tell(Message.WAIT, np.empty(0, np.uint8))

    def close(self) -> None:
        """End the lease of the other ranks; may be called again."""
        self._algorithm.ranks = ONE_RANK
        self._opened.close()

    def _begin(self, config: ExperimentConfig) -> None:
        """Let the others begin, and wait until they are ready."""
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
            self._tell(Message.STATE, as_body(saved(self._algorithm)))

    def _tell(self, kind: Message, body: np.ndarray) -> None:
        """Send all others the same. Raises RankLostError."""
        with self._explained():
            for rank in range(1, self.world_size):
                self._group.send(rank, kind, body)
            self._group.flush()

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Let the loss of a rank say more, if it is known: which has failed or ended, and how."""
        try:
            yield
        except RankLostError as error:
            if failure := self._lease.failure():
                raise RankFailedError(failure) from error
            ended = self._followers.ended(_ENDED_S if isinstance(error, RankGoneError) else 0.0)
            raise self._followers.lost(ended or str(error)) from error

    def _first(self, batch: Arrays) -> int | None:
        """How many rows rank 0 is to take, if they are not to be shared evenly."""
        if self._trial is None or not self._trial.alone:
            return None
        return len(next(iter(batch.values()))) - (self.world_size - 1)
