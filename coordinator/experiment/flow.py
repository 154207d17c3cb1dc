"""The flow of experience to the learner of a policy: chunks in, batches out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from remuda.coordinator.effects import DeleteChunks, SendToLease, Step
from remuda.coordinator.experiment.reanalysis import ReanalysisBook
from remuda.training.effects import LogLine
from remuda.training.journal_entry import ResumePoint
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.snapshot import FlowSnapshot
from remuda.wire.messages import (
    Batches,
    BatchRequest,
    ChunkUnreadable,
    Counters,
    IndexedChunk,
    PolicyRef,
)

SERVED_KEPT = 15
"""Kept answers besides the newest: more than a learner ever waits for at a time."""
MOST_REQUESTS_AHEAD = 16
"""Requests that may arrive from a learner before the oldest is answered: more than a learner ever sends."""
STALLED_S = 120.0
"""After this wait of a learner without a new row, credit moves to the remaining collectors. Otherwise a collector with
progress reports but without chunks would stop the run."""


class FlowControl:
    """Keeps the learner within the distance to the collectors allowed by `samples_per_insert`.

    Closed until the learner is ready, and again once the run ends: chunks still count, but no credit or batches are
    given. After the last environment step, the learner gets only the batches still owed.
    """

    def __init__(
        self,
        experiment: str,
        replay: ReplayAccounting,
        reanalysis: ReanalysisBook,
        resumed: ResumePoint | None = None,
    ) -> None:
        self._experiment = experiment
        self._replay = replay
        self._reanalysis = reanalysis
        self._plan = replay.plan
        self.requests = RequestQueue()
        self._served_iters = 0
        self._served: list[tuple[int, int]] = []
        """The newest answered requests, with the number of batches of each answer."""
        self._resuming = False
        """The learner is back and has not asked for anything yet."""
        self.is_open = False
        """True while a learner is working."""
        self.policy = PolicyRef() if resumed is None else resumed.policy
        """The newest published policy."""
        self.epoch = self.policy.epoch
        """The epoch of the present learner."""
        self.train_iter = 0 if resumed is None else resumed.counters.train_iter
        """Updates done, as reported by the learner."""
        self.computed_iters = 0
        """Updates computed under this experiment, repeated updates included."""
        self._used: tuple[int, int] | None = None
        """On-policy: the learner's updates at its last request for batches, and the rows drawn until then; None once
        the policy of these updates is published."""
        self._moved = (-1, -1, 0.0)
        """Rows inserted, updates served, and since when these have been the same."""

    # --- the learner ---

    def close(self) -> None:
        """Close: no more credit and no more batches."""
        self.is_open = False

    def new_learner(self, train_iter: int) -> tuple[list[IndexedChunk], list[Step]]:
        """Start a learner at this iteration, under a new epoch; return the chunks to load."""
        self.close()
        self.epoch += 1
        self.train_iter = self._served_iters = train_iter
        self.requests, self._served, self._resuming, self._used = RequestQueue(), [], False, None
        chunks, deletable = self._replay.replay_for_new_learner()
        return chunks, self._delete(deletable)

    def requested(self, message: BatchRequest) -> list[Step]:
        """Handle the learner's priorities and request for batches. On-policy, the learner may still be publishing the
        result of its last updates, if a lag is allowed; collectors continue after the publication."""
        index = self._replay.index
        self.trained(message.train_iter)
        index.update_priorities(message.priority_rows, message.priorities)
        if self._resuming:
            self._take_up(message)
        self.requests.add(message)
        if message.loaded_reanalysis:
            self._reanalysis.confirm_loaded(message.loaded_reanalysis)
        if self._plan.on_policy:
            self._used = message.train_iter, index.sampled_rows
            self._confirm_use()
        files = self._replay.confirm_loaded(message.loaded_row)
        return [*self._delete(files), *self.serve()] if files else self.serve()

    def refusal(self, message: BatchRequest) -> str | None:
        """Reason why this request cannot be the learner's; None if possible. A returned learner has wider bounds."""
        plan, index, loaded = self._plan, self._replay.index, message.loaded_reanalysis
        if (message.batches, message.batch_size) != (plan.batches_per_request, plan.rows_per_update):
            return (
                f"it asks for {message.batches} batches of {message.batch_size} rows, and its config says "
                f"{plan.batches_per_request} of {plan.rows_per_update}"
            )
        expected = message.oldest if self._resuming else self.requests.expected
        if not 1 <= message.oldest <= message.request < expected + MOST_REQUESTS_AHEAD:
            return f"its request {message.request} is far beyond those that were answered"
        announced_row = index.next_row if self._resuming else index.announced_row
        if message.loaded_row > announced_row:
            return f"it has loaded the rows below {message.loaded_row}, and was told of those below {announced_row}"
        if loaded > self._reanalysis.accepted:
            return f"it has read reanalysis {loaded}, and there are {self._reanalysis.accepted}"
        return None

    def trained(self, train_iter: int) -> None:
        """Record the learner's progress."""
        if train_iter > self.train_iter:
            self.computed_iters += train_iter - self.train_iter
            self.train_iter = train_iter
        if self._plan.offline:
            self._replay.note_updates(self.train_iter)

    def unreadable(self, message: ChunkUnreadable) -> list[Step]:
        """The learner cannot read a payload."""
        files = self._replay.quarantine(message.file)
        text = f"payload {message.file} is not sampled any more: {message.reason}"
        return [LogLine(self._experiment, text, "warning"), *self._delete(files)]

    def updates_owed(self) -> int:
        """Updates missing to reach buffer.samples_per_insert, within the budget; on-policy, batches
        not learned from."""
        owed = self._replay.batches_owed()
        if owed is None:
            return 0
        return max(0, self._replay.allowed_batches(owed + self._under_way, self.train_iter))

    def summary(self, per_insert: float | None) -> list[Step]:
        """Return a log line about updates that the learner did not do, for readers who compare runs. `per_insert`: the
        setting buffer.samples_per_insert."""
        owed = self.updates_owed()
        if not owed:
            return []
        if self._plan.on_policy:
            return [LogLine(self._experiment, f"batches that were collected and not learned from: {owed}")]
        asked = f"buffer.samples_per_insert {per_insert:g} asks for {self.train_iter + owed}"
        return [LogLine(self._experiment, f"{owed} updates are owed: {self.train_iter} were done, and {asked}")]

    @property
    def owes(self) -> str:
        """Unit of `updates_owed`, for people."""
        return "batches" if self._plan.on_policy else "updates"

    def learns_on(self, *, more_to_come: bool) -> bool:
        """True if the learner has updates to catch up with and can do them, or may get some because of `more_to_come`:
        chunks still expected."""
        can_have = self._replay.sampleable_batches(self._plan.rows_per_update) > 0
        if self._replay.batches_owed() is None:
            return can_have and self._replay.one_batch_per_chunk
        return more_to_come or (self.updates_owed() > 0 and (self._under_way > 0 or can_have))

    @property
    def _under_way(self) -> int:
        """Updates with sent batches but without a report of the learner yet; on-policy, these batches."""
        if self._plan.on_policy:
            return self._replay.batches_unsettled
        return max(0, self._served_iters - self.train_iter)

    def published(self, policy: PolicyRef) -> bool:
        """Record a new policy file; return True if newer than the newest known."""
        if policy <= self.policy:
            return False
        self.policy = policy
        if self._plan.on_policy:
            self._confirm_use()
        return True

    def is_stalled(self, now_s: float) -> bool:
        """True once in STALLED_S if the learner has waited so long without a new row."""
        rows, served = self._replay.index.next_row, self._served_iters
        if not self.is_open or self.requests.next is None or self._moved[:2] != (rows, served):
            self._moved = (rows, served, now_s)
        stalled = now_s - self._moved[2] >= STALLED_S
        if stalled:
            self._moved = (rows, served, now_s)
        return stalled

    # --- over a restart ---

    def snapshot(self) -> FlowSnapshot:
        """Return the state for a restarted coordinator, without its rows."""
        return FlowSnapshot(
            policy=self.policy,
            epoch=self.epoch,
            train_iter=self.train_iter,
            served_iters=self._served_iters,
            served=list(self._served),
            open=self.is_open,
            computed_iters=self.computed_iters,
        )

    def restore(self, snapshot: FlowSnapshot) -> None:
        """Continue from a snapshot."""
        self.policy, self.epoch, self.train_iter = snapshot.policy, snapshot.epoch, snapshot.train_iter
        self.computed_iters = snapshot.computed_iters
        self._served_iters, self._served, self.is_open = snapshot.served_iters, list(snapshot.served), snapshot.open

    def resume(self, snapshot: FlowSnapshot) -> None:
        """Continue from an earlier incarnation of the run: the earlier policies stay older than the policies of the new
        learner."""
        self.policy = max(self.policy, snapshot.policy)
        self.epoch = max(self.epoch, snapshot.epoch)

    def learner_back(self) -> None:
        """Expect repeated requests from a learner with a new connection."""
        self._resuming = True

    def servable(self, batches: int, batch_size: int) -> int:
        """Return how many of the wanted batches a learner would receive now; 0 or less for none."""
        replay = self._replay
        batches = min(batches, replay.sampleable_batches(batch_size))
        batches = replay.allowed_batches(batches, self._served_iters)
        owed = None if replay.env_steps_left() else replay.batches_owed()  # at the end the learner only catches up
        return batches if owed is None else min(batches, owed)

    # --- inside ---

    def _take_up(self, message: BatchRequest) -> None:
        """Handle the first request of a learner that is back: unreceived answers are sent again, as if for the first
        time."""
        self._resuming = False
        self.requests.rewind(message.oldest)
        self._served_iters -= sum(batches for request, batches in self._served if request >= message.oldest)
        self._served = [served for served in self._served if served[0] < message.oldest]
        self._replay.index.learner_has(message.loaded_row)
        self._reanalysis.learner_has(message.loaded_reanalysis)

    @property
    def _trained_policy(self) -> PolicyRef:
        """The newest policy; on-policy, the result of reported updates may not be published yet."""
        unpublished = self._plan.on_policy and self.train_iter > self.policy.train_iter
        return structs.replace(self.policy, version=self.policy.version + 1) if unpublished else self.policy

    def _confirm_use(self) -> None:
        """Settle the rows used by the learner once the resulting policy is published. On-policy only."""
        if self._used is not None and self.policy.train_iter >= self._used[0]:
            self._replay.settle(self._used[1])
            self._used = None
        self.drop_stale()

    def drop_stale(self) -> None:
        """On-policy: drop rows that lag too far behind the newest policy."""
        self._replay.drop_stale(self._trained_policy)

    def serve(self) -> list[Step]:
        """Answer the learner's requests while enough rows can be sampled."""
        steps: list[Step] = []
        while self.is_open and (request := self.requests.next) is not None:
            batches = self.servable(request.batches, request.batch_size)
            if batches < 1:
                break
            self.requests.answered()
            self._served_iters += batches
            self._served = [*self._served[-SERVED_KEPT:], (request.request, batches)]
            steps.append(SendToLease(request.lease, self._sample(request, batches)))
        return steps

    def _sample(self, request: BatchRequest, batches: int) -> Batches:
        ledger, index = self._replay.ledger, self._replay.index
        sampled = self._replay.sample(batches, request.batch_size, request.train_iter)
        return Batches(
            lease=request.lease,
            request=request.request,
            rows=sampled.rows,
            weights=sampled.weights,
            new_chunks=self._replay.hand_out_new(),
            first_live_row=index.first_live_row,
            counters=Counters(
                env_step=ledger.env_step,
                train_iter=request.train_iter,
                episode=ledger.episode,
                policy_version=self.policy.version,
            ),
            reanalyses=self._reanalysis.hand_out_new() if self._reanalysis.accepted else [],
        )

    def _delete(self, files: Sequence[str]) -> list[Step]:
        return [DeleteChunks(self._experiment, tuple(files))] if files else []


class RequestQueue:
    """Requests under a learner's lease. Answers hand out new chunks and must be sent in order."""

    def __init__(self) -> None:
        self._waiting: dict[int, BatchRequest] = {}
        self.expected = 1
        """Number of the request to answer next."""
        self.next: BatchRequest | None = None
        """This request, once it has arrived."""

    def rewind(self, oldest: int) -> None:
        """Start over at request `oldest`, the first request repeated by a returned learner."""
        self._waiting, self.expected, self.next = {}, oldest, None

    def add(self, request: BatchRequest) -> None:
        """Add a request, or drop an answered request."""
        if request.request >= self.expected:
            self._waiting[request.request] = request
            self.next = self._waiting.get(self.expected)

    def answered(self) -> None:
        """The request `next` is answered."""
        del self._waiting[self.expected]
        self.expected += 1
        self.next = self._waiting.get(self.expected)
