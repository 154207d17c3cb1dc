"""Reanalysis in an experiment: the chunks to compute again, the requests to reanalyzers, and the results.

A reanalyzer works for all policies, on one chunk at a time, drawn as batches are drawn, and computes the declared
columns of all rows with the newest target network. The result belongs to this chunk: a result of a newer target network
replaces the older result, and both are deleted with the chunk's rows. The coordinator knows ids, files and versions,
and never sees a column.

"Newer" is counted in updates, across dead learners: after a restart from a checkpoint, no chunk is computed again
before the target network is further than the previous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from remuda.buffer.chunk import HEADER_AT_MOST_BYTES, reanalysis_name
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import DeleteChunks, SendToLease, Step
from remuda.environments.seeding import generator
from remuda.logbook.reports import BufferThroughputReport, Report
from remuda.logbook.statistics import ratio
from remuda.policy.algorithms import reanalyzed_by_workers
from remuda.training.effects import LogLine
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.run_snapshot import ChangedRows, Rows
from remuda.training.snapshot import AskedSnapshot, ReanalysisRow, ReanalysisSnapshot
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
"""Requests per reanalyzer: one is computed while the next is under way."""
DRAWS = 32
"""Rows to draw in search of a chunk, before the search pauses."""
TARGETS_KEPT = 100
"""Newest target networks to remember; results of older ones are dropped."""
ANNOUNCED_AT_ONCE = 1_000
"""Upper limit of reanalyses in one answer to the learner."""


@dataclass
class _Request:
    """A chunk that a reanalyzer computes again."""

    chunk: IndexedChunk
    target: PolicyRef
    result: Reanalysis | None = None
    """Result whose target network is not confirmed yet: the learner's message is under way."""


@dataclass
class _Reanalyzer:
    """Requests to a reanalyzer."""

    requests: int = 0
    """The newest request's number."""
    pending: dict[int, _Request] = field(default_factory=dict[int, "_Request"])


