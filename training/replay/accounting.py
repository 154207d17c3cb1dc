"""The experience of an experiment: counted, available and deletable chunks.

Connects the ledger (counted chunks), the replay index (live rows), the limiter and sampler of the run's config, and the
reports of the buffer. Both modes use it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from remuda.buffer.index import ChunkTooLargeError, Prioritized, ReplayIndex, SampledRows
from remuda.buffer.limiter import OnPolicyLimiter, SamplesPerInsertLimiter
from remuda.buffer.monitor import BufferMonitor
from remuda.buffer.payload_files import end_row
from remuda.buffer.samplers import FifoSampler, PrioritizedSampler, Sampler, UniformSampler, importance_beta
from remuda.config.learning import BufferConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.seeding import generator
from remuda.logbook.reports import Report
from remuda.policy.row_plan import UNBOUNDED_LAG, RowPlan, row_plan
from remuda.training.journal_entry import ResumePoint
from remuda.training.replay.buffer_reports import sample_report, throughput_report
from remuda.training.replay.ledger import Ledger, TooManyGapsError, UnknownLeaseError
from remuda.training.snapshot import IndexSnapshot, ReplaySnapshot
from remuda.wire.messages import ChunkMeta, Counters, IndexedChunk, PolicyRef

CHUNKS_AHEAD = 2
"""Most unfinished chunks of a collector: a chunk in collection, and a chunk in announcement."""
REQUESTS_IN_FLIGHT = 3
"""Most requests with sampled but untrained batches: one in use, two ahead."""


class Accepted(Struct, frozen=True):
    """The result of announcing a chunk."""

    fresh: bool
    """True if counted for the first time."""
    deletable: tuple[str, ...] = ()
    """Payload files that may be deleted."""
    rejected: str | None = None
    """Reason for refusal; None also for a repeated chunk."""


class _FilledError(ValueError):
    """The dataset of an offline run is in already: another collector has handed in the same rows."""


class ReplayAccounting:
    """Counts chunks, samples rows, and knows the needed payload files. Opens no file and reads no clock."""

    def __init__(
        self,
        config: ExperimentConfig,
        now_s: float,
        *,
        resumed: ResumePoint | None = None,
        serial: bool = False,
    ) -> None:
        """`resumed` is where the counters continue, with an empty replay index. `serial`: collector and learner work in
        turn; else both may be as far apart as the parallel mode of this config needs."""
        buffer = config.buffer
        self._config = config
        self._added: list[IndexedChunk] = []
        self._gone: list[int] = []
        self.ledger = Ledger(None if resumed is None else resumed.counters)
        """Counted chunks and counters."""
        collectors = 1 if serial else None
        self.plan = row_plan(config, collectors=collectors)
        self._on_policy = _on_policy_limiter(config, self.plan)
        replay = self._on_policy or _replay_limiter(config, self.plan, serial=serial)
        generation = 0 if resumed is None else resumed.generation
        self._rng = generator(config.seed, "coordinator", 0, "replay", incarnation=generation)
        self.index = ReplayIndex(
            self.plan.capacity,
            FifoSampler() if self.plan.on_policy else _sampler_of(buffer),
            limiter=replay,
            rng=self._rng,
            quota_bytes=buffer.quota_bytes,
            chunks_ahead=0 if serial else CHUNKS_AHEAD * config.collector.count,
            on_retire=self._note_gone,
        )
        """Live and drawn rows."""
        self._reports: list[Report] = []
        self.start(now_s)
        held_back = self.plan.on_policy or self.plan.offline or buffer.samples_per_insert is not None
        self.is_filled = False
        """True once an offline run has its dataset: nothing more comes."""
        self.one_batch_per_chunk = serial and not held_back
        """Without buffer.samples_per_insert, a learner in turn with its collector learns once from each chunk."""
        self._newest_is_learned = True
        self._newest_chunk_policy = PolicyRef()
        self._used_up: list[str] = []
        self._used_below_row = 0
        self.dropped_rows = 0
        """On-policy rows dropped for their age."""
        self.on_retired: Callable[[IndexedChunk], None] | None = None
        """Called with every chunk without live rows."""

    # --- in ---

    def accept(self, meta: ChunkMeta, lease: int, check: Callable[[ChunkMeta], None] | None = None) -> Accepted:
        """Count a chunk and make its rows available; a repeated chunk changes nothing. `check` raises
        ChunkTooLargeError; None: if this buffer can never hold the chunk."""
        check = self._refuse_more if self.is_filled else check or self.index.check_fits
        try:
            if not self.ledger.accept(meta, lease, check):
                return Accepted(fresh=False)
        except _FilledError:
            return Accepted(fresh=False, deletable=(meta.file,))
        except (ChunkTooLargeError, TooManyGapsError, UnknownLeaseError) as error:
            return Accepted(fresh=False, rejected=str(error))
        return self._insert(meta)

    def count_late(self, meta: ChunkMeta) -> Accepted:
        """Count an uncounted chunk of an earlier incarnation of the run."""
        if self.is_filled:
            return Accepted(fresh=False, deletable=(meta.file,))
        try:
            self.index.check_fits(meta)
        except ChunkTooLargeError as error:
            return Accepted(fresh=False, deletable=(meta.file,), rejected=str(error))
        self.ledger.add(meta)
        return self._insert(meta)

    def _refuse_more(self, meta: ChunkMeta) -> None:
        raise _FilledError(meta.file)

    def _insert(self, meta: ChunkMeta) -> Accepted:
        inserted = self.index.insert(meta)
        self._newest_chunk_policy = meta.policy
        self._newest_is_learned = False
        if meta.rows:
            self.is_filled = self.plan.offline
            self._added.append(IndexedChunk(inserted.first_row, meta))
        return Accepted(fresh=True, deletable=tuple(inserted.deletable))

    def quarantine(self, file: str) -> list[str]:
        """Never sample this unreadable payload file again; return payload files that may be deleted."""
        rows = self.index.rows
        files = self.index.quarantine(file)
        if self._on_policy is not None:
            self._on_policy.drop(rows - self.index.rows)
        return files

    def note_updates(self, train_iter: int) -> None:
        """Count updates of an offline run as environment steps, since none are taken."""
        self.ledger.env_step = max(self.ledger.env_step, train_iter)

    def env_steps_left(self) -> int:
        """Environment steps until stop.max_env_steps; never negative."""
        return max(0, self._config.stop.max_env_steps - self.ledger.env_step)

    # --- out ---

    def sampleable_batches(self, batch_size: int) -> int:
        """Return the number of batches that may be drawn now."""
        if self._config.learner.inference:
            return 0
        batches = self.index.sampleable_rows() // batch_size
        return min(batches, int(not self._newest_is_learned)) if self.one_batch_per_chunk else batches

    def allowed_batches(self, wanted: int, train_iter: int) -> int:
        """Return how many of the `wanted` batches stop.max_train_iters allows after `train_iter` updates; never
        negative. On-policy all: a request is for one batch, and the commander ends the run."""
        stop = self._config.stop
        most = None if self.plan.on_policy else stop.max_train_iters
        if self.plan.offline:
            most = min(stop.max_env_steps, most or stop.max_env_steps)
        return wanted if most is None else max(0, min(wanted, most - train_iter))

    def batches_owed(self) -> int | None:
        """Return the number of batches missing to reach buffer.samples_per_insert, negative for a surplus; None without
        that setting. On-policy: the number of complete batches that were not drawn yet."""
        per_insert = self._config.buffer.samples_per_insert
        if self.plan.on_policy:
            return self.sampleable_batches(self.plan.rows_per_update)
        if per_insert is None or self._config.learner.inference:
            return None
        inserted = max(0, self.index.next_row - self._config.buffer.min_rows)
        return math.floor((per_insert * inserted - self.index.sampled_rows) / self.plan.rows_per_update)

    @property
    def batches_unsettled(self) -> int:
        """On-policy: how many batches were drawn and are not settled; see `settle`."""
        if self._on_policy is None:
            return 0
        return (self.index.sampled_rows - self._on_policy.finished_rows) // self.plan.rows_per_update

    def settle(self, sampled_rows: int) -> None:
        """On-policy: count rows that the learner has used, once the resulting policy can act."""
        if self._on_policy is not None:
            self._on_policy.finish(sampled_rows)

    def drop_stale(self, newest: PolicyRef) -> None:
        """On-policy: drop and count rows that lag too far behind `newest`."""
        lag = self._config.buffer.max_policy_lag
        if self._on_policy is None or lag is None:
            return
        self._consume_used()
        oldest = PolicyRef(newest.epoch, max(newest.version - lag, 0))
        dropped, files = self.index.drop_older_than(oldest)
        self.dropped_rows += dropped
        self._on_policy.drop(dropped)
        self._used_up += files

    def _consume_used(self) -> None:
        """On-policy: consume drawn rows once the learner has received their chunks."""
        if self._used_below_row > self.index.first_live_row:
            self._used_up += self.index.consume(self._used_below_row)

    def sample(self, batches: int, batch_size: int, train_iter: int) -> SampledRows:
        """Draw batches for the updates after `train_iter`."""
        buffer = self._config.buffer
        beta = importance_beta(buffer.importance_exponent, buffer.importance_anneal_iters, train_iter)
        self._newest_is_learned = True
        sampled = self.index.sample(batches, batch_size, train_iter=train_iter, beta=beta)
        statistics = self._monitor.sampled(sampled)
        if statistics is not None:
            self._reports.append(sample_report(statistics, train_iter=train_iter, env_step=self.ledger.env_step))
        if self._on_policy is not None:
            self._used_below_row = int(sampled.rows.max()) + 1
        return sampled

    def hand_out_new(self) -> list[IndexedChunk]:
        """Return the chunks that the learner does not know, and mark them as announced."""
        new = self.index.hand_out_new()
        if self._on_policy is not None:
            self._consume_used()
        return new

    def replay_for_new_learner(self) -> tuple[list[IndexedChunk], list[str]]:
        """Return all live chunks, for a learner with an empty ring; and payload files that only the former learner
        needed."""
        deletable = self.index.forget_learner()
        return self.index.hand_out_new(), deletable

    def confirm_loaded(self, loaded_row: int) -> list[str]:
        """Note that the learner has loaded all announced rows below `loaded_row`; return payload files that may be
        deleted."""
        used_up, self._used_up = self._used_up, []
        return used_up + self.index.confirm_loaded(loaded_row)

    def live_rows_of(self, chunk: IndexedChunk) -> int:
        """Return the number of its rows that can be sampled."""
        return end_row(chunk) - max(chunk.first_row, self.index.first_live_row)

    def live_files(self) -> frozenset[str]:
        """Return the payload files of live chunks."""
        return frozenset(self.index.files())

    # --- over a restart ---

    def snapshot(self) -> ReplaySnapshot:
        """Return the state for a restart, without rows, live chunks and their priorities."""
        index, limiter = self.index, self._on_policy
        return ReplaySnapshot(
            ledger=self.ledger.snapshot(),
            index=IndexSnapshot(index.next_row, index.first_live_row, index.sampled_rows, index.removed_rows),
            newest_chunk_policy=self._newest_chunk_policy,
            dropped_rows=self.dropped_rows,
            settled_rows=0 if limiter is None else limiter.finished_rows,
            limiter_dropped_rows=0 if limiter is None else limiter.dropped_rows,
            random_state=json.dumps(self._rng.bit_generator.state),
        )

    def restore(self, snapshot: ReplaySnapshot, chunks: Sequence[IndexedChunk], now_s: float) -> tuple[str, ...]:
        """Continue from a snapshot with these `chunks`, which are still in data/, in row order. Returns payload files
        that may be deleted because this buffer is smaller than before."""
        self.ledger.restore(snapshot.ledger)
        deletable = self.index.restore(
            chunks, next_row=snapshot.index.next_row, first_live_row=snapshot.index.first_live_row
        )
        self.is_filled = self.plan.offline and self.index.next_row > 0
        self.index.sampled_rows = snapshot.index.sampled_rows
        self.index.removed_rows = snapshot.index.removed_rows
        self.start(now_s)
        self._newest_chunk_policy = snapshot.newest_chunk_policy
        self.dropped_rows = snapshot.dropped_rows
        if snapshot.random_state:
            self._rng.bit_generator.state = json.loads(snapshot.random_state)
        if self._on_policy is not None:
            self._on_policy.finish(snapshot.settled_rows)
            self._on_policy.drop(snapshot.limiter_dropped_rows)
        return tuple(deletable)

    def resume(self, snapshot: ReplaySnapshot, chunks: Sequence[IndexedChunk], now_s: float) -> tuple[str, ...]:
        """Continue a resumed run, maybe with a smaller buffer: earlier leases bring no chunks, and no learner reads
        earlier announcements."""
        ledger = replace(snapshot.ledger, counted=[], has_forgotten=True)
        deletable = self.restore(replace(snapshot, ledger=ledger), chunks, now_s)
        if self._on_policy is not None:  # rows whose payloads are lost will never be used
            kept = self.index.sampled_rows + self._on_policy.dropped_rows + self.index.rows
            self._on_policy.drop(max(0, self.index.next_row - kept))
        return (*deletable, *self.index.make_room())

    def restore_priorities(self, known: Prioritized) -> None:
        """Set the priorities of a snapshot; later rows get the largest of them, like new rows."""
        live = np.flatnonzero(np.isfinite(known.priorities))
        if not len(live):
            return
        priorities = known.priorities[live]
        newer = np.arange(known.first_row + len(known.priorities), self.index.next_row)
        self.index.update_priorities(known.first_row + live, priorities)
        largest = max(1.0, float(priorities.max()))
        self.index.update_priorities(newer, np.full(len(newer), largest, np.float32))

    def news(self) -> tuple[tuple[IndexedChunk, ...], tuple[int, ...]]:
        """Return new live chunks, and the first rows of chunks that are no longer live, since the last call."""
        news = tuple(self._added), tuple(self._gone)
        self._added, self._gone = [], []
        return news

    def _note_gone(self, chunk: IndexedChunk) -> None:
        self._gone.append(chunk.first_row)
        if self.on_retired is not None:
            self.on_retired(chunk)

    # --- counters and reports ---

    @property
    def samples_per_insert(self) -> float | None:
        """Average number of samples of a row; None before training."""
        achieved = self.index.achieved_samples_per_insert()
        return None if math.isnan(achieved) else achieved

    def policy_lag(self, newest: PolicyRef) -> int:
        """Return the number of versions between the newest policy and the policy of the newest chunk."""
        seen = self._newest_chunk_policy
        return max(newest.version - seen.version, 0) if seen.epoch == newest.epoch else 0

    def start(self, now_s: float) -> None:
        """Start the period of the reports, without earlier draws."""
        log, drawn = self._config.log, self.index.sampled_rows // self.plan.rows_per_update
        self._monitor = BufferMonitor(
            self.index, log.buffer_interval_samples, log.buffer_interval_s, now_s=now_s, batches=drawn
        )

    def reports(
        self, counters: Counters, now_s: float, *, newest: PolicyRef | None = None, last: bool = False
    ) -> list[Report]:
        """Return the reports of the buffer's log since the last call. `newest` is the newest policy; `last` adds the
        table of an unfinished period. On-policy batches are large and few: the table of draws comes with every
        period."""
        statistics = self._monitor.throughput(now_s, last=last)
        if statistics is not None:
            drawn = self._monitor.rest() if self.plan.on_policy else None
            if drawn is not None:
                self._reports.append(sample_report(drawn, train_iter=counters.train_iter, env_step=counters.env_step))
            self._reports.append(
                throughput_report(
                    statistics,
                    counters,
                    samples_per_insert=self.samples_per_insert,
                    policy_lag=0 if newest is None else self.policy_lag(newest),
                    ledger=self.ledger.counts,
                    num_transitions=statistics.current_have * self.plan.slots_per_row,
                    payload_bytes=self.index.payload_bytes,
                )
            )
        reports, self._reports = self._reports, []
        return reports


def _on_policy_limiter(config: ExperimentConfig, plan: RowPlan) -> OnPolicyLimiter | None:
    """Return the limit on the lead of collectors over an on-policy learner; None for learning from replay and without
    learning."""
    if not plan.on_policy or config.learner.inference:
        return None
    lag = config.buffer.max_policy_lag
    return OnPolicyLimiter(plan.rows_per_update, updates_ahead=UNBOUNDED_LAG if lag is None else lag)


def _replay_limiter(config: ExperimentConfig, plan: RowPlan, *, serial: bool) -> SamplesPerInsertLimiter:
    """Return the limit on the distance between collectors and a learner from replay; `serial`: they work in turn."""
    batches = 1 if serial else REQUESTS_IN_FLIGHT * plan.batches_per_request
    return SamplesPerInsertLimiter(
        None if config.learner.inference else config.buffer.samples_per_insert,
        config.buffer.min_rows,
        request_rows=batches * plan.rows_per_update,
        chunk_rows=plan.most_chunk_rows * (1 if serial else config.collector.count),
    )


def _sampler_of(buffer: BufferConfig) -> Sampler:
    """Return the sampler of replay rows."""
    if buffer.prioritized:
        return PrioritizedSampler(buffer.capacity, buffer.priority_exponent)
    return UniformSampler(buffer.capacity)
