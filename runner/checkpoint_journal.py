"""A serial run's journal: one commit per checkpoint, so that a killed run continues exactly there, replay included."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from remuda.buffer.chunk import sweep_orphans
from remuda.config.schema import ExperimentConfig
from remuda.learner.checkpoint import Progress
from remuda.runner.payloads import Payloads
from remuda.storage.run_folder import RunFolder
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.identity import Identity
from remuda.training.journal import RunJournal
from remuda.training.journal_entry import JournalEntry, Recovered
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.run_snapshot import FORMAT, Changes, ExperimentSnapshot, RunSnapshot
from remuda.training.snapshot import DispatchSnapshot, FlowSnapshot, LeaseBookSnapshot, Rows
from remuda.training.status import LiveStatus
from remuda.wire.messages import Counters, IndexedChunk

SERIAL_WORKER = "00000000-0000-4000-8000-000000000000"
"""Names of the one worker and the one experiment of a serial run, which register nowhere."""


def identity_of(config: ExperimentConfig, folder: RunFolder) -> Identity:
    """The names of a serial run."""
    return Identity(SERIAL_WORKER, config.name, str(folder.root), policy_file="", priority=0, submitted=0)


@dataclass(frozen=True, kw_only=True)
class CheckpointJournal:
    """Commits what a resumed run needs besides the checkpoint file, whose record is part of it."""

    config: ExperimentConfig
    journal: RunJournal
    replay: ReplayAccounting
    payloads: Payloads
    status: LiveStatus
    progress_rows: ProgressRows
    callbacks: CallbackBook

    def write(self, progress: Progress) -> None:
        """Write what has to be committed after the commander has handled a checkpoint or its evaluation; `sweep` comes
        once that is done. Raises JournalError and OSError."""
        written = self.payloads.written()
        added, gone = self.replay.news()
        identity = self.status.identity
        self.journal.write(
            JournalEntry(
                experiment=identity.id,
                snapshot=RunSnapshot(
                    format=FORMAT,
                    identity=identity.snapshot(self.config.model_dump_json()),
                    experiment=self._snapshot(progress),
                    leases=0,
                ),
                changes=Changes(counted=Rows(self.replay.ledger.rows_of_leases()), whole=True),
                added=tuple(IndexedChunk(c.first_row, written[c.meta.file]) for c in added if c.meta.file in written),
                gone=gone,
                priorities=self.replay.index.priorities(),
                episodes=self.progress_rows.news(),
            )
        )

    def sweep(self) -> None:
        """What was written is committed: delete what only the state before it needed."""
        self.payloads.sweep()

    def _snapshot(self, progress: Progress) -> ExperimentSnapshot:
        """A snapshot without leases, requests and shares of evaluations: there is one process, and it does one thing at
        a time."""
        counters, policy = progress.counters, progress.policy
        return ExperimentSnapshot(
            state=self.status.state,
            reason=self.status.reason,
            stage="working",
            failures=0,
            wall_s=counters.wall_s,
            replay=self.replay.snapshot(),
            flow=FlowSnapshot(
                policy=policy,
                epoch=policy.epoch,
                train_iter=counters.train_iter,
                served_iters=0,
                served=[],
                open=False,
            ),
            leases=LeaseBookSnapshot(),
            dispatch=DispatchSnapshot(
                commander=self.status.commander.snapshot(), evaluation=None, evaluations=0, saves=0
            ),
            progress=self.progress_rows.snapshot(),
            callbacks=self.callbacks.snapshot(),
        )


def replay_of(found: Recovered | None, progress: Progress) -> Recovered | None:
    """The committed replay, if it belongs to the checkpoint from which the run continues.

    It may be newer than the checkpoint if nothing was learned in between: that happens where another policy of the run
    has learned, and all were committed together.
    """
    if found is None:
        return None
    saved, known = progress.counters, found.snapshot.counters
    belongs = known.train_iter == saved.train_iter and known.env_step >= saved.env_step
    return found if belongs and known.episode >= saved.episode else None


def counters_of(recovered: Recovered | None, progress: Progress) -> Counters:
    """The counters with which a run continues from a checkpoint."""
    if recovered is None:
        return progress.counters
    saved, known = progress.counters, recovered.snapshot.counters
    return replace(known, policy_version=saved.policy_version, wall_s=saved.wall_s)


def sweep(folder: RunFolder, replay: ReplayAccounting) -> None:
    """Delete unknown payload files: they were written for a checkpoint that was never committed."""
    sweep_orphans(folder.data, replay.live_files(), older_than_s=0.0)
