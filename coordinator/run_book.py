"""One run's folder while a coordinator has it in hand: what effects ask for is done there."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from remuda.buffer.chunk import ChunkError, delete_chunks, sweep_orphans
from remuda.coordinator.effects import (
    CloseRun,
    DeleteChunks,
    Emit,
    KnowRun,
    RecordCheckpoint,
    RecordReward,
    RewindCurves,
    WriteProgress,
    WriteTimers,
)
from remuda.coordinator.journal import RunJournal
from remuda.logbook.book import Logbook
from remuda.storage.atomic import sweep_temporaries
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.fence import sweep_claims
from remuda.storage.ownership import Ownership
from remuda.storage.run_folder import RunFolder

RunEffect = (
    KnowRun
    | Emit
    | WriteProgress
    | RewindCurves
    | WriteTimers
    | DeleteChunks
    | RecordCheckpoint
    | RecordReward
    | CloseRun
)


@dataclass(frozen=True)
class RunBook:
    """Owns the folder, its journal and its logs until it is closed."""

    folder: RunFolder
    log: Logbook
    checkpoints: CheckpointIndex
    journal: RunJournal
    ownership: Ownership

    def carry_out(self, effect: RunEffect) -> None:
        """Do what the effect asks for. What cannot be done because somebody has taken the run's files away is said and
        left undone: no other run waits for that. Raises OSError where the disk refuses, for another attempt."""
        try:
            self._do(effect)
        except (FileNotFoundError, NotADirectoryError, CheckpointIndexError, ChunkError) as error:
            text = f"{type(effect).__name__} of {self.folder.root} is left undone: {error}"
            print(text, file=sys.stderr, flush=True)
            self.log.say("commander", text, level="error")

    def close(self) -> None:
        """Let go of everything. May be called again."""
        self.log.close()
        self.journal.close()
        self.ownership.release()

    def _do(self, effect: RunEffect) -> None:
        match effect:
            case DeleteChunks():  # first, as one comes with most chunks
                delete_chunks(self.folder.data, effect.files)
            case KnowRun():
                self.folder.beginner(effect.experiment).unlink(missing_ok=True)
            case Emit():
                self.log.emit(effect.report)
            case WriteProgress():
                self.log.progress(effect.row)
            case RewindCurves():
                self.log.rewind(effect.train_iter)
            case WriteTimers():
                self.log.timers(effect.document)
            case RecordCheckpoint():
                self._list(effect)
            case RecordReward():
                self.checkpoints.set_reward(effect.train_iter, effect.reward, best=effect.best)
            case CloseRun():
                self._sweep(effect.keep)

    def _list(self, effect: RecordCheckpoint) -> None:
        self.checkpoints.add(effect.record, keep=effect.keep, in_use=effect.in_use)
        if effect.interrupted:
            self.checkpoints.link_interrupt(effect.record.train_iter)

    def _sweep(self, keep: frozenset[str]) -> None:
        """Nothing is left of those that died while writing, and no lock file: every worker has let go."""
        sweep_orphans(self.folder.data, keep, older_than_s=0.0)
        for folder in (self.folder.ckpt, self.folder.model, self.folder.policy):
            sweep_temporaries(folder, older_than_s=0.0)
            sweep_claims(folder)
        for lock in self.folder.policy.glob("*.lock"):
            if not os.path.islink(lock):
                lock.unlink(missing_ok=True)
