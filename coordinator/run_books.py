"""The run folders the coordinator keeps: prepares them, and carries the state machine's effects out on disk."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from msgspec import structs
from pydantic import ValidationError

from remuda.buffer.chunk import delete_chunks, sweep_orphans
from remuda.config.dump import write_configs
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import (
    CloseRun,
    DeleteChunks,
    Effect,
    Emit,
    Exit,
    KnowRun,
    PrepareRun,
    ReadLog,
    RecordCheckpoint,
    RecordReward,
    Remember,
    RewindCurves,
    Say,
    Send,
    WriteProgress,
    WriteTimers,
)
from remuda.coordinator.events import Recovered, RunPrepared, RunRefused
from remuda.coordinator.going_on import (
    catch_up,
    counters_after,
    payload_files,
    policy_file_of,
    resumed_at,
    show_again,
    uncounted_payloads,
    with_payloads,
)
from remuda.coordinator.journal import JournalDamagedError, JournalError, RunJournal, open_or_begin
from remuda.coordinator.memory import OVER
from remuda.logbook.book import SERVICES_END_S, Logbook, commander_logbook
from remuda.logbook.row_sinks import attach_configured
from remuda.policy.algorithms import declaration
from remuda.storage.atomic import sweep_temporaries
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.existing_folder import RunFolderError, prepare
from remuda.storage.git import record_git
from remuda.storage.ownership import FolderOwnedError, Ownership
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters, Rejected, Submit

LONGEST_REASON = 10_000
"""Characters of what is wrong with a config: a thousand wrong keys need not all be told."""


@dataclass(frozen=True)
class _Book:
    folder: RunFolder
    log: Logbook
    checkpoints: CheckpointIndex
    journal: RunJournal
    ownership: Ownership

    def close(self) -> None:
        self.log.close()
        self.journal.close()
        self.ownership.release()


class RunBooks:
    """One open book per experiment that is not over."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._books: dict[str, _Book] = {}
        self._ended: list[Logbook] = []
        """Of experiments that are over, with services that may not have come to an end."""

    def prepare(self, effect: PrepareRun) -> RunPrepared | RunRefused:
        """Check the config, make the run folder and open its logs; on refusal nothing is left behind."""
        submit = effect.submit
        try:
            config = ExperimentConfig.model_validate_json(submit.config_json)
        except ValidationError as error:
            reason = f"the config is not valid: {error}"[:LONGEST_REASON]
            return RunRefused(effect.asked, Rejected("invalid", reason))
        root = Path(os.path.abspath(self._runs_dir / submit.run_dir))
        try:
            self._refuse_to_disturb(root, submit)
            now = datetime.now().astimezone()
            folder = prepare(root, submit.on_exists, mode="parallel", now=now, by=effect.experiment)
            return self._open(effect, config, folder)
        except (RunFolderError, CheckpointIndexError, FolderOwnedError, JournalError) as error:
            return RunRefused(effect.asked, Rejected("exists", str(error)))
        except (OSError, ValueError) as error:  # ValueError: a null byte in a path
            return RunRefused(effect.asked, Rejected("invalid", f"the run folder cannot be written: {error}"))

    def _refuse_to_disturb(self, root: Path, submit: Submit) -> None:
        """A run that is under way is neither resumed by another nor moved away under its workers' hands."""
        if submit.on_exists == "rename":
            return
        for experiment, book in self._books.items():
            if book.folder.root.resolve() == root.resolve():
                raise RunFolderError(
                    f"{root} is in use by experiment {experiment}, which is not over: stop that one first, or choose "
                    "another folder (--on-exists rename)"
                )
        if submit.on_exists == "force" and RunFolder(root).owner.exists():
            Ownership(RunFolder(root).owner).release()  # raises where another coordinator has the run in hand

    def _open(self, effect: PrepareRun, config: ExperimentConfig, folder: RunFolder) -> RunPrepared | RunRefused:
        experiment, submit = effect.experiment, effect.submit
        resume = submit.on_exists == "resume"
        checkpoints = CheckpointIndex(folder.ckpt)
        if resume and checkpoints.last is None:
            text = f"{folder.root} cannot be resumed: it has no checkpoint yet; start over with --force"
            return RunRefused(effect.asked, Rejected("exists", text))
        with ExitStack() as undo:
            ownership = Ownership(folder.owner)
            undo.callback(ownership.release)
            gone = not folder.journal.exists()
            journal, found, damage = open_or_begin(folder.journal)
            undo.callback(journal.close)
            if found is not None and not resume:  # begun before, and journaled, by a coordinator that told nobody of it
                journal.clear()
                found = None
            recovered = None if found is None else with_payloads(found, folder.data)
            counters = counters_after(checkpoints.last, recovered) if resume else None
            write_configs(folder.root, config, submit.provenance)
            log = _open_logbook(folder, config, counters)
            if recovered is not None:
                show_again(log, recovered.memory, config)
            undo.pop_all()
        self._books[experiment] = _Book(folder, log, checkpoints, journal, ownership)
        if submit.submitted_from is not None:
            warning = record_git(folder.root, Path(submit.submitted_from))
            if warning is not None:
                log.say("commander", warning, level="warning")
        if resume and recovered is None:
            why = damage or f"{folder.journal} {'is gone' if gone else 'was empty'}"
            text = f"goes on from its last checkpoint alone, without replay and what was counted since: {why}"
            log.say("commander", text, level="warning")
        uncounted = () if recovered is None else uncounted_payloads(recovered, folder.data)
        live = frozenset[str]() if recovered is None else payload_files(recovered) | {meta.file for meta in uncounted}
        sweep_orphans(folder.data, live, older_than_s=0.0)  # what is left of a life before this one
        policy_file = policy_file_of(folder, experiment)
        resumed = resumed_at(checkpoints, log, counters, policy_file)
        return RunPrepared(effect, config, str(folder.root), str(policy_file), resumed, recovered, uncounted)

    def recover(self, run_dir: Path) -> Recovered:
        """Take a run up that a coordinator before this one had in hand, or show what it was if it is over.

        Raises JournalError, FolderOwnedError, CheckpointIndexError, ValueError or OSError where that cannot be; nothing
        is changed then."""
        folder = RunFolder(run_dir)
        if not run_dir.is_dir():
            raise JournalDamagedError(_gone(folder))
        with ExitStack() as undo:
            ownership = Ownership(folder.owner)
            undo.callback(ownership.release)
            if not folder.journal.exists():
                raise JournalDamagedError(_gone(folder))
            journal = RunJournal(folder.journal)
            undo.callback(journal.close)
            recovered = journal.read()
            if recovered is None:
                raise JournalDamagedError(f"{folder.journal} is empty")
            if recovered.memory.experiment.state in OVER:
                return recovered
            config = ExperimentConfig.model_validate_json(recovered.memory.identity.config_json)
            checkpoints = CheckpointIndex(folder.ckpt)
            catch_up(checkpoints, recovered.memory)
            # How far a learner that is alive has come is journaled once a second: its curves are not cut.
            log = _open_logbook(folder, config, structs.replace(recovered.memory.counters, train_iter=sys.maxsize))
            show_again(log, recovered.memory, config)
            undo.pop_all()
        folder.beginner(recovered.memory.identity.id).unlink(missing_ok=True)
        self._books[recovered.memory.identity.id] = _Book(folder, log, checkpoints, journal, ownership)
        return with_payloads(recovered, folder.data)

    def journal(self, remember: Remember) -> None:
        """Commit what must be known after a crash. Raises JournalError when the disk does not take it."""
        book = self._books.get(remember.experiment)
        if book is not None:
            book.journal.write(remember)

    def confirm(self) -> None:
        """Show other hosts that these runs are in hand."""
        for book in self._books.values():
            book.ownership.confirm()

    def carry_out(self, effect: Effect) -> None:
        """Do what an effect asks for on disk. Effects that are not about a run folder are none of its business."""
        match effect:
            case Say():
                self._say(effect)
            case Send() | PrepareRun() | ReadLog() | Remember() | Exit():
                pass
            case CloseRun():
                self._close(effect)
            case _ if (book := self._books.get(effect.experiment)) is not None:
                _write(book, effect)
            case _:
                print(
                    f"experiment {effect.experiment} is over: {type(effect).__name__} comes too late", file=sys.stderr
                )

    def close(self) -> None:
        """Close every book that is still open, and see the services to an end that log sinks write to."""
        for book in self._books.values():
            book.close()
        self._ended += [book.log for book in self._books.values()]
        self._books.clear()
        deadline_s = time.monotonic() + SERVICES_END_S
        for log in self._ended:
            log.finish(deadline_s)

    def _say(self, effect: Say) -> None:
        """One line in the commander's log; what concerns the herd goes to every open run's coordinator log."""
        print(effect.text, file=sys.stderr, flush=True)
        if effect.experiment is None:
            for book in self._books.values():
                book.log.say("coordinator", effect.text, level=effect.level)
        elif effect.experiment in self._books:
            self._books[effect.experiment].log.say("commander", effect.text, level=effect.level)

    def _close(self, effect: CloseRun) -> None:
        book = self._books.pop(effect.experiment, None)
        if book is None:
            return
        sweep_orphans(book.folder.data, effect.keep, older_than_s=0.0)
        for folder in (book.folder.ckpt, book.folder.model, book.folder.policy):  # of those that died while writing
            sweep_temporaries(folder, older_than_s=0.0)
        _remove_locks(book.folder.policy.glob("*.lock"))
        book.close()
        self._ended = [log for log in (*self._ended, book.log) if log.busy]


