"""The flow of experience in an experiment: chunks in, credit to collectors, batches to the learner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import DeleteChunks, Reply, SendToLease, Step
from remuda.coordinator.experiment.credit import CreditBook
from remuda.coordinator.experiment.reanalysis import ReanalysisBook
from remuda.policy.algorithms import declaration
from remuda.policy.row_plan import joint_plan
from remuda.training.commander.curriculum import Curriculum
from remuda.training.effects import LogLine
from remuda.training.replay.accounting import Accepted, ReplayAccounting
from remuda.training.resume_point import ResumePoint
from remuda.training.snapshot import AccountSnapshot, FlowSnapshot, Rows
from remuda.wire.messages import (
    Acting,
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
"""Kept answers besides the newest: more than a learner ever waits for at a time."""
MOST_REQUESTS_AHEAD = 16
"""Requests that may arrive from a learner before the oldest is answered: more than a learner ever sends."""
STALLED_S = 120.0
"""After this wait of a learner without a new row, credit moves to the remaining collectors. Otherwise a collector with
progress reports but without chunks would stop the run."""


class FlowControl:
    """Keeps collectors and learner within the distance allowed by `samples_per_insert`.

    Closed until a learner is ready, and again once the run ends: chunks still count, but no credit or batches are
    given. After the last environment step, the learner gets only the batches still owed.
    """

    def __init__(
        self,
        experiment: str,
        config: ExperimentConfig,
        replay: ReplayAccounting,
        reanalysis: ReanalysisBook,
        curriculum: Curriculum,
        resumed: ResumePoint | None = None,
    ) -> None:
        self._experiment = experiment
        self._replay = replay
        self._reanalysis = reanalysis
        self._curriculum = curriculum
        self._plan = replay.plan
        self._declaration = declaration(config)
        self._budget_env_steps = config.stop.max_env_steps
        self.credit = CreditBook(self._plan.chunk_slots)
        self._together: tuple[FlowControl, ...] = (self,)
        self._joint = joint_plan([self._plan])
        self.keeps_account = True
        """Sends credit to collectors: the first of several policies does."""
        self.others = 0
        """Number of further policies on the same collectors."""
        self.chunk_slots = self._plan.chunk_slots
        """Environment steps of a chunk, see RowPlan. Shared by all policies: the plan of this policy may have fewer."""
        self._requests = RequestQueue()
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
        self._used: tuple[int, int] | None = None
        """On-policy: the learner's updates at its last request for batches, and the rows drawn until then; None once
        the policy of these updates is published."""
        self._moved = (-1, -1, 0.0)
        """Rows inserted, updates served, and since when these have been the same."""

    def join(self, flows: Sequence[FlowControl]) -> None:
        """Share collectors with other policies: no collector runs further ahead than every policy allows. `flows` holds
        the flow of every policy, in the order of names; the first keeps the credit account."""
        self._together, self._joint = tuple(flows), joint_plan([flow._plan for flow in flows])
        self.keeps_account, self.others = flows[0] is self, len(flows) - 1
        self.chunk_slots = self._joint.chunk_slots
        self.credit = CreditBook(self.chunk_slots) if self.keeps_account else flows[0].credit

    # --- workers ---

    def open(self, collectors: Iterable[int]) -> list[Step]:
        """The learner is ready: these collectors (leases) may begin."""
        self.is_open = True
        for lease in collectors:
            self.credit.open(lease)
        return self.extend_credit()

    def close(self) -> None:
        """Close: no more credit and no more batches."""
        self.is_open = False

    def collector_ready(self, lease: int) -> list[Step]:
        """A collector has become ready."""
        if not self.is_open:
            return []
        self.credit.open(lease)
        return self.extend_credit()

    def collector_gone(self, lease: int) -> list[Step]:
        """Free the outstanding steps of a collector whose lease is over."""
        self.credit.close(lease)
        return self.extend_credit()

    def forget_lease(self, lease: int) -> None:
        """Forget a lease with an end long ago; later chunks of the lease are not counted."""
        self.credit.forget(lease)
        self._replay.ledger.forget(lease)

    def new_learner(self, train_iter: int) -> tuple[list[IndexedChunk], list[Step]]:
        """Start a learner at this iteration, under a new epoch; return the chunks to load."""
        self.close()
        self.epoch += 1
        self.train_iter = self._served_iters = train_iter
        self._requests, self._served, self._resuming, self._used = RequestQueue(), [], False, None
        chunks, deletable = self._replay.replay_for_new_learner()
        return chunks, self._delete(deletable)

    # --- experience ---

    def chunk(self, message: ChunkReady) -> tuple[Accepted, list[Step]]:
        """Handle a chunk that a collector announces. Returns the result of counting, and the steps to take."""
        meta, lease = message.meta, message.lease
        accepted = self._replay.accept(meta, lease)
        if self._plan.on_policy:
            self._replay.drop_stale(self._trained_policy)
        steps: list[Step] = []
        if (accepted.fresh or accepted.rejected is not None) and self.keeps_account:
            used = self._joint.slots([meta, *message.others]) if message.others else self._plan.slots(meta)
            self.credit.arrived(lease, used)
        if accepted.rejected is not None:
            text = f"chunk {meta.file} refused: {accepted.rejected}"
            steps += [LogLine(self._experiment, text, "warning"), *self._delete([meta.file])]
        grown = self._grow_credit()
        steps.append(self.answer(message, rejected=accepted.rejected))
        if grown and grown != [lease]:
            steps += self._send_credit([other for other in grown if other != lease])
        if accepted.deletable:
            steps.append(DeleteChunks(self._experiment, accepted.deletable))
        served = self._serve() if self._requests.next is not None else []
        return accepted, steps + served + (self.extend_credit() if served else [])

    def answer(self, message: ChunkReady, *, rejected: str | None) -> Reply:
        """Return the acknowledgement of a chunk, with all control data for the collector."""
        policy, exploration, others = self._acting_settings()
        granted, task = self.credit.granted(message.lease), self._curriculum.task
        return Reply(ChunkAccepted(message.meta.chunk, granted, policy, exploration, rejected, others, task))

    def requested(self, message: BatchRequest) -> list[Step]:
        """Handle the learner's priorities and request for batches. On-policy, the learner may still be publishing the
        result of its last updates, if a lag is allowed; collectors continue after the publication."""
        index = self._replay.index
        self.trained(message.train_iter)
        index.update_priorities(message.priority_rows, message.priorities)
        if self._resuming:
            self._take_up(message)
        self._requests.add(message)
        if message.loaded_reanalysis:
            self._reanalysis.confirm_loaded(message.loaded_reanalysis)
        if self._plan.on_policy:
            self._used = message.train_iter, index.sampled_rows
            self._confirm_use()
        files = self._replay.confirm_loaded(message.loaded_row)
        steps = self._serve()
        if files:
            steps = [*self._delete(files), *steps]
        grown = self._grow_credit()
        return steps + self._send_credit(grown) if grown else steps

    def first_refused_request(self, oldest: int) -> int:
        """The lowest request number too far ahead of the next expected request; `oldest`: see BatchRequest."""
        return (oldest if self._resuming else self._requests.expected) + MOST_REQUESTS_AHEAD

    @property
    def announced_row(self) -> int:
        """The learner has received every row below this one. For a returned learner, an upper bound."""
        return self._replay.index.next_row if self._resuming else self._replay.index.announced_row

    def trained(self, train_iter: int) -> None:
        """Record the learner's progress."""
        self.train_iter = max(self.train_iter, train_iter)

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

    def published(self, message: PolicyPublished, collectors: Iterable[int]) -> list[Step]:
        """Record a new policy file and announce it to these collectors (leases). Collectors due for credit get the news
        with the credit."""
        if message.policy <= self.policy:
            return []
        self.policy = message.policy
        if self._plan.on_policy:
            self._confirm_use()
        policy_index, granted = self._together.index(self), self._grow_credit()
        steps: list[Step] = [
            SendToLease(lease, PolicyAvailable(lease, message.policy, policy_index))
            for lease in collectors
            if lease not in granted
        ]
        return steps + self._send_credit(granted) if granted else steps

    def exploration(self) -> dict[str, float]:
        """The exploration settings for collectors now."""
        return self._declaration.exploration_at(self._replay.ledger.env_step)

    def tick(self, now_s: float) -> list[Step]:
        """Time has passed."""
        rows, served = self._replay.index.next_row, self._served_iters
        waits = self.is_open and self._requests.next is not None
        if not waits or self._moved[:2] != (rows, served):
            self._moved = (rows, served, now_s)
        steps: list[Step] = []
        if now_s - self._moved[2] >= STALLED_S:
            self._moved = (rows, served, now_s)
            steps += self._late(self.credit.wait_no_longer())
        grown = self._grow_credit()
        return steps + self._send_credit(grown) if grown else steps

    def extend_credit(self) -> list[Step]:
        """Grant collectors the credit that buffer and budget allow; many collectors over several calls."""
        grown = self._grow_credit()
        return self._send_credit(grown) if grown else []

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
        )

    def rows(self) -> tuple[AccountSnapshot, ...]:
        """All rows."""
        return self.credit.rows() if self.keeps_account else ()

    def changes(self) -> Rows[AccountSnapshot]:
        """Return the rows changed since the last call."""
        return self.credit.changes() if self.keeps_account else Rows()

    def restore(self, snapshot: FlowSnapshot) -> None:
        """Continue from a snapshot."""
        self.policy, self.epoch, self.train_iter = snapshot.policy, snapshot.epoch, snapshot.train_iter
        self._served_iters, self._served, self.is_open = snapshot.served_iters, list(snapshot.served), snapshot.open
        self.credit.restore(snapshot.accounts)

    def resume(self, snapshot: FlowSnapshot) -> None:
        """Continue from an earlier incarnation of the run: the earlier policies stay older than the policies of the new
        learner."""
        self.policy = max(self.policy, snapshot.policy)
        self.epoch = max(self.epoch, snapshot.epoch)

    def learner_back(self) -> None:
        """Expect repeated requests from a learner with a new connection."""
        self._resuming = True

    def repeat(self, lease: int) -> list[Step]:
        """Send a collector its credit again."""
        return self._send_credit([lease] if self.credit.granted(lease) else [])

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
        self._requests.rewind(message.oldest)
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
        self._replay.drop_stale(self._trained_policy)

    def _late(self, collectors: int) -> list[Step]:
        if not collectors:
            return []
        text = (
            f"no chunk has come for {STALLED_S:g} s while the learner waits: {collectors} collector(s) may still "
            "deliver theirs, and others collect in their place"
        )
        return [LogLine(self._experiment, text, "warning")]

    def _grow_credit(self) -> list[int]:
        """Grant credit as far as each policy allows; return the leases with a larger grant."""
        room = self._budget_env_steps - self._replay.ledger.env_step
        for flow in self._together:
            if not flow.is_open:
                return []
            room = min(room, flow._plan.slots_for(flow._replay.index.insertable_rows()))
        return self.credit.extend(room)

    def _acting_settings(self) -> tuple[PolicyRef, dict[str, float], list[Acting]]:
        """Return version and exploration of the first policy, and both for the other policies."""
        first, *others = self._together
        exploration = first._declaration.exploration_at(first._replay.ledger.env_step)
        return first.policy, exploration, list(map(FlowControl.acting, others))

    def acting(self) -> Acting:
        """Return version and exploration of this policy, for collectors."""
        return Acting(self.policy, self.exploration())

    def _send_credit(self, leases: Sequence[int]) -> list[Step]:
        policy, exploration, others = self._acting_settings()
        task, granted = self._curriculum.task, self.credit.granted
        return [
            SendToLease(lease, Credit(lease, granted(lease), policy, exploration, others, task)) for lease in leases
        ]

    def _serve(self) -> list[Step]:
        """Answer the learner's requests while enough rows can be sampled."""
        steps: list[Step] = []
        while self.is_open and (request := self._requests.next) is not None:
            batches = self.servable(request.batches, request.batch_size)
            if batches < 1:
                break
            self._requests.answered()
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