class ReanalysisBook:
    """Gives chunks to reanalyzers, and keeps the newest reanalysis of each chunk with live rows.

    Every reanalysis counts once, and only as the answer to a request. Requests to a lost reanalyzer are free again.
    """

    def __init__(self, experiment: str, config: ExperimentConfig, replay: ReplayAccounting, policy_index: int) -> None:
        declared = reanalyzed_by_workers(config)
        self._experiment, self._policy_index = experiment, policy_index
        self.share = 0.0 if declared is None else declared.share
        """Rows to compute again, as a share of the sampled rows; 0 in runs without reanalyzers."""
        self._replay = replay
        self._rng = generator(config.seed, "coordinator", 0, "reanalysis")
        self._targets: list[PolicyRef] = []
        self._reanalyzers: dict[int, _Reanalyzer] = {}
        self._in_work: set[int] = set()
        """First rows of the requested chunks."""
        self._newest: dict[int, IndexedReanalysis] = {}
        """By the first row of the chunk, in the order of reanalysis numbers."""
        self._unreadable: set[int] = set()
        """First rows of chunks whose payload a reanalyzer could not read."""
        self._replaced: list[tuple[int, str]] = []
        """Files that the learner may be about to read, with the number of the replacing reanalysis."""
        self.deletable: list[str] = []
        """Unneeded files, until `delete` returns them."""
        self._announced = 0
        """Highest number announced to the learner."""
        self._given_rows = 0
        self._compute_s = 0.0
        self._reported = (0, 0.0)
        """Reanalyses and seconds already reported in tables of the buffer."""
        self._found_none = False
        self._changed = ChangedRows[int]()
        self.accepted = 0
        """Number of counted reanalyses, and of the newest."""
        self.rows = 0
        """Live rows in counted reanalyses, on arrival; a row counts every time."""
        self.target = PolicyRef()
        """Target network of the newest reanalysis."""
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
        """Free the requests of a reanalyzer whose lease is over."""
        reanalyzer = self._reanalyzers.pop(lease, _Reanalyzer())
        for pending in reanalyzer.pending.values():
            self._free(pending)
            if pending.result is not None:
                self.deletable.append(pending.result.file)
        return self.delete()

    def reanalyzed(self, message: Reanalyzed) -> list[Step]:
        """Handle the result of a reanalyzer. A repeated answer changes nothing."""
        pending = self._pending_request(message.lease, message.request)
        if pending is None:
            self._pass_over(message.meta)
        elif message.meta.target > self._targets[-1]:
            pending.result = message.meta
        else:
            self._answered(message.lease, message.request, message.meta)
        return self.delete()

    def came_late(self, meta: Reanalysis) -> list[Step]:
        """Handle a result under a closed lease, which may have been counted before."""
        self._pass_over(meta)
        return self.delete()

    def not_reanalyzed(self, message: NotReanalyzed) -> list[Step]:
        """Give up a chunk with live rows that a reanalyzer cannot read."""
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
                is_due = self._given_rows < self.share * self._replay.index.sampled_rows
                if is_due and len(reanalyzer.pending) < at_once:
                    chunk = self._replay.index.draw_chunk(self._rng, self._is_wanted, draws=DRAWS)
                    if chunk is None:
                        self._found_none = True
                        return steps
                    steps.append(self._give(lease, reanalyzer, chunk))
        return steps

    def delete(self) -> list[Step]:
        """Return and clear the list of unneeded files."""
        files, self.deletable = self.deletable, []
        return [DeleteChunks(self._experiment, tuple(files))] if files else []

    def repeat(self, lease: int) -> list[Step]:
        """Repeat possibly lost requests to a returned reanalyzer. Every request is answered once."""
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
        """Return the report; a table of the buffer with the reanalysis time per chunk since the last table, in runs
        with reanalyzers."""
        if not self.share or not isinstance(report, BufferThroughputReport):
            return report
        chunks, compute_s = self.accepted - self._reported[0], self._compute_s - self._reported[1]
        self._reported = self.accepted, self._compute_s
        return replace(report, reanalyze_time_ms=ratio(1e3 * compute_s, chunks))

    # --- the learner ---

    def hand_out_new(self) -> list[IndexedReanalysis]:
        """Return the reanalyses not yet announced to the learner; they count as announced from now on."""
        new: list[IndexedReanalysis] = []
        for each in reversed(self._newest.values()):
            if each.number <= self._announced:
                break
            new.append(each)
        new = new[: -ANNOUNCED_AT_ONCE - 1 : -1]
        self._announced = new[-1].number if new else self._announced
        return new

    def all_for_new_learner(self) -> list[IndexedReanalysis]:
        """Return the newest reanalysis of each chunk, for a learner with an empty ring."""
        self._announced = self.accepted
        self.deletable += [file for _, file in self._replaced]
        self._replaced = []
        return list(self._newest.values())

    def confirm_loaded(self, number: int) -> None:
        """Drop files replaced by reanalyses up to this number, which the learner has read."""
        self.deletable += [file for newer, file in self._replaced if newer <= number]
        self._replaced = [(newer, file) for newer, file in self._replaced if newer > number]

    def learner_has(self, number: int) -> None:
        """The learner was away, and has read the reanalyses up to this number."""
        self._announced = min(number, self.accepted)

    # --- what can be true ---

    def refusal(self, message: Reanalyzed | NotReanalyzed) -> str | None:
        """Reason why this message under the sender's own lease cannot be true; None if possible."""
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
        """Files still in use."""
        return frozenset(each.meta.file for each in self._newest.values())

    def snapshot(self) -> ReanalysisSnapshot:
        """Return the state for a restarted coordinator, without its rows."""
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
        """Return the rows changed since the last call."""
        return self._changed.take(lambda first_row: ReanalysisRow(self._newest[first_row]))

    def restore(self, snapshot: ReanalysisSnapshot, leases: Sequence[int]) -> None:
        """Continue from a snapshot, with these leases still open. The chunks are restored already: reanalyses of other
        chunks are not needed any more."""
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
        """True if the newest target network would replace older values of this chunk."""
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
        return SendToLease(lease, Reanalyze(lease, number, pending.chunk, pending.target, self._policy_index))

    def _pending_request(self, lease: int, request: int) -> _Request | None:
        """The unanswered request of this number, if any."""
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
        """Count a reanalysis of a chunk with live rows, if the target network is known."""
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
        """Forget the newest reanalysis of a chunk; return the file."""
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
    """True if this file is a reanalysis by this incarnation of a worker."""
    return (meta.id.worker, meta.id.incarnation, meta.file) == (worker, incarnation, reanalysis_name(meta.id))
