"""Reanalysis in one experiment: which chunks are computed again, by whom, and what came of it.

A reanalyzer is given one chunk at a time, drawn as batches are drawn, and computes the declared columns of all its rows
with the newest target network. What it wrote belongs to that chunk: it is replaced by what a newer target network
computes, and deleted with the chunk's rows. The coordinator knows ids, files and versions, and never sees a column.

"Newer" is counted in updates, over learners that died: a learner that starts again from a checkpoint computes nothing
again before its target network is further than the one before was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from remuda.buffer.reanalysis_file import HEADER_AT_MOST_BYTES, reanalysis_name
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import DeleteChunks, SendToLease, Step
from remuda.environments.seeding import generator
from remuda.logbook.reports import BufferThroughputReport, Report
from remuda.logbook.statistics import ratio
from remuda.policy.algorithms import reanalyzed_by_workers
from remuda.training.changed_rows import ChangedRows
from remuda.training.effects import LogLine
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.snapshot import AskedSnapshot, ReanalysisRow, ReanalysisSnapshot, Rows
from remuda.wire.messages import (
    IndexedChunk,
    IndexedReanalysis,
    NotReanalyzed,
    PolicyRef,
    Reanalysis,
    Reanalyze,
    Reanalyzed,
)

REQUESTS_AT_ONCE = 2
"""Requests that a reanalyzer has at a time: it computes one while the next is on its way."""
DRAWS = 32
"""Rows that are drawn in search of a chunk to compute again, before the search waits for a moment."""
TARGETS_KEPT = 100
"""The newest target networks that are known; what an older one computed is dropped."""
ANNOUNCED_AT_ONCE = 1_000
"""The most reanalyses in one answer to the learner."""


@dataclass
class _Request:
    """A chunk that a reanalyzer computes again."""

    chunk: IndexedChunk
    target: PolicyRef
    result: Reanalysis | None = None
    """What came of it, by a target network that is not known to be published yet: the learner's word is on its way."""


@dataclass
class _Reanalyzer:
    """What one reanalyzer has been asked."""

    requests: int = 0
    """The newest request's number."""
    pending: dict[int, _Request] = field(default_factory=dict[int, "_Request"])


