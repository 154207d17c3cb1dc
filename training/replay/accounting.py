"""All the experience of one experiment: what was counted, what can be sampled, what may be deleted.

Ties the ledger (which chunks count) to the replay index (which rows are live) and the buffer's monitor. The serial
runner uses the same object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from remuda.buffer.index import ChunkTooLargeError, Prioritized, ReplayIndex, Sampled
from remuda.buffer.limiter import OnPolicyLimiter, SamplesPerInsertLimiter
from remuda.buffer.monitor import BufferMonitor
from remuda.buffer.samplers import FifoSampler, PrioritizedSampler, Sampler, UniformSampler
from remuda.config.schema import BufferConfig, ExperimentConfig
from remuda.environments.seeding import generator
from remuda.logbook.reports import Report
from remuda.policy.row_plan import UNBOUNDED_LAG, RowPlan, row_plan
from remuda.policy.schedules import importance_beta
from remuda.training.replay.buffer_reports import sample_report, throughput_report
from remuda.training.replay.ledger import Ledger, TooManyGapsError, UnknownLeaseError
from remuda.training.snapshot import CountedSnapshot, IndexSnapshot, ReplaySnapshot, ResumePoint, Rows
from remuda.wire.messages import ChunkMeta, Counters, IndexedChunk, PolicyRef


class Accepted(Struct, frozen=True):
    """What became of a chunk."""

    fresh: bool
    """It had not been counted before."""
    deletable: tuple[str, ...] = ()
    """Payload files that nobody needs any more."""
    rejected: str | None = None
    """Why it is not counted; None also for one that was counted before."""


class ReplayAccounting:
    """Counts chunks, samples rows, and knows which payload files must stay. Opens no file and knows no clock."""

    def __init__(
        self,
        config: ExperimentConfig,
        now_s: float,
        *,
        collectors: int | None = None,
        batches_in_flight: int | None = None,
        resumed: ResumePoint | None = None,
        journaled: bool = False,
    ) -> None:
        """`collectors` and `batches_in_flight` are how far both sides may be apart (default: as the parallel mode of
        this config needs); `resumed` is where the counters go on, the replay index being empty; `journaled`
        says that somebody asks for `news`."""
        buffer = config.buffer
        self._config = config
        self._journaled = journaled
        self._added: list[IndexedChunk] = []
        self._gone: list[int] = []
        self._ledger = Ledger(None if resumed is None else resumed.counters)
        self.plan = row_plan(config, collectors=collectors)
        self._on_policy = on_policy_limiter(config, self.plan)
        replay = self._on_policy or replay_limiter(config, self.plan, collectors, batches_in_flight)
        generation = 0 if resumed is None else resumed.generation
        self._rng = generator(config.seed, "coordinator", 0, "replay", incarnation=generation)
        self._index = ReplayIndex(
            self.plan.capacity,
            FifoSampler() if self.plan.on_policy else sampler_of(buffer),
            limiter=replay,
            rng=self._rng,
            quota_bytes=buffer.quota_bytes,
            chunks_ahead=0 if collectors is not None else CHUNKS_AHEAD * config.collector.count,
            on_retire=self._note_gone if journaled else lambda chunk: None,
        )
        self._monitor = self._new_monitor(now_s)
        self._reports: list[Report] = []
        self._newest_chunk_policy = PolicyRef()
        self._used_up: list[str] = []
        self._used_below_row = 0
        self.dropped_rows = 0
        """On-policy rows that were too old to be used."""

    # --- in ---

    def open_lease(self, lease: int, worker: str, incarnation: int) -> None:
        """This incarnation of a worker may announce chunks under this lease."""
        self._ledger.open(lease, worker, incarnation)

    def forget_lease(self, lease: int) -> None:
        """The lease was over long ago: what still comes under it is not counted."""
        self._ledger.forget(lease)

    def accept(self, meta: ChunkMeta, lease: int) -> Accepted:
        """Count a chunk and make its rows available; a chunk that was counted before changes nothing."""
        try:
            if not self._ledger.accept(meta, lease, self._index.check_fits):
                return Accepted(fresh=False)
        except (ChunkTooLargeError, TooManyGapsError, UnknownLeaseError) as error:
            return Accepted(fresh=False, rejected=str(error))
        return self._insert(meta)

    def count_late(self, meta: ChunkMeta) -> Accepted:
        """Count a chunk that an earlier incarnation of the run has left behind; it was not counted before."""
        try:
            self._index.check_fits(meta)
        except ChunkTooLargeError as error:
            return Accepted(fresh=False, deletable=(meta.file,), rejected=str(error))
        self._ledger.add(meta)
        return self._insert(meta)

    def _insert(self, meta: ChunkMeta) -> Accepted:
        inserted = self._index.insert(meta)
        self._newest_chunk_policy = meta.policy
        if self._journaled and meta.rows:
            self._added.append(IndexedChunk(inserted.first_row, meta))
        return Accepted(fresh=True, deletable=tuple(inserted.deletable))

    def quarantine(self, file: str) -> list[str]:
        """Never sample a payload file again that cannot be read; returns payload files that may go."""
        rows = self._index.rows
        files = self._index.quarantine(file)
        if self._on_policy is not None:
            self._on_policy.drop(rows - self._index.rows)
        return files

    def insertable_rows(self) -> int:
        """How many more rows may come in before the learner has to catch up."""
        return self._index.insertable_rows()

    def update_priorities(self, rows: NDArray[np.int64], priorities: NDArray[np.float32]) -> None:
        """What the learner found the errors of these rows to be."""
        self._index.update_priorities(rows, priorities)

    # --- out ---

    def sampleable_batches(self, batch_size: int) -> int:
        """How many batches may be drawn now."""
        if self._config.learner.inference:
            return 0
        return self._index.sampleable_rows() // batch_size

    def batches_owed(self) -> int | None:
        """How many batches buffer.samples_per_insert would have had drawn by now, and were not; negative where more
        were, None where it does not say."""
        per_insert = self._config.buffer.samples_per_insert
        if per_insert is None or self.plan.on_policy or self._config.learner.inference:
            return None
        inserted = max(0, self._index.next_row - self._config.buffer.min_rows)
        return math.floor((per_insert * inserted - self._index.sampled_rows) / self.plan.rows_per_update)

    def settle(self, newest: PolicyRef) -> None:
        """On-policy: the learner has used all it was given, and `newest` is what it made of it."""
        if self._on_policy is not None:
            self._on_policy.settle(self._index.sampled_rows)
            self.drop_stale(newest)

    def drop_stale(self, newest: PolicyRef) -> None:
        """On-policy: rows that lag too far behind `newest` are dropped and counted."""
        lag = self._config.buffer.max_policy_lag
        if self._on_policy is None or lag is None:
            return
        self._consume_used()
        oldest = PolicyRef(newest.epoch, max(newest.version - lag, 0))
        dropped, files = self._index.drop_older_than(oldest)
        self.dropped_rows += dropped
        self._on_policy.drop(dropped)
        self._used_up += files

    def _consume_used(self) -> None:
        """On-policy: rows that were drawn are used up, once the learner has been told where to find them."""
        if self._used_below_row > self._index.first_live_row:
            self._used_up += self._index.consume(self._used_below_row)

    def sample(self, batches: int, batch_size: int, train_iter: int) -> Sampled:
        """Draw batches for the updates after `train_iter`."""
        beta = importance_beta(self._config.buffer, train_iter)
        sampled = self._index.sample(batches, batch_size, train_iter=train_iter, beta=beta)
        statistics = self._monitor.sampled(sampled)
        if self._on_policy is not None:
            self._used_below_row = int(sampled.rows.max()) + 1
        if statistics is not None:
            self._reports.append(sample_report(statistics, train_iter=train_iter, env_step=self.env_step))
        return sampled

    def hand_out_new(self) -> list[IndexedChunk]:
        """Chunks the learner has not been told of."""
        new = self._index.hand_out_new()
        self._consume_used()
        return new

    def replay_for_new_learner(self) -> tuple[list[IndexedChunk], list[str]]:
        """Every live chunk, for a learner whose ring is empty; and payload files that only the former one needed."""
        deletable = self._index.forget_learner()
        return self._index.hand_out_new(), deletable

    def confirm_loaded(self, loaded_row: int) -> list[str]:
        """The learner has loaded all it was told of below this row; returns payload files that may go."""
        used_up, self._used_up = self._used_up, []
        return used_up + self._index.confirm_loaded(loaded_row)

    @property
    def told_row(self) -> int:
        """The learner was told of every row below."""
        return self._index.told_row

    @property
    def next_row(self) -> int:
        """One above the newest row's id."""
        return self._index.next_row

    @property
    def first_live_row(self) -> int:
        """Rows below are evicted."""
        return self._index.first_live_row

    @property
    def live_rows(self) -> int:
        """Rows that can be sampled."""
        return self._index.rows

    def live_files(self) -> frozenset[str]:
        """Payload files the index still refers to."""
        return frozenset(self._index.files())

    # --- over a restart ---

    def snapshot(self) -> ReplaySnapshot:
        """What is needed to go on after a restart, besides its rows, the live chunks and their priorities."""
        index, limiter = self._index, self._on_policy
        return ReplaySnapshot(
            ledger=self._ledger.snapshot(),
            index=IndexSnapshot(index.next_row, index.first_live_row, index.sampled_rows, index.removed_rows),
            newest_chunk_policy=self._newest_chunk_policy,
            dropped_rows=self.dropped_rows,
            settled_rows=0 if limiter is None else limiter.settled_rows,
            limiter_dropped_rows=0 if limiter is None else limiter.dropped_rows,
            random_state=json.dumps(self._rng.bit_generator.state),
        )

    def rows_of_leases(self) -> tuple[CountedSnapshot, ...]:
        """All rows."""
        return self._ledger.rows_of_leases()

    def changes(self) -> Rows[CountedSnapshot]:
        """Rows that have changed since the last call."""
        return self._ledger.changes()

    def restore(self, snapshot: ReplaySnapshot, chunks: Sequence[IndexedChunk], now_s: float) -> tuple[str, ...]:
        """Go on from there, with these `chunks` still in data/, in row order. Returns payload files that may go: those
        for which this buffer has no room, where it is smaller than the one that was remembered."""
        self._ledger.restore(snapshot.ledger)
        deletable = self._index.restore(
            chunks, next_row=snapshot.index.next_row, first_live_row=snapshot.index.first_live_row
        )
        self._index.sampled_rows = snapshot.index.sampled_rows
        self._index.removed_rows = snapshot.index.removed_rows
        self._monitor = self._new_monitor(now_s)
        self._newest_chunk_policy = snapshot.newest_chunk_policy
        self.dropped_rows = snapshot.dropped_rows
        if snapshot.random_state:
            self._rng.bit_generator.state = json.loads(snapshot.random_state)
        if self._on_policy is not None:
            self._on_policy.settle(snapshot.settled_rows)
            self._on_policy.drop(snapshot.limiter_dropped_rows)
        return tuple(deletable)

    def resume(self, snapshot: ReplaySnapshot, chunks: Sequence[IndexedChunk], now_s: float) -> tuple[str, ...]:
        """The same for a run that is resumed, perhaps with less room: nothing more comes under the leases from before,
        and no learner reads what it was told of."""
        ledger = replace(snapshot.ledger, counted=[], has_forgotten=True)
        deletable = self.restore(replace(snapshot, ledger=ledger), chunks, now_s)
        return (*deletable, *self._index.make_room())

    def priorities(self) -> Prioritized:
        """The newest priority of every live row."""
        return self._index.priorities()

    def restore_priorities(self, known: Prioritized) -> None:
        """Take the priorities of a snapshot; rows that came after it get the largest of them, as new rows do."""
        live = np.flatnonzero(np.isfinite(known.priorities))
        if not len(live):
            return
        priorities = known.priorities[live]
        newer = np.arange(known.first_row + len(known.priorities), self._index.next_row)
        self._index.update_priorities(known.first_row + live, priorities)
        largest = max(1.0, float(priorities.max()))
        self._index.update_priorities(newer, np.full(len(newer), largest, np.float32))

    def learner_has(self, below_row: int) -> None:
        """The learner outlived the restart and has every live row below `below_row`."""
        self._index.learner_has(below_row)

    def news(self) -> tuple[tuple[IndexedChunk, ...], tuple[int, ...]]:
        """Chunks that became live, and the first rows of those that are live no more, since the last call."""
        news = tuple(self._added), tuple(self._gone)
        self._added, self._gone = [], []
        return news

    def _new_monitor(self, now_s: float) -> BufferMonitor:
        log, drawn = self._config.log, self._index.sampled_rows // self.plan.rows_per_update
        return BufferMonitor(
            self._index, log.buffer_interval_samples, log.buffer_interval_s, now_s=now_s, batches=drawn
        )

    def _note_gone(self, chunk: IndexedChunk) -> None:
        self._gone.append(chunk.first_row)

    # --- counters and reports ---

    @property
    def env_step(self) -> int:
        """Environment steps in accepted chunks."""
        return self._ledger.env_step

    @property
    def episode(self) -> int:
        """Episodes that ended in accepted chunks."""
        return self._ledger.episode

    @property
    def rows(self) -> int:
        """Training rows in accepted chunks."""
        return self._ledger.rows

    @property
    def samples_per_insert(self) -> float | None:
        """How often a row was sampled on average; None before training."""
        achieved = self._index.achieved_samples_per_insert()
        return None if math.isnan(achieved) else achieved

    def policy_lag(self, newest: PolicyRef) -> int:
        """Versions between the newest policy and the one that collected the newest chunk."""
        seen = self._newest_chunk_policy
        return max(newest.version - seen.version, 0) if seen.epoch == newest.epoch else 0

    def start(self, now_s: float) -> None:
        """The time begins that reports are about."""
        self._monitor = self._new_monitor(now_s)

    def reports(
        self, counters: Counters, now_s: float, *, newest: PolicyRef | None = None, last: bool = False
    ) -> list[Report]:
        """What the buffer's log has to show since the last call. `newest` is the newest policy; `last`: the period that
        is not over too. On-policy a batch is all that an update learns from, and few are drawn: the table of what was
        drawn comes with each period then."""
        throughput = self._monitor.throughput(now_s, last=last)
        if throughput is not None:
            drawn = self._monitor.rest() if self.plan.on_policy else None
            if drawn is not None:
                self._reports.append(sample_report(drawn, train_iter=counters.train_iter, env_step=counters.env_step))
            lag = 0 if newest is None else self.policy_lag(newest)
            achieved = self.samples_per_insert
            self._reports.append(throughput_report(throughput, counters, samples_per_insert=achieved, policy_lag=lag))
        reports, self._reports = self._reports, []
        return reports


