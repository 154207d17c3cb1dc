"""The learner of a policy in a serial run: a worker's role with experience and collector in memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from remuda.buffer.chunk import ChunkError
from remuda.learner.callbacks import CallbackHost, LeaseCallbacks
from remuda.learner.checkpoint import Progress
from remuda.learner.loop import finite
from remuda.learner.role import LearnerRole
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.runner.building import Member
from remuda.runner.memory import Memory
from remuda.wire.messages import (
    AnyMessage,
    Assign,
    Batches,
    CheckpointRecord,
    ChunkUnreadable,
    Counters,
    IndexedChunk,
    PolicyPublished,
    PolicyRef,
    SaveCheckpoint,
    StopTraining,
)
from remuda.worker.link import WorkLink

EXPLORATION = "exploration"
"""Name of the random state for drawing actions in a checkpoint."""


class MemoryPublisher:
    """Gives policies to the collector of this process."""

    ready = True

    def __init__(self, acting: Policy, first: PolicyRef, lease: int, link: WorkLink) -> None:
        self._acting, self._next, self._lease, self._link = acting, first, lease, link
        self.last: PolicyRef | None = None

    def offer(self, state: Mapping[str, np.ndarray], train_iter: int) -> None:
        """Publish at once. Raises DivergedError."""
        epoch, version = self._next.epoch, self._next.version
        self._acting.load_state(finite(state, train_iter=train_iter))
        self.last, self._next = PolicyRef(epoch, version, train_iter), PolicyRef(epoch, version + 1)
        self._link.send(PolicyPublished(self._lease, self.last))

    def flush(self, deadline_s: float) -> bool:
        return True


class SerialLearner(LearnerRole):
    """Learns from batches until they are used up, on arrival."""

    def __init__(
        self, member: Member, timers: Timers, exploration: np.random.Generator, link: WorkLink, lease: int
    ) -> None:
        """Checkpoints include the random state `exploration`. Raises UserCodeError if a callback does not accept its
        state."""
        built, training, resumed = member.built, member.training, member.resumed
        config, algorithm, start = built.config, built.algorithm, Counters() if resumed is None else resumed.counters
        first = PolicyRef(0 if resumed is None else resumed.generation, start.policy_version)
        self._member, self._policy_training, plan = member, training, training.replay.plan
        self._exploration = exploration
        self.memory = Memory(training.replay, member.folder.data, lease=lease, unreadable=self._report_unreadable)
        """Its experience."""
        book = training.callbacks.book
        book.active = bool(member.callbacks)  # a program may give callbacks besides those of the config
        host = CallbackHost(
            member.callbacks,
            config,
            ckpt=member.folder.ckpt,
            policy=built.name,
            states=book.states,
            changes=book.changes,
        )
        super().__init__(
            config,
            plan,
            algorithm,
            lease=lease,
            epoch=first.epoch,
            link=link,
            timers=timers,
            outputs=member.outputs,
            prefetch=self.memory,
            publisher=MemoryPublisher(built.acting, first, lease, link),
            callbacks=LeaseCallbacks(lease, host, link.send),
            changes=book.changes,
            train_iter=start.train_iter,
            env_step=start.env_step,
            alone=True,
        )

    @property
    def train_iter(self) -> int:
        """Updates done."""
        return self._loop.train_iter

    def begin(self, assign: Assign) -> None:
        """Load the replay of a resumed run, and give the collector the first weights."""
        self.memory.restore(assign.replay)
        self._offer()
        if self._callbacks.host.names:
            self._member.logbook.say("learner", self._callbacks.host.log_line)

    def handle(self, message: AnyMessage) -> None:
        """Handle a message of the experiment. Raises OSError, DivergedError, and errors of the algorithm."""
        if isinstance(message, StopTraining) and self._has_failed:
            return
        super().handle(message)
        if isinstance(message, Batches):
            while self.step():
                pass

    def ask(self) -> bool:
        """Request batches if the answer would come at once; return True for a request.

        At the end of a run the request is sent in any case, to report the learner's progress.
        """
        plan, ends = self._policy_training.replay.plan, self._policy_training.commander.ending is not None
        servable = self._policy_training.flow.servable
        if not self.memory.wants_request:
            return False
        if not ends and servable(plan.batches_per_request, plan.rows_per_update) <= 0:
            return False
        super()._request_batches()
        return True

    def give_priorities_back(self) -> None:
        """Write the newest priorities to the replay index, before it is saved."""
        priorities = self._loop.take_priorities()
        self._policy_training.replay.index.update_priorities(priorities.rows, priorities.errors)

    def _request_batches(self) -> None:
        """Do nothing: `ask` requests."""

    def _ran_dry(self) -> None:
        self.memory.release_used()
        self._send_report({})

    @property
    def _env_step(self) -> int:
        return self._policy_training.replay.ledger.env_step

    @property
    def _has_failed(self) -> bool:
        end = self._policy_training.commander.ending
        return end is not None and end.state == "failed"

    def _write(self, message: SaveCheckpoint, progress: Progress) -> CheckpointRecord:
        rngs = {EXPLORATION: self._exploration}
        return self._outputs.save(self._algorithm, progress, message.reason, rngs=rngs)

    def _report_unreadable(self, chunk: IndexedChunk, error: ChunkError) -> None:
        self._link.send(ChunkUnreadable(self._lease, chunk.meta.file, str(error)))