class ReanalysisBook:
    """Gives chunks to reanalyzers, and keeps the newest reanalysis of each chunk with live rows.

    Each is counted once, and only as the answer to a request. Requests whose reanalyzer is gone are free again.
    """

    def __init__(self, experiment: str, config: ExperimentConfig, replay: ReplayAccounting) -> None:
        declared = reanalyzed_by_workers(config)
        self._experiment = experiment
        self.share = 0.0 if declared is None else declared.share
        """Rows that are computed again, as a share of the sampled ones; 0 in runs without reanalyzers."""
        self._replay = replay
        self._rng = generator(config.seed, "coordinator", 0, "reanalysis")
        self._targets: list[PolicyRef] = []
        self._reanalyzers: dict[int, _Reanalyzer] = {}
        self._in_work: set[int] = set()
        """The first rows of chunks that somebody was asked for."""
        self._newest: dict[int, IndexedReanalysis] = {}
        """By the first row of their chunk, in the order of their numbers."""
        self._unreadable: set[int] = set()
        """The first rows of chunks whose payload a reanalyzer could not read."""
        self._replaced: list[tuple[int, str]] = []
        """Files that the learner may be about to read: the number of what replaces each."""
        self.deletable: list[str] = []
        """Files that nobody needs any more, until `delete` returns them."""
        self._announced = 0
        """The learner was told of all reanalyses up to this number."""
        self._given_rows = 0
        self._compute_s = 0.0
        self._reported = (0, 0.0)
        """Reanalyses and seconds that tables of the buffer have told of."""
        self._found_none = False
        self._changed = ChangedRows[int]()
        self.accepted = 0
        """Reanalyses that were counted: the number of the newest."""
        self.rows = 0
        """Live rows in them when they came: each row as often as it was computed again."""
        self.target = PolicyRef()
        """The target network of the newest of them."""
        if declared is not None:
            replay.on_retired = self._retired

    # --- what happens ---

    def published(self, target: PolicyRef) -> list[Step]:
        """The learner has published a target network."""
        if target in self._targets:
            return []
        self._targets = sorted([*self._targets, target])[-TARGETS_KEPT:]
        self._found_none = False
        for lease, reanalyzer in self._reanalyzers.items():
            for request, pending in list(reanalyzer.pending.items()):
                if pending.result is not None and pending.result.target <= target:
                    self._answered(lease, request, pending.result)
        return self.delete()

    def ready(self, lease: int) -> None:
        """A reanalyzer is ready to work."""
        self._reanalyzers.setdefault(lease, _Reanalyzer())

    def gone(self, lease: int) -> list[Step]:
        """A reanalyzer's lease is over: others may compute what it was asked for."""
        reanalyzer = self._reanalyzers.pop(lease, _Reanalyzer())
        for pending in reanalyzer.pending.values():
            self._free(pending)
            if pending.result is not None:
                self.deletable.append(pending.result.file)
        return self.delete()

    def reanalyzed(self, message: Reanalyzed) -> list[Step]:
        """A reanalyzer has computed a chunk again. An answer that comes again changes nothing."""
        pending = self._pending_request(message.lease, message.request)
        if pending is None:
            self._pass_over(message.meta)
        elif message.meta.target > self._targets[-1]:
            pending.result = message.meta
        else:
            self._answered(message.lease, message.request, message.meta)
        return self.delete()

    def came_late(self, meta: Reanalysis) -> list[Step]:
        """A reanalyzer whose lease is over has computed a chunk again; that may have been counted before."""
        self._pass_over(meta)
        return self.delete()

    def not_reanalyzed(self, message: NotReanalyzed) -> list[Step]:
        """A reanalyzer cannot read a chunk. If its rows are live, nobody else is asked for it."""
        pending = self._pending_request(message.lease, message.request)
        if pending is None:
            return []
        del self._reanalyzers[message.lease].pending[message.request]
        self._free(pending)
        chunk = self._replay.index.chunk_of(pending.chunk.first_row)
        if chunk is None:
            return []
        self._unreadable.add(chunk.first_row)
        text = f"payload {chunk.meta.file} is not computed again: {message.reason}"
        return [LogLine(self._experiment, text, "warning")]

    def tick(self) -> None:
        """Time has passed: look again for chunks to compute again."""
        self._found_none = False

    def ask(self) -> list[Step]:
        """Give reanalyzers chunks, as many as the share allows."""
        steps: list[Step] = []
        if not self.share or not self._targets or self._found_none:
            return steps
        for at_once in range(1, REQUESTS_AT_ONCE + 1):
            for lease, reanalyzer in self._reanalyzers.items():
                if (
                    len(reanalyzer.pending) < at_once
                    and self._given_rows < self.share * self._replay.index.sampled_rows
                ):
                    chunk = self._replay.index.draw_chunk(self._rng, self._is_wanted, draws=DRAWS)
                    if chunk is None:
                        self._found_none = True
                        return steps
                    steps.append(self._give(lease, reanalyzer, chunk))
        return steps

    def delete(self) -> list[Step]:
        """The files that nobody needs any more."""
        files, self.deletable = self.deletable, []
        return [DeleteChunks(self._experiment, tuple(files))] if files else []

    def repeat(self, lease: int) -> list[Step]:
        """Ask a reanalyzer again that was away: the requests may be lost. It answers each once."""
        reanalyzer = self._reanalyzers.get(lease, _Reanalyzer())
        return [
            self._request(lease, number, each) for number, each in reanalyzer.pending.items() if each.result is None
        ]

    def summary(self) -> list[Step]:
        """A line about the whole run, if anything was computed again."""
        if not self.accepted:
            return []
        time_ms = 1e3 * self._compute_s / self.accepted
        text = (
            f"{self.rows} rows of {self.accepted} chunks were computed again, the newest with the target network of "
            f"iteration {self.target.train_iter}: reanalyze_time_ms {time_ms:.1f} per chunk"
        )
        return [LogLine(self._experiment, text)]

    def completed(self, report: Report) -> Report:
        """The same report. A table of the buffer tells, in runs with reanalyzers, how long a chunk took them since the
        table before."""
        if not self.share or not isinstance(report, BufferThroughputReport):
            return report
        chunks, compute_s = self.accepted - self._reported[0], self._compute_s - self._reported[1]
        self._reported = self.accepted, self._compute_s
        return replace(report, reanalyze_time_ms=ratio(1e3 * compute_s, chunks))

    # --- the learner ---

    def hand_out_new(self) -> list[IndexedReanalysis]:
        """Reanalyses that the learner was not told of; they count as told from now on."""
        new: list[IndexedReanalysis] = []
        for each in reversed(self._newest.values()):
            if each.number <= self._announced:
                break
            new.append(each)
        new = new[: -ANNOUNCED_AT_ONCE - 1 : -1]
        self._announced = new[-1].number if new else self._announced
        return new

    def all_for_new_learner(self) -> list[IndexedReanalysis]:
        """The newest reanalysis of each chunk that has one, for a learner with an empty ring."""
        self._announced = self.accepted
        self.deletable += [file for _, file in self._replaced]
        self._replaced = []
        return list(self._newest.values())

    def confirm_loaded(self, number: int) -> None:
        """The learner has read the reanalyses up to this number: what these replaced is not needed any more."""
        self.deletable += [file for newer, file in self._replaced if newer <= number]
        self._replaced = [(newer, file) for newer, file in self._replaced if newer > number]

    def learner_has(self, number: int) -> None:
        """The learner was away, and has read the reanalyses up to this number."""
        self._announced = min(number, self.accepted)

    # --- what can be true ---

    def refusal(self, message: Reanalyzed | NotReanalyzed) -> str | None:
        """Why this cannot be true, whoever says it under its own lease; None if it can."""
        reanalyzer = self._reanalyzers.get(message.lease, _Reanalyzer())
        if not 1 <= message.request <= reanalyzer.requests:
            return f"it answers request {message.request}, and was sent {reanalyzer.requests}"
        pending = self._pending_request(message.lease, message.request)
        if isinstance(message, NotReanalyzed) or pending is None:
            return None
        meta, chunk = message.meta, pending.chunk
        if (meta.chunk, meta.first_row, meta.rows) != (chunk.meta.chunk, chunk.first_row, chunk.meta.rows):
            return f"its reanalysis {meta.file} is of other rows than request {message.request}"
        if meta.payload_bytes > chunk.meta.payload_bytes + HEADER_AT_MOST_BYTES:
            return f"its reanalysis {meta.file} has {meta.payload_bytes} bytes, more than the chunk itself"
        if meta.target < pending.target:
            return f"its reanalysis {meta.file} is by an older target network than request {message.request} asked for"
        return None

    # --- over a restart ---

    @property
    def live_files(self) -> frozenset[str]:
        """Files that are still needed."""
        return frozenset(each.meta.file for each in self._newest.values())

    def snapshot(self) -> ReanalysisSnapshot:
        """What a restarted coordinator needs, without its rows."""
        return ReanalysisSnapshot(
            targets=list(self._targets),
            accepted=self.accepted,
            rows=self.rows,
            target=self.target,
            given_rows=self._given_rows,
            compute_s=self._compute_s,
            requests=[(lease, reanalyzer.requests) for lease, reanalyzer in self._reanalyzers.items()],
            asked=[
                AskedSnapshot(lease, request, pending.chunk, pending.target, pending.result)
                for lease, reanalyzer in self._reanalyzers.items()
                for request, pending in reanalyzer.pending.items()
            ],
        )

    def all_rows(self) -> tuple[ReanalysisRow, ...]:
        """All rows."""
        return tuple(ReanalysisRow(each) for each in self._newest.values())

    def changes(self) -> Rows[ReanalysisRow]:
        """Rows that have changed since the last call."""
        return self._changed.take(lambda first_row: ReanalysisRow(self._newest[first_row]))

    def restore(self, snapshot: ReanalysisSnapshot, leases: Sequence[int]) -> None:
        """Continue from a snapshot, with these leases still open. The chunks are back already: what belongs to others
        is not needed any more."""
        self._targets, self._given_rows = list(snapshot.targets), snapshot.given_rows
        self._compute_s = snapshot.compute_s
        self.accepted, self.rows, self.target = snapshot.accepted, snapshot.rows, snapshot.target
        self._reported = self.accepted, self._compute_s
        if snapshot.newest:  # of a run that had reanalyzers before it was resumed
            self._replay.on_retired = self._retired
        for row in sorted(snapshot.newest, key=lambda row: row.reanalysis.number):
            first_row, meta = row.key, row.reanalysis.meta
            if self._replay.index.chunk_of(first_row) is None:
                self.deletable.append(meta.file)
                self._changed.drop(first_row)
            else:
                self._newest[first_row] = row.reanalysis
                self._replay.index.hold(meta.payload_bytes)
        self._reanalyzers = {lease: _Reanalyzer(requests) for lease, requests in snapshot.requests if lease in leases}
        for each in snapshot.asked:
            if each.lease in self._reanalyzers:
                self._reanalyzers[each.lease].pending[each.request] = _Request(each.chunk, each.target, each.came)
                self._in_work.add(each.chunk.first_row)
            else:
                self._given_rows -= each.chunk.meta.rows

    # --- inside ---

    def _is_wanted(self, chunk: IndexedChunk) -> bool:
        """Whether the newest target network would compute something newer than this chunk has."""
        first_row, newest = chunk.first_row, self._targets[-1].train_iter
        if first_row in self._in_work or first_row in self._unreadable or chunk.meta.policy.train_iter >= newest:
            return False
        there = self._newest.get(first_row)
        return there is None or there.meta.target.train_iter < newest

    def _give(self, lease: int, reanalyzer: _Reanalyzer, chunk: IndexedChunk) -> Step:
        reanalyzer.requests += 1
        pending = reanalyzer.pending[reanalyzer.requests] = _Request(chunk, self._targets[-1])
        self._in_work.add(chunk.first_row)
        self._given_rows += chunk.meta.rows
        return self._request(lease, reanalyzer.requests, pending)

    def _request(self, lease: int, number: int, pending: _Request) -> Step:
        return SendToLease(lease, Reanalyze(lease, number, pending.chunk, pending.target))

    def _pending_request(self, lease: int, request: int) -> _Request | None:
        """What was asked and is not answered."""
        reanalyzer = self._reanalyzers.get(lease)
        found = None if reanalyzer is None else reanalyzer.pending.get(request)
        return found if found is None or found.result is None else None

    def _free(self, pending: _Request) -> None:
        self._in_work.discard(pending.chunk.first_row)
        self._given_rows -= pending.chunk.meta.rows

    def _pass_over(self, meta: Reanalysis) -> None:
        kept = self._newest.get(meta.first_row)
        replaced = any(file == meta.file for _, file in self._replaced)
        waits = any(
            pending.result == meta
            for reanalyzer in self._reanalyzers.values()
            for pending in reanalyzer.pending.values()
        )
        if not waits and not replaced and (kept is None or kept.meta.file != meta.file):
            self.deletable.append(meta.file)

    def _answered(self, lease: int, request: int, meta: Reanalysis) -> None:
        """Count a reanalysis, if its chunk still has live rows and its target network is known."""
        pending = self._reanalyzers[lease].pending.pop(request)
        first_row = pending.chunk.first_row
        self._in_work.discard(first_row)
        chunk, there = self._replay.index.chunk_of(first_row), self._newest.get(first_row)
        older = there is not None and there.meta.target.train_iter >= meta.target.train_iter
        if chunk is None or older or meta.target not in self._targets:
            self.deletable.append(meta.file)
            return
        self.accepted += 1
        self._compute_s += meta.compute_s
        if there is not None:
            self._replaced.append((self.accepted, self._drop(first_row)))
        self.rows += self._replay.live_rows_of(chunk)
        self.target = max(self.target, meta.target)
        self._newest[first_row] = IndexedReanalysis(self.accepted, meta)
        self._changed.put.add(first_row)
        self._replay.index.hold(meta.payload_bytes)

    def _drop(self, first_row: int) -> str:
        """Forget the newest reanalysis of a chunk; returns its file."""
        dropped = self._newest.pop(first_row)
        self._replay.index.hold(-dropped.meta.payload_bytes)
        return dropped.meta.file

    def _retired(self, chunk: IndexedChunk) -> None:
        """No row of this chunk is live any more."""
        self._unreadable.discard(chunk.first_row)
        if chunk.first_row in self._newest:
            self.deletable.append(self._drop(chunk.first_row))
            self._changed.drop(chunk.first_row)


def is_its_own(meta: Reanalysis, worker: str, incarnation: int) -> bool:
    """Whether this is the file of a reanalysis of this incarnation of a worker."""
    return (meta.id.worker, meta.id.incarnation, meta.file) == (worker, incarnation, reanalysis_name(meta.id))