CHUNKS_AHEAD = 2
"""Chunks a collector may have in the works: one being collected while the one before is announced."""
REQUESTS_IN_FLIGHT = 3
"""Most requests' worth of batches that were sampled and are not trained on yet: one in use, two ahead."""


def on_policy_limiter(config: ExperimentConfig, plan: RowPlan) -> OnPolicyLimiter | None:
    """How far collectors may run ahead of an on-policy learner; None for one that learns from replay, or does not."""
    if not plan.on_policy or config.learner.inference:
        return None
    lag = config.buffer.max_policy_lag
    return OnPolicyLimiter(plan.rows_per_update, updates_ahead=UNBOUNDED_LAG if lag is None else lag)


def replay_limiter(
    config: ExperimentConfig, plan: RowPlan, collectors: int | None, batches_in_flight: int | None
) -> SamplesPerInsertLimiter:
    """How far collectors and a learner from replay may be apart; see ReplayAccounting for the last two."""
    batches = batches_in_flight or REQUESTS_IN_FLIGHT * plan.batches_per_request
    chunk_rows = plan.chunk_slots + config.env.num_envs
    return SamplesPerInsertLimiter(
        None if config.learner.inference else config.buffer.samples_per_insert,
        config.buffer.min_rows,
        request_rows=batches * plan.rows_per_update,
        chunk_rows=chunk_rows * (config.collector.count if collectors is None else collectors),
    )


def sampler_of(buffer: BufferConfig) -> Sampler:
    """How rows of a replay are drawn."""
    if buffer.prioritized:
        return PrioritizedSampler(buffer.capacity, buffer.priority_exponent)
    return UniformSampler(buffer.capacity)
