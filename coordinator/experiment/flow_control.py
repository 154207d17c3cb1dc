"""The flow of experience through one experiment: chunks in, credit out to collectors, batches out to the learner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import DeleteChunks, Reply, SendToLease, Step
from remuda.coordinator.experiment.credit import CreditBook
from remuda.policy.algorithms import declaration
from remuda.training.effects import LogLine
from remuda.training.replay.accounting import Accepted, ReplayAccounting
from remuda.training.replay.budgets import Budgets
from remuda.training.snapshot import AccountSnapshot, FlowSnapshot, ResumePoint, Rows
from remuda.wire.messages import (
    Batches,
    BatchRequest,
    ChunkAccepted,
    ChunkReady,
    ChunkUnreadable,
    Counters,
    Credit,
    IndexedChunk,
    PolicyAvailable,
    PolicyPublished,
    PolicyRef,
)

SERVED_KEPT = 15
"""Answers remembered besides the newest: more than a learner ever waits for at a time."""
MOST_REQUESTS_AHEAD = 16
"""Requests of a learner that may be there before the oldest of them is answered: more than it ever has."""


class FlowControl:
    """Keeps collectors and learner going, each as far ahead of the other as `samples_per_insert` allows.

    Closed until a learner is ready and again once the run ends: then chunks still count, but nobody gets more credit
    or batches. Once the environment steps are used up, the learner gets the batches that it owes and no more.
    """

    def __init__(
        self,
        experiment: str,
        config: ExperimentConfig,
        replay: ReplayAccounting,
        resumed: ResumePoint | None = None,
    ) -> None:
        self._experiment = experiment
        self._replay = replay
        self._plan = replay.plan
        self._budgets = Budgets(config, self._plan)
        self._declaration = declaration(config)
        self._credit = CreditBook(self._plan.chunk_slots)
        self._requests = RequestQueue()
        self._served_iters = 0
        self._served: list[tuple[int, int]] = []
        """The newest requests answered, and with how many batches each."""
        self._resuming = False
        """The learner is back and has not asked for anything yet."""
        self._open = False
        self.policy = PolicyRef() if resumed is None else resumed.policy
        """The newest published policy."""
        self.epoch = self.policy.epoch
        """Of the present learner."""
        self.train_iter = 0 if resumed is None else resumed.counters.train_iter
        """Updates done, as far as the learner has told."""

    # --- workers ---

    @property
    def is_open(self) -> bool:
        """A learner is at work."""
        return self._open

    def open(self, collectors: Iterable[int]) -> list[Step]:
        """The learner is ready: these collectors (leases) may begin."""
        self._open = True
        for lease in collectors:
            self._credit.open(lease)
        return self.extend_credit()

    def close(self) -> None:
        """No more credit and no more batches."""
        self._open = False

    def collector_ready(self, lease: int) -> list[Step]:
        """One more collector."""
        if not self._open:
            return []
        self._credit.open(lease)
        return self.extend_credit()

    def collector_gone(self, lease: int) -> list[Step]:
        """What it had outstanding is free for others."""
        self._credit.close(lease)
        return self.extend_credit()

    def forget_lease(self, lease: int) -> None:
        """The lease was over long ago: what still comes under it is not counted."""
        self._credit.forget(lease)
        self._replay.forget_lease(lease)

    def new_learner(self, train_iter: int) -> tuple[list[IndexedChunk], list[Step]]:
        """A learner that starts at this iteration, under a new epoch; returns the chunks it has to load."""
        self.close()
        self.epoch += 1
        self.train_iter = self._served_iters = train_iter
        self._requests, self._served, self._resuming = RequestQueue(), [], False
        chunks, deletable = self._replay.replay_for_new_learner()
        return chunks, self._delete(deletable)

    # --- experience ---

    def chunk(self, message: ChunkReady) -> tuple[Accepted, list[Step]]:
        """A collector announces a chunk. Returns what became of it, and what to do."""
        accepted = self._replay.accept(message.meta, message.lease)
        self._replay.drop_stale(self.policy)
        steps: list[Step] = []
        if accepted.fresh or accepted.rejected is not None:
            self._credit.arrived(message.lease, self._plan.slots(message.meta))
        if accepted.rejected is not None:
            text = f"chunk {message.meta.file} refused: {accepted.rejected}"
            steps += [LogLine(self._experiment, text, "warning"), *self._delete([message.meta.file])]
        grown = [lease for lease in self._grow_credit() if lease != message.lease]
        steps.append(self.answer(message, rejected=accepted.rejected))
        steps += self._tell_credit(grown)
        return accepted, steps + self._delete(accepted.deletable) + self._serve()

    def answer(self, message: ChunkReady, *, rejected: str | None) -> Reply:
        """The acknowledgement of a chunk: all the control traffic a collector needs."""
        granted = self._credit.granted(message.lease)
        return Reply(ChunkAccepted(message.meta.chunk, granted, self.policy, self.exploration(), rejected))

    def requested(self, message: BatchRequest) -> list[Step]:
        """The learner gives priorities back and asks for more; on-policy it has published before."""
        self.trained(message.train_iter)
        self._replay.update_priorities(message.priority_rows, message.priorities)
        if self._resuming:
            self._take_up(message)
        self._requests.add(message)
        self._replay.settle(self.policy)
        steps = self._delete(self._replay.confirm_loaded(message.loaded_row)) + self._serve()
        return steps + self.extend_credit()

    def may_be_asked(self, message: BatchRequest) -> bool:
        """Whether this request is one of the next."""
        next_ = message.oldest if self._resuming else self._requests.expected
        return 1 <= message.oldest <= message.request < next_ + MOST_REQUESTS_AHEAD

    @property
    def told_row(self) -> int:
        """The learner was told of every row below. Of one that is back, nobody knows how far that was."""
        return self._replay.next_row if self._resuming else self._replay.told_row

    def is_beyond_credit(self, lease: int, env_steps: int) -> bool:
        """Whether a collector could not have collected so many more steps, even with every grant it has."""
        return self._credit.is_beyond(lease, env_steps)

    def trained(self, train_iter: int) -> None:
        """The learner says how far it has come."""
        self.train_iter = max(self.train_iter, train_iter)

    def unreadable(self, message: ChunkUnreadable) -> list[Step]:
        """The learner cannot read a payload."""
        files = self._replay.quarantine(message.file)
        text = f"payload {message.file} is not sampled any more: {message.reason}"
        return [LogLine(self._experiment, text, "warning"), *self._delete(files)]

    def updates_owed(self) -> int:
        """How many updates buffer.samples_per_insert would have had besides those that were done, as far as the budget
        goes."""
        owed = self._replay.batches_owed()
        if owed is None:
            return 0
        return max(0, self._budgets.batches(owed + self._under_way, self.train_iter))

    def learns_on(self, *, more_to_come: bool) -> bool:
        """Whether the learner has updates to catch up with and can; or may have, as chunks are `more_to_come`."""
        if self._replay.batches_owed() is None:
            return False
        can_have = self._replay.sampleable_batches(self._plan.rows_per_update) > 0
        return more_to_come or (self.updates_owed() > 0 and (self._under_way > 0 or can_have))

    @property
    def _under_way(self) -> int:
        """Updates that the learner has been given batches for and has not told of."""
        return max(0, self._served_iters - self.train_iter)

    def published(self, message: PolicyPublished, collectors: Iterable[int]) -> list[Step]:
        """The learner has rewritten the policy file; these collectors (leases) hear of it."""
        if message.policy <= self.policy:
            return []
        self.policy = message.policy
        return [SendToLease(lease, PolicyAvailable(lease, message.policy)) for lease in collectors]

    def exploration(self) -> dict[str, float]:
        """How much collectors shall explore now."""
        return self._declaration.exploration_at(self._replay.env_step)

    def extend_credit(self) -> list[Step]:
        """Let collectors go as far as the buffer and the budget allow; many of them over several turns."""
        return self._tell_credit(self._grow_credit())

    # --- over a restart ---

    def snapshot(self) -> FlowSnapshot:
        """What a restarted coordinator has to know, besides its rows."""
        return FlowSnapshot(
            policy=self.policy,
            epoch=self.epoch,
            train_iter=self.train_iter,
            served_iters=self._served_iters,
            served=list(self._served),
            open=self._open,
        )

    def rows(self) -> tuple[AccountSnapshot, ...]:
        """All rows."""
        return self._credit.rows()

    def changes(self) -> Rows[AccountSnapshot]:
        """Rows that have changed since the last call."""
        return self._credit.changes()

    def restore(self, snapshot: FlowSnapshot) -> None:
        """Go on from there."""
        self.policy, self.epoch, self.train_iter = snapshot.policy, snapshot.epoch, snapshot.train_iter
        self._served_iters, self._served, self._open = snapshot.served_iters, list(snapshot.served), snapshot.open
        self._credit.restore(snapshot.accounts)

    def resume(self, snapshot: FlowSnapshot) -> None:
        """Go on from an earlier incarnation of the run: its policies stay older than those of this one's learner."""
        self.policy = max(self.policy, snapshot.policy)
        self.epoch = max(self.epoch, snapshot.epoch)

    def learner_back(self) -> None:
        """The learner has lost touch and is back; it repeats the requests that it waits for."""
        self._resuming = True

    def repeat(self, lease: int) -> list[Step]:
        """Tell a collector again how far it may go."""
        return self._tell_credit([lease] if self._credit.granted(lease) else [])

    # --- inside ---

    def _take_up(self, message: BatchRequest) -> None:
        """The first word of a learner that is back: what it did not get is given again, as if for the first time."""
        self._resuming = False
        self._requests.rewind(message.oldest)
        self._served_iters -= sum(batches for request, batches in self._served if request >= message.oldest)
        self._served = [served for served in self._served if served[0] < message.oldest]
        self._replay.learner_has(message.loaded_row)

    def _grow_credit(self) -> list[int]:
        if not self._open:
            return []
        left = self._budgets.env_steps_left(self._replay.env_step)
        allowance = self._replay.insertable_rows() * self._plan.slots_per_row
        return self._credit.extend(min(left, allowance))

    def _tell_credit(self, leases: Sequence[int]) -> list[Step]:
        if not leases:
            return []
        policy, exploration = self.policy, self.exploration()
        return [SendToLease(lease, Credit(lease, self._credit.granted(lease), policy, exploration)) for lease in leases]

    def _serve(self) -> list[Step]:
        """Answer the learner's requests while there is enough to sample from."""
        steps: list[Step] = []
        while self._open and (request := self._requests.next) is not None:
            batches = min(request.batches, self._replay.sampleable_batches(request.batch_size))
            batches = self._budgets.batches(batches, self._served_iters)
            if not self._budgets.env_steps_left(self._replay.env_step):  # the learner catches up, and that is all
                owed = self._replay.batches_owed()
                batches = batches if owed is None else min(batches, owed)
            if batches < 1:
                break
            self._requests.answered()
            self._served_iters += batches
            self._served = [*self._served[-SERVED_KEPT:], (request.request, batches)]
            steps.append(SendToLease(request.lease, self._sample(request, batches)))
        return steps + self.extend_credit() if steps else []

    def _sample(self, request: BatchRequest, batches: int) -> Batches:
        sampled = self._replay.sample(batches, request.batch_size, request.train_iter)
        return Batches(
            lease=request.lease,
            request=request.request,
            rows=sampled.rows,
            weights=sampled.weights,
            new_chunks=self._replay.hand_out_new(),
            first_live_row=self._replay.first_live_row,
            counters=Counters(
                env_step=self._replay.env_step,
                train_iter=request.train_iter,
                episode=self._replay.episode,
                policy_version=self.policy.version,
            ),
        )

    def _delete(self, files: Sequence[str]) -> list[Step]:
        return [DeleteChunks(self._experiment, tuple(files))] if files else []


class RequestQueue:
    """Requests of one learner's lease. Their answers hand out new chunks, so they must not overtake each other."""

    def __init__(self) -> None:
        self._waiting: dict[int, BatchRequest] = {}
        self._next = 1

    def rewind(self, oldest: int) -> None:
        """The learner has lost touch and is back: it repeats what it waits for, `oldest` being the first."""
        self._waiting, self._next = {}, oldest

    def add(self, request: BatchRequest) -> None:
        """A request has come; one that was answered already is dropped."""
        if request.request >= self._next:
            self._waiting[request.request] = request

    @property
    def expected(self) -> int:
        """The number of the request that is to be answered next."""
        return self._next

    @property
    def next(self) -> BatchRequest | None:
        """The one to be answered next, if it has come."""
        return self._waiting.get(self._next)

    def answered(self) -> None:
        """`next` is answered."""
        del self._waiting[self._next]
        self._next += 1
