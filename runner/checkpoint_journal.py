"""A serial run's journal: one commit per checkpoint, so that a killed run goes on exactly there, replay included."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from remuda.buffer.chunk import sweep_orphans
from remuda.config.schema import ExperimentConfig
from remuda.learner.checkpoint import Progress
from remuda.runner.payloads import Payloads
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.training.commander.commander import Commander
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.journal import RunJournal
from remuda.training.journal_entry import Recovered, Remember
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.snapshot import (
    FORMAT,
    Changes,
    DispatchSnapshot,
    ExperimentSnapshot,
    FlowSnapshot,
    IdentitySnapshot,
    LeaseBookSnapshot,
    Rows,
    RunSnapshot,
)
from remuda.wire.messages import ExperimentState, IndexedChunk

SERIAL_WORKER = "00000000-0000-4000-8000-000000000000"
"""Names the one worker and the one experiment of a serial run, which register with nobody."""


@dataclass(frozen=True)
class CheckpointJournal:
    """Commits what a resumed run needs besides the checkpoint file, whose record is part of it."""

    folder: RunFolder
    config: ExperimentConfig
    journal: RunJournal
    experience: ReplayAccounting
    payloads: Payloads
    commander: Commander
    progress_rows: ProgressRows

    def commit(self, progress: Progress, state: ExperimentState) -> None:
        """The commander has heard of a checkpoint or of how it was judged. Raises JournalError and OSError."""
        written = self.payloads.written()
        added, gone = self.experience.news()
        end = self.commander.ending
        counters = progress.counters
        snapshot = ExperimentSnapshot(
            state=state,
            reason=None if end is None else end.reason,
            stage="working",
            failures=0,
            wall_s=counters.wall_s,
            experience=self.experience.snapshot(),
            supply=FlowSnapshot(progress.policy, progress.policy.epoch, counters.train_iter, 0, [], False),
            leases=LeaseBookSnapshot(),
            judging=DispatchSnapshot(self.commander.snapshot(), None, 0, 0),
            progress=self.progress_rows.snapshot(),
        )
        self.journal.write(
            Remember(
                SERIAL_WORKER,
                RunSnapshot(FORMAT, self._identity(), snapshot, 0),
                Changes(counted=Rows(self.experience.rows_of_leases()), whole=True),
                tuple(IndexedChunk(c.first_row, written[c.meta.file]) for c in added if c.meta.file in written),
                gone,
                self.experience.priorities(),
                self.progress_rows.news(),
            )
        )
        self.payloads.sweep()

    def _identity(self) -> IdentitySnapshot:
        config = self.config
        return IdentitySnapshot(SERIAL_WORKER, config.name, str(self.folder.root), "", 0, 0, config.model_dump_json())


def catch_up(found: Recovered | None, checkpoints: CheckpointIndex) -> None:
    """Enter the checkpoint that was committed in the last moment and did not get into index.json any more."""
    record = None if found is None else found.snapshot.experiment.judging.commander.last_record
    if record is not None and (checkpoints.last is None or checkpoints.last.train_iter < record.train_iter):
        checkpoints.add(record)


def replay_of(found: Recovered | None, progress: Progress) -> Recovered | None:
    """The committed replay, if it is that of the checkpoint which the run goes on from."""
    if found is None:
        return None
    counters = progress.counters
    known = replace(found.snapshot.counters, policy_version=counters.policy_version, wall_s=counters.wall_s)
    return found if known == counters else None


def sweep(folder: RunFolder, experience: ReplayAccounting) -> None:
    """Delete the payload files that nobody knows: written for a checkpoint that was never committed."""
    sweep_orphans(folder.data, experience.live_files(), older_than_s=0.0)