def _open_logbook(folder: RunFolder, config: ExperimentConfig, resumed: Counters | None) -> Logbook:
    losses, info = tuple(declaration(config).loss_columns), config.env.episode_info
    log = commander_logbook(folder, losses, episode_info=info, resumed=resumed)
    attach_configured(log, config, folder, resumed)
    return log


def _write(
    book: _Book,
    effect: KnowRun
    | Emit
    | WriteProgress
    | RewindCurves
    | WriteTimers
    | DeleteChunks
    | RecordCheckpoint
    | RecordReward,
) -> None:
    match effect:
        case KnowRun():
            book.folder.beginner(effect.experiment).unlink(missing_ok=True)
        case Emit():
            book.log.emit(effect.report)
        case WriteProgress():
            book.log.progress(effect.row)
        case RewindCurves():
            book.log.rewind(effect.train_iter)
        case WriteTimers():
            book.log.timers(effect.document)
        case DeleteChunks():
            delete_chunks(book.folder.data, effect.files)
        case RecordCheckpoint():
            book.checkpoints.add(effect.record, keep=effect.keep, in_use=effect.in_use)
            if effect.interrupted:
                book.checkpoints.link_interrupt(effect.record.train_iter)
        case RecordReward():
            book.checkpoints.set_reward(effect.train_iter, effect.reward, best=effect.best)


def _gone(folder: RunFolder) -> str:
    return f"{folder.journal if folder.root.exists() else folder.root} is gone"


def _remove_locks(paths: Iterable[Path]) -> None:
    """Lock files nobody holds any more; the run is over and every worker has let go."""
    for path in paths:
        if not os.path.islink(path):
            path.unlink(missing_ok=True)
