"""Selects the journal entries of each turn, and rebuilds experiments from journals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.catalog import Catalog
from remuda.coordinator.effects import Broken, DeleteChunks, Reply, SendToLease, Step, effect_of
from remuda.coordinator.events import PreparedRun, RecoveredRun
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.leases import Sender
from remuda.training.effects import Emit, LogLine
from remuda.training.journal_entry import JournalEntry, Recovered
from remuda.training.run_snapshot import RunSnapshot
from remuda.wire.messages import (
    AnyMessage,
    Batches,
    BatchRequest,
    ChunkMeta,
    ChunkReady,
    CollectorReport,
    EvaluationFilmed,
    LearnerReport,
    WorkerVitals,
)

SOFT_S = 1.0
"""Time for which updates done, rows sampled and the wall clock may wait for the journal."""
PRIORITIES_S = 30.0
"""Time between two snapshots of all priorities."""
MAY_BE_SOFT = frozenset({BatchRequest, CollectorReport, EvaluationFilmed, LearnerReport, WorkerVitals})
"""Messages that may change nothing to be journaled at once; see `handled`."""


class Journaling:
    """Collects in every turn of the coordinator's loop the journal entries to write before any answer."""

    def __init__(self, catalog: Catalog, boot: str) -> None:
        """`boot` is different for every start of every machine."""
        self._catalog = catalog
        self._boot = boot
        self.touched: set[str] = set()
        """Experiments with changes to journal."""
        self._soft_due_s = 0.0
        self._priorities_due_s: dict[str, float] = {}
        self.broken: list[Broken] = []
        """Experiments with an error raised in `take`; ended as failed."""

    def is_whole(self, snapshot: RunSnapshot) -> bool:
        """True if no later journal entry can be lost. A machine without power may lose the last moments; a killed
        process loses nothing."""
        return snapshot.boot in ("", self._boot)

    def handled(self, experiment: Experiment, message: AnyMessage, steps: Sequence[Step]) -> None:
        """Record the handling of a message in MAY_BE_SOFT. Credit, a save, a row of progress, the end, and rows never
        to be drawn again must be journaled at once."""
        if isinstance(message, BatchRequest) and not experiment.may_redraw:
            self.touched.add(experiment.identity.id)
        for step in steps:
            batches = isinstance(step, SendToLease) and isinstance(step.message, Batches)
            if not batches and not isinstance(effect_of(step), Emit | DeleteChunks):
                self.touched.add(experiment.identity.id)

    def ticked(self, experiment: Experiment, steps: Sequence[Step]) -> None:
        """Record a tick of this experiment, which changes something only with more steps than reports."""
        for step in steps:
            if not isinstance(effect_of(step), Emit):
                self.touched.add(experiment.identity.id)

    def tick(self, now_s: float) -> None:
        """Journal deferred changes, periodically."""
        if now_s >= self._soft_due_s:
            self._soft_due_s = now_s + SOFT_S
            active = (each for each in self._catalog.active if each.held_up is None or each.held_up.journals)
            self.touched |= {each.identity.id for each in active if each.state != "queued"}

    def forget(self, experiment: str) -> None:
        """Nothing more is journaled of this experiment."""
        self.touched.discard(experiment)
        self._priorities_due_s.pop(experiment, None)

    def take(self, newest_lease: int, now_s: float) -> list[JournalEntry]:
        """Return the entries to write now. `newest_lease` is the highest number in use."""
        touched, self.touched = self.touched, set()
        entries: list[JournalEntry] = []
        for id in sorted(touched):
            experiment = self._catalog.experiment(id)
            if experiment is None:
                continue  # it was broken off meanwhile
            try:
                entries.append(self._entry(experiment, newest_lease, now_s))
            except Exception as error:
                self.broken.append(Broken.by(error, id))
        return entries

    def _entry(self, experiment: Experiment, newest_lease: int, now_s: float) -> JournalEntry:
        id = experiment.identity.id
        due = experiment.over or now_s >= self._priorities_due_s.setdefault(id, now_s + PRIORITIES_S)
        if due:
            self._priorities_due_s[id] = now_s + PRIORITIES_S
        if experiment.over:
            del self._priorities_due_s[id]
        first, *others = experiment.entries(newest_lease, now_s, boot=self._boot, with_priorities=due)
        last = experiment.finished(now_s) if experiment.over else None
        return replace(first, last=last, others=tuple(others))


def recovered_run(run: Recovered, now_s: float) -> RecoveredRun:
    """Rebuild the experiment described by a journal."""
    parts = (run, *run.others)
    config = ExperimentConfig.model_validate_json(run.snapshot.identity.config_json)
    experiment = Experiment([part.snapshot.identity for part in parts], config, now_s)
    experiment.restore(parts, now_s)
    return RecoveredRun(experiment, run.snapshot, _whole([part.uncounted for part in parts]))


def adopt(experiment: Experiment, metas: Sequence[ChunkMeta], now_s: float) -> list[Step]:
    """Count a chunk found in data/ after a restart, since the worker may have ended without a coordinator. `metas` has
    the part of every policy. If the worker still announces the chunk, it counts once all the same."""
    first, ledger, id = metas[0], experiment.policies[0].replay.ledger, experiment.identity.id
    lease = ledger.lease_of_missing(first.chunk)
    if lease is None:
        return []
    sender = Sender(first.chunk.worker, first.chunk.incarnation)
    message = ChunkReady(lease, first, list(metas[1:]))
    why = experiment.refusal(message, sender)
    if why is not None:
        return [LogLine(id, f"payload {first.file} is left aside: {why}", "warning")]
    before = ledger.env_step
    steps: list[Step] = [step for step in experiment.receive(message, sender, now_s) if not isinstance(step, Reply)]
    if ledger.env_step > before:
        steps.append(LogLine(id, f"counts {first.file}, which nobody had announced"))
    return steps


def prepared_experiment(prepared: PreparedRun, now_s: float) -> Experiment:
    """Make the experiment that begins, or continues, in a prepared run folder."""
    parts = (prepared, *prepared.others)
    experiment = Experiment([part.identity for part in parts], prepared.config, now_s, [part.resumed for part in parts])
    recovered = [part.recovered for part in parts if part.recovered is not None]
    if recovered:  # all policies are, or none
        experiment.resume(recovered, now_s, late=_whole([part.uncounted for part in parts]))
    return experiment


def _whole(found: Sequence[Sequence[ChunkMeta]]) -> tuple[tuple[ChunkMeta, ...], ...]:
    """Return the chunks present for all policies, in order. If a collector died while writing, some policies lack the
    chunk."""
    by_chunk = [{meta.chunk: meta for meta in metas} for metas in found]
    whole = set(by_chunk[0]).intersection(*by_chunk[1:])
    return tuple(tuple(own[chunk] for own in by_chunk) for chunk in sorted(whole))
