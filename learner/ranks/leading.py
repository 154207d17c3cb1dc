"""What rank 0 does with the other ranks: it splits batches, and puts together what was learned from the parts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.following import SIGN_OF_LIFE_S, Message, saved
from remuda.learner.ranks.group import RankGroup
from remuda.learner.ranks.parts import packed, split, together, unpacked
from remuda.learner.ranks.processes import RankProcesses
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.ranks import ONE_RANK, RankLostError


class LearnerRanks:
    """The ranks of a learner, for one lease. This process is rank 0; the others hold nothing that would be lost with
    them."""

    def __init__(self, config: ExperimentConfig, algorithm: Algorithm) -> None:
        """Start the other ranks; returns once all can learn, with the state that `algorithm` has now.

        Raises RankLostError.
        """
        self.world_size = config.learner.ranks
        self._algorithm = algorithm
        self._others = range(1, self.world_size)
        self._processes = RankProcesses(config, saved(algorithm))
        self._said_s = time.monotonic()
        try:
            self._group = self._begun(config)
        except RankLostError as error:
            explained = self._processes.explained(error)
            self._processes.close()
            raise explained from error
        except BaseException:
            self._processes.close()
            raise
        algorithm.ranks = self._group

    @property
    def pids(self) -> Sequence[int]:
        """Of the other ranks' processes, in order."""
        return self._processes.pids

    def learn(self, batch: Arrays) -> LearnResult:
        """Learn from a batch, a part of it in each rank. Raises RankLostError, and what the algorithm raises."""
        own, *parts = split(batch, self.world_size)
        try:
            for rank, part in zip(self._others, parts, strict=True):
                self._group.send(rank, Message.BATCH, packed(part))
            result = self._algorithm.learn(own)
            others = [unpacked(self._group.receive(rank)[1]) for rank in self._others]
        except RankLostError as error:
            raise self._processes.explained(error) from error
        self._said_s = time.monotonic()
        return together(result, others)

    def wait(self) -> None:
        """Tell the others that this rank is there, though there is no batch; to be called again and again meanwhile.

        Raises RankLostError, also if one of them has ended."""
        self._processes.check()
        now_s = time.monotonic()
        if now_s - self._said_s < SIGN_OF_LIFE_S:
            return
        self._said_s = now_s
        try:
            for rank in self._others:
                self._group.send(rank, Message.WAIT)
        except RankLostError as error:
            raise self._processes.explained(error) from error

    def close(self) -> None:
        """End the other ranks; may be called again."""
        self._algorithm.ranks = ONE_RANK
        self._processes.close()  # first: a rank that loses its connection says so, as an error
        self._group.close()

    def _begun(self, config: ExperimentConfig) -> RankGroup:
        """Connect, and wait until the others are ready."""
        group = self._processes.connect()
        try:
            for rank in self._others:
                group.receive(rank, timeout_s=config.limits.prepare_s)
        except BaseException:
            group.close()
            raise
        return group
