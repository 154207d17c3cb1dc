"""What of an experiment its journal keeps, and how it comes back after a restart, or for a resumed run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.coordinator.effects import DeleteChunks, Step
from remuda.coordinator.experiment.parts import Parts
from remuda.training.run_snapshot import Changes, ExperimentSnapshot
from remuda.training.snapshot import NewEpisodes, Rows
from remuda.wire.messages import AnyMessage, BatchRequest, ChunkMeta, IndexedChunk


class ExperimentMemory:
    """Reads all parts of one experiment, and gives them back what they were."""

    def __init__(self, experiment: str, parts: Parts) -> None:
        books = parts.books
        self._experiment = experiment
        self._status, self._shutdown, self._dispatch = parts.status, parts.shutdown, parts.dispatch
        self._failures, self._deaths, self._leases = books.failures, books.deaths, books.leases
        self._replay, self._flow, self._reanalysis = books.replay, books.flow, books.reanalysis
        self._progress, self._callbacks = books.progress, books.callbacks
        self._rows_are_journaled = False
        self._left_over: tuple[str, ...] = ()

    def snapshot(self, now_s: float) -> ExperimentSnapshot:
        """What a restarted coordinator needs, without its rows."""
        return ExperimentSnapshot(
            state=self._status.state,
            reason=self._status.reason,
            stage=self._shutdown.stage,
            failures=self._failures.in_a_row,
            wall_s=self._status.wall_s(now_s),
            replay=self._replay.snapshot(),
            flow=self._flow.snapshot(),
            leases=self._leases.snapshot(),
            dispatch=self._dispatch.snapshot(now_s),
            progress=self._progress.snapshot(),
            workers_failures=self._failures.snapshot(now_s),
            deaths=self._deaths.snapshot(now_s),
            reanalysis=self._reanalysis.snapshot(),
            stage_left_s=self._shutdown.left_s(now_s),
            callbacks=self._callbacks.snapshot(),
        )

    def changes(self, now_s: float) -> Changes:
        """Rows that have changed since the last call. The first call returns all, unless the experiment continues from
        a journal that has them."""
        if not self._rows_are_journaled:
            self._rows_are_journaled = True
            self._changes(now_s)
            return self.rows(now_s)
        return self._changes(now_s)

    def _changes(self, now_s: float) -> Changes:
        return Changes(
            lease=self._leases.changes(),
            place=self._leases.changed_places(),
            account=self._flow.changes(),
            counted=self._replay.changes(),
            rest=self._failures.changes(now_s),
            reanalysis=self._reanalysis.changes(),
        )

    def rows(self, now_s: float) -> Changes:
        """All rows."""
        return Changes(
            lease=Rows(self._leases.rows()),
            place=Rows(self._leases.rows_of_places()),
            account=Rows(self._flow.rows()),
            counted=Rows(self._replay.rows_of_leases()),
            rest=Rows(self._failures.rows(now_s)),
            reanalysis=Rows(self._reanalysis.all_rows()),
            whole=True,
        )

    def new_episodes(self) -> NewEpisodes | None:
        """Training episodes that progress.txt has yet to show, if they ended since the last call."""
        return self._progress.news()

    def is_soft(self, message: AnyMessage) -> bool:
        """Whether the journal may wait for what this message changed: rows that were drawn with replacement may be
        drawn again."""
        return isinstance(message, BatchRequest) and not self._replay.plan.on_policy

    def restore(self, snapshot: ExperimentSnapshot, chunks: Sequence[IndexedChunk], now_s: float) -> None:
        """Continue from a snapshot, with these chunks still in data/. Leases stay open, since their workers may come
        back."""
        self._status.restore(snapshot.state, snapshot.reason, snapshot.wall_s, now_s)
        self._shutdown.enter(snapshot.stage, now_s, snapshot.stage_left_s)
        self._failures.restore(snapshot.workers_failures, snapshot.failures, now_s)
        self._replay.restore(snapshot.replay, chunks, now_s)
        self._flow.restore(snapshot.flow)
        self._leases.restore(snapshot.leases)
        self._deaths.restore(snapshot.deaths, now_s)
        for lease in self._leases:
            self._deaths.taken_up(lease.number, now_s)
        self._dispatch.restore(snapshot.dispatch, now_s)
        self._progress.restore(snapshot.progress)
        self._reanalysis.restore(snapshot.reanalysis, [lease.number for lease in self._leases])
        self._callbacks.restore(snapshot.callbacks)
        self._rows_are_journaled = True

    def resume(
        self, snapshot: ExperimentSnapshot, chunks: Sequence[IndexedChunk], late: Sequence[ChunkMeta], now_s: float
    ) -> None:
        """Continue a resumed run with all its earlier experience; the learner starts from the checkpoint. Chunks that
        come `late` were written but never announced, or announced but no longer counted."""
        deletable = [*self._replay.resume(snapshot.replay, chunks, now_s)]
        self._progress.restore(snapshot.progress)
        self._callbacks.resume(snapshot.callbacks)
        self._flow.resume(snapshot.flow)
        self._leases.restore(replace(snapshot.leases, leases=[]))
        self._reanalysis.restore(snapshot.reanalysis, ())
        for meta in late:
            accepted = self._replay.count_late(meta)
            deletable += accepted.deletable
            if accepted.fresh:
                self._progress.chunk(meta)
                self._callbacks.chunk(meta, self._replay.env_step)
        self._left_over = tuple(deletable)

    def left_over(self) -> list[Step]:
        """Payload files of an earlier incarnation that may be deleted; returned once."""
        files, self._left_over = self._left_over, ()
        return [DeleteChunks(self._experiment, files)] if files else []
