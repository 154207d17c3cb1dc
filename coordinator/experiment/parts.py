"""The parts of an experiment: construction, journal rows, restart, and reports on their state."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import DeleteChunks, Step
from remuda.coordinator.experiment.ending import CallbackDispatch, ExperimentShutdown
from remuda.coordinator.experiment.evaluation import EvaluationDispatch
from remuda.coordinator.experiment.flow import FlowControl
from remuda.coordinator.experiment.reanalysis import ReanalysisBook
from remuda.coordinator.experiment.workers import ExperimentWorkers, WorkerDemand
from remuda.coordinator.failures import Failures
from remuda.coordinator.leases import LeaseBook
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, LogLine, WriteProgress, WriteTimers
from remuda.training.identity import Identity
from remuda.training.journal_entry import JournalEntry
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.resume_point import ResumePoint
from remuda.training.run_snapshot import FORMAT, Changes, ExperimentSnapshot, RunSnapshot
from remuda.training.snapshot import Rows
from remuda.training.status import LiveStatus
from remuda.training.vitals import Vitals
from remuda.wire.messages import ChunkMeta, Counters, IndexedChunk

GENERATIONS_PER_RUN = 1_000
"""Distance between the generations of a run and of its resumed run, to keep workers from repeating earlier random
numbers."""


class Parts:
    """State of an experiment, in counting and deciding parts, with restore after a restart."""

    def __init__(
        self,
        identity: Identity,
        config: ExperimentConfig,
        config_json: str,
        now_s: float,
        resumed: ResumePoint | None,
        *,
        serial: bool = False,
    ) -> None:
        """`config` is the config of this policy; `config_json` is the config of the run, for workers; `serial`: see
        Experiment."""
        id, first_generation = identity.id, 0 if resumed is None else resumed.generation * GENERATIONS_PER_RUN
        self.identity = identity
        self.config = config
        self._config_json = config_json
        # Counts and memories: none of these sends messages to workers.
        self.replay = ReplayAccounting(config, now_s, resumed=resumed, serial=serial)
        self.commander = Commander(config, resumed)
        self.progress = ProgressRows(config, resumed, self.commander.curriculum)
        self.failures = Failures()
        # Decisions: these return messages to workers.
        self.reanalysis = ReanalysisBook(id, config, self.replay)
        self.flow = FlowControl(id, config, self.replay, self.reanalysis, self.commander.curriculum, resumed)
        self.leases = LeaseBook(first_generation, on_forget=self.flow.forget_lease)
        self.vitals = Vitals(config.log.buffer_interval_s, now_s, lambda lease: lease in self.leases.open_leases)
        callbacks = CallbackBook(id, active=bool(config.callbacks))
        self.callbacks = CallbackDispatch(
            experiment=id, book=callbacks, leases=self.leases, commander=self.commander, at_once=serial
        )
        self.dispatch = EvaluationDispatch(id, self.commander, self.leases, self.progress, callbacks)
        self.demand = WorkerDemand(identity, config, self.leases, self.failures, now_s)
        self.workers = ExperimentWorkers(
            identity=identity,
            config_json=config_json,
            leases=self.leases,
            replay=self.replay,
            flow=self.flow,
            reanalysis=self.reanalysis,
            dispatch=self.dispatch,
            callbacks=callbacks,
        )
        self.shutdown = ExperimentShutdown(
            experiment=id,
            leases=self.leases,
            workers=self.workers,
            dispatch=self.dispatch,
            callbacks=self.callbacks,
            save_s=config.limits.save_s,
            bounded=not serial,
        )
        self.status = LiveStatus(
            identity=identity,
            replay=self.replay,
            learning=self.flow,
            reanalyzed=self.reanalysis,
            commander=self.commander,
            before_s=0.0 if resumed is None else resumed.counters.wall_s,
        )
        self._rows_are_journaled = False
        self._left_over: tuple[str, ...] = ()

    # --- reports: progress.txt, logs, curves, times ---

    def last_reports(self, end: End, now_s: float) -> list[Step]:
        """Return the remaining reports of a run that is over."""
        counters, dropped, id = self.status.counters(now_s), self.replay.dropped_rows, self.identity.id
        return [
            *self.progress_rows(counters, last=True),
            *self.buffer_reports(counters, now_s, last=True),
            *self.vital_signs(counters, now_s, last=True),
            *([LogLine(id, f"{dropped} rows were dropped: too old for the policy")] if dropped else []),
            *self._updates_owed(),
            *self.reanalysis.summary(),
            self.dispatch.outcomes.run_is_over(end, counters.wall_s),
        ]

    def _updates_owed(self) -> list[Step]:
        """Return a log line about updates that the learner did not do, for readers who compare runs."""
        owed, per_insert = self.flow.updates_owed(), self.config.buffer.samples_per_insert
        if not owed:
            return []
        if self.flow.owes == "batches":
            return [LogLine(self.identity.id, f"batches that were collected and not learned from: {owed}")]
        asked = f"buffer.samples_per_insert {per_insert:g} asks for {self.flow.train_iter + owed}"
        return [LogLine(self.identity.id, f"{owed} updates are owed: {self.flow.train_iter} were done, and {asked}")]

    def progress_rows(self, counters: Counters, *, last: bool = False) -> list[Step]:
        """Return the rows of progress.txt that are due."""
        awaited = self.commander.awaited(counters)
        rows = self.progress.last(counters) if last else self.progress.due(counters, awaited)
        return [WriteProgress(self.identity.id, row) for row in rows]

    def buffer_reports(self, counters: Counters, now_s: float, *, last: bool = False) -> list[Step]:
        """Return the reports of the buffer that are due."""
        if not counters.wall_s:
            return []  # its time has not begun
        reports = self.replay.reports(counters, now_s, newest=self.flow.policy, last=last)
        return [Emit(self.identity.id, self.reanalysis.completed(report)) for report in reports] if reports else []

    def vital_signs(self, counters: Counters, now_s: float, *, last: bool = False) -> list[Step]:
        """Return the report on the workers' use of time, if due."""
        report = self.vitals.due(counters, now_s, last=last)
        if report is None:
            return []
        document = self.vitals.document(report.wall_s)
        return [Emit(self.identity.id, report), WriteTimers(self.identity.id, document)]

    # --- for the journal ---

    def entry(self, newest_lease: int, now_s: float, *, boot: str = "", with_priorities: bool) -> JournalEntry:
        """Return the changes since the last call. `newest_lease` is the highest number given out."""
        added, gone = self.replay.news()
        identity = self.identity.snapshot(self._config_json)
        return JournalEntry(
            self.identity.id,
            RunSnapshot(FORMAT, identity, self.snapshot(now_s), newest_lease, boot),
            self.changes(now_s),
            added,
            gone,
            self.replay.index.priorities() if with_priorities else None,
            self.progress.news(),
        )

    def snapshot(self, now_s: float) -> ExperimentSnapshot:
        """Return the state for a restarted coordinator, without its rows."""
        return ExperimentSnapshot(
            state=self.status.state,
            reason=self.status.reason,
            stage=self.shutdown.stage,
            failures=self.failures.in_a_row,
            wall_s=self.status.wall_s(now_s),
            replay=self.replay.snapshot(),
            flow=self.flow.snapshot(),
            leases=self.leases.snapshot(),
            dispatch=self.dispatch.snapshot(now_s),
            progress=self.progress.snapshot(),
            workers_failures=self.failures.snapshot(now_s),
            deaths=self.failures.deaths(now_s),
            reanalysis=self.reanalysis.snapshot(),
            stage_left_s=self.shutdown.left_s(now_s),
            callbacks=self.callbacks.book.snapshot(),
        )

    def changes(self, now_s: float) -> Changes:
        """Return the rows changed since the last call. The first call returns all, unless the
        journal has them already."""
        if not self._rows_are_journaled:
            self._rows_are_journaled = True
            self._changes(now_s)
            return self.rows(now_s)
        return self._changes(now_s)

    def _changes(self, now_s: float) -> Changes:
        return Changes(
            lease=self.leases.changes(),
            place=self.leases.changed_indices(),
            account=self.flow.changes(),
            counted=self.replay.ledger.changes(),
            rest=self.failures.changes(now_s),
            reanalysis=self.reanalysis.changes(),
        )

    def rows(self, now_s: float) -> Changes:
        """All rows."""
        return Changes(
            lease=Rows(self.leases.rows()),
            place=Rows(self.leases.rows_of_indices()),
            account=Rows(self.flow.rows()),
            counted=Rows(self.replay.ledger.rows_of_leases()),
            rest=Rows(self.failures.rows(now_s)),
            reanalysis=Rows(self.reanalysis.all_rows()),
            whole=True,
        )

    # --- after a restart ---

    def restore(self, snapshot: ExperimentSnapshot, chunks: Sequence[IndexedChunk], now_s: float) -> None:
        """Continue from a snapshot, with these chunks still in data/. Leases stay open, since the workers may come
        back."""
        self.status.restore(snapshot.state, snapshot.reason, snapshot.wall_s, now_s)
        self.shutdown.enter(snapshot.stage, now_s, snapshot.stage_left_s)
        self.failures.restore(snapshot.workers_failures, snapshot.failures, snapshot.deaths, now_s)
        self.replay.restore(snapshot.replay, chunks, now_s)
        self.flow.restore(snapshot.flow)
        self.leases.restore(snapshot.leases)
        for lease in self.leases:
            lease.recovered, lease.ready_s = True, now_s
        self.dispatch.restore(snapshot.dispatch, now_s)
        self.progress.restore(snapshot.progress)
        self.reanalysis.restore(snapshot.reanalysis, [lease.number for lease in self.leases])
        self.callbacks.book.restore(snapshot.callbacks)
        self._rows_are_journaled = True

    def resume(
        self,
        snapshot: ExperimentSnapshot,
        chunks: Sequence[IndexedChunk],
        late: Sequence[ChunkMeta],
        now_s: float,
        *,
        progress_rows: int | None = None,
    ) -> None:
        """Continue a resumed run with all earlier experience; the learner starts from the checkpoint. `late` chunks
        were written but never announced, or announced but no longer counted. `progress_rows` is the length of
        progress.txt if possibly above the length in the snapshot: then the last row of the file shows all."""
        deletable = [*self.replay.resume(snapshot.replay, chunks, now_s)]
        if progress_rows in (None, snapshot.progress.epoch):
            self.progress.restore(snapshot.progress)
        self.callbacks.book.resume(snapshot.callbacks)
        self.flow.resume(snapshot.flow)
        self.leases.restore(replace(snapshot.leases, leases=[]))
        self.reanalysis.restore(snapshot.reanalysis, ())
        for meta in late:
            accepted = self.replay.count_late(meta)
            deletable += accepted.deletable
            if accepted.fresh:
                self.progress.chunk(meta)
                self.callbacks.book.chunk(meta, self.replay.ledger.env_step)
        self._left_over = tuple(deletable)

    def leftover_files(self) -> list[Step]:
        """Return deletable payload files of an earlier incarnation, once."""
        files, self._left_over = self._left_over, ()
        return [DeleteChunks(self.identity.id, files)] if files else []
