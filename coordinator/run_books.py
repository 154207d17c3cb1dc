"""The run folders the coordinator keeps: prepares them, and carries the state machine's effects out on disk."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from msgspec import structs
from pydantic import ValidationError

from remuda.buffer.chunk import sweep_orphans
from remuda.config.dump import write_configs
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import CloseRun, DeleteChunks, Effect, Exit, PrepareRun, ReadLog, Remember, Say, Send
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
from remuda.coordinator.run_book import RunBook
from remuda.logbook.book import SERVICES_END_S, Logbook, commander_logbook
from remuda.logbook.row_sinks import attach_configured
from remuda.policy.algorithms import declaration
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.existing_folder import RunFolderError, prepare, submitted_folder
from remuda.storage.git import write_git
from remuda.storage.ownership import FolderOwnedError, Ownership
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import OVER, Counters, Rejected, Submit

LONGEST_REASON = 10_000
"""Characters of what is wrong with a config: a thousand wrong keys need not all be told."""


class RunBooks:
    """One open book per experiment that is not over."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._books: dict[str, RunBook] = {}
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
        try:
            root = submitted_folder(self._runs_dir, submit.run_dir)
            str(root).encode()  # a name that is not UTF-8 can neither be journaled nor told to workers
            self._refuse_to_disturb(root, submit)
            now = datetime.now().astimezone()
            folder = prepare(root, submit.on_exists, mode="parallel", now=now, by=effect.experiment)
            return self._open(effect, config, folder)
        except (RunFolderError, CheckpointIndexError, FolderOwnedError, JournalError) as error:
            return RunRefused(effect.asked, Rejected("exists", str(error)))
        except (OSError, ValueError) as error:  # ValueError: a null byte in a path, or one that is not UTF-8
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
            journal, found, loss = _open_journal(folder, resume=resume)
            undo.callback(journal.close)
            recovered = None if found is None else with_payloads(found, folder.data)
            if recovered is not None:
                catch_up(checkpoints, recovered.memory)
            counters = counters_after(checkpoints.last, recovered) if resume else None
            write_configs(folder.root, config, submit.provenance)
            log = _open_logbook(folder, config, counters)
            undo.callback(log.close)
            if recovered is not None:
                show_again(log, recovered.memory, config)
            _warn(log, folder, submit, loss)
            uncounted = () if recovered is None else uncounted_payloads(recovered, folder.data)
            live = payload_files(recovered) | {meta.file for meta in uncounted}
            sweep_orphans(folder.data, live, older_than_s=0.0)  # what is left of a life before this one
            policy_file = policy_file_of(folder, experiment)
            resumed = resumed_at(checkpoints, log, counters, policy_file)
            undo.pop_all()
        self._books[experiment] = RunBook(folder, log, checkpoints, journal, ownership)
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
            config = ExperimentConfig.model_validate_json(recovered.memory.identity.config_json)
            if recovered.memory.experiment.state in OVER:
                return recovered
            checkpoints = CheckpointIndex(folder.ckpt)
            catch_up(checkpoints, recovered.memory)
            # How far a learner that is alive has come is journaled once a second: its curves are not cut.
            log = _open_logbook(folder, config, structs.replace(recovered.memory.counters, train_iter=sys.maxsize))
            undo.callback(log.close)
            show_again(log, recovered.memory, config)
            folder.beginner(recovered.memory.identity.id).unlink(missing_ok=True)
            recovered = with_payloads(recovered, folder.data)
            undo.pop_all()
        self._books[recovered.memory.identity.id] = RunBook(folder, log, checkpoints, journal, ownership)
        return recovered

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
        """Do what an effect asks for on disk. Effects that are not about a run folder are none of its business.

        Raises OSError where a disk refuses: to be called again."""
        match effect:
            case Say():
                self._say(effect)
            case Send() | PrepareRun() | ReadLog() | Remember() | Exit():
                pass
            case CloseRun():
                self._close(effect)
            case DeleteChunks() if effect.experiment not in self._books:
                pass  # they went when the folder was swept
            case _ if (book := self._books.get(effect.experiment)) is not None:
                book.carry_out(effect)
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
        book = self._books.get(effect.experiment)
        if book is None:
            return
        book.carry_out(effect)
        del self._books[effect.experiment]  # only now: what a disk has refused is tried again
        book.close()
        self._ended = [log for log in (*self._ended, book.log) if log.busy]


def _open_journal(folder: RunFolder, *, resume: bool) -> tuple[RunJournal, Recovered | None, str | None]:
    """With what a run that is resumed finds in it; the third value says why that is nothing."""
    gone = not folder.journal.exists()
    journal, found, damage = open_or_begin(folder.journal)
    if found is not None and not resume:  # begun before, and journaled, by a coordinator that told nobody of it
        try:
            journal.clear()
        except JournalError:
            journal.close()
            raise
    if found is not None and resume:
        return journal, found, None
    loss = damage or f"{folder.journal} {'is gone' if gone else 'was empty'}"
    return journal, None, loss if resume else None


def _warn(log: Logbook, folder: RunFolder, submit: Submit, loss: str | None) -> None:
    """Of what the run folder does not have."""
    without_git = write_git(folder.root, submit.git)
    warnings = [] if without_git is None else [without_git]
    if loss is not None:
        warnings.append(f"goes on from its last checkpoint alone, without replay and what was counted since: {loss}")
    for warning in warnings:
        log.say("commander", warning, level="warning")


def _open_logbook(folder: RunFolder, config: ExperimentConfig, resumed: Counters | None) -> Logbook:
    losses, info = tuple(declaration(config).loss_columns), config.env.episode_info
    log = commander_logbook(folder, losses, episode_info=info, resumed=resumed)
    attach_configured(log, config, folder, resumed)
    return log


def _gone(folder: RunFolder) -> str:
    return f"{folder.journal if folder.root.exists() else folder.root} is gone"
