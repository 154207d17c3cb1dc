"""The open files of an unfinished run, and the effects on these files."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from remuda.buffer.chunk import ChunkError, delete_chunks, sweep_orphans
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.disk.room import check_room
from remuda.coordinator.effects import CloseRun, DeleteChunks, MarkRecoverable, PolicyEffect, ReadLog, RewindCurves
from remuda.coordinator.events import Answered
from remuda.logbook import tail
from remuda.logbook.book import Logbook
from remuda.logbook.lines import LEVELS, SourceLine, TextLog
from remuda.logbook.role_logbooks import commander_logbook
from remuda.logbook.row_sinks import settings_of
from remuda.logbook.tail import LogEntry, NoSuchSourceError
from remuda.storage.atomic import sweep_temporaries
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.fence import sweep_claims
from remuda.storage.lock import Ownership
from remuda.storage.run_folder import RunFolder, policy_of
from remuda.training.effects import Level, LogLine, RecordEffect, open_logbook, record
from remuda.training.journal import RunJournal, open_journals, together
from remuda.training.journal_database import JournalError
from remuda.training.journal_entry import JournalEntry, Recovered
from remuda.training.recovery import catch_up, show_again
from remuda.wire.messages import OVER, Counters, LogPiece, LogPosition, LogText, Rejected

OwnEffect = RecordEffect | MarkRecoverable | RewindCurves | DeleteChunks | CloseRun
"""Effects on the files of a policy, or of a run with a single policy."""
RunEffect = OwnEffect | PolicyEffect
EVERYTHING = Counters(sys.maxsize, sys.maxsize, sys.maxsize, sys.maxsize, float("inf"))
"""Value for progress.txt and curves that continue at the end: nothing is cut off."""


@dataclass(frozen=True)
class OpenFiles:
    """The open files of an active run: some ten descriptors."""

    log: Logbook
    checkpoints: CheckpointIndex
    journal: RunJournal
    ownership: Ownership | None
    """Ownership of the run; None for policies after the first."""

    def close(self) -> None:
        """Close everything. May be called again."""
        self.log.close()
        self.journal.close()
        if self.ownership is not None:
            self.ownership.release()


class RunGoneError(Exception):
    """The run folder does not exist any more; the text names it."""


class RunFiles:
    """Owns a run's files. The files stay closed while the run is queued, and are opened with the first worker.

    For a single thread at a time.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: ExperimentConfig,
        begins_at: Counters | None,
        files: OpenFiles | None = None,
        missed: Recovered | None = None,
    ) -> None:
        """`begins_at` is the start of a resumed run; None for a new run. `missed` is a recovered run with closed files:
        writes missed in the last moment follow when the files are opened."""
        self.folder = folder
        self._config = config
        self._begins_at = begins_at
        self.files = files
        """The open files, if any."""
        self._missed = missed
        self._all: tuple[RunFiles, ...] = (self,)
        self._ended: Logbook | None = None

    def with_others(self, others: Sequence[RunFiles]) -> RunFiles:
        """Add the files of the policies after the first; all journals share one file. Returns itself."""
        self._all = (self, *others)
        return self

    def journal(self, turns: Sequence[JournalEntry]) -> None:
        """Commit the state to know after a crash. Raises JournalError if the disk refuses, RunGoneError if the folder
        was removed, and FolderOwnedError if another process has taken the folder of a queued run."""
        if self.files is None:
            _refuse_gone(self.folder)
        state = turns[-1].snapshot.experiment.state
        if self.files is None and state != "queued" and state not in OVER:
            self._open_all()
        opened = [each.files for each in self._all if each.files is not None]
        if opened:
            write_turns([files.journal for files in opened], turns)
            return
        journals = open_journals(self.folder.journal, [policy_of(each.folder) for each in self._all])
        with closing(journals[0]):
            write_turns(journals, turns)

    def carry_out(self, effect: RunEffect) -> None:
        """Carry out an effect. A line about the whole herd goes to the coordinator's log of this run. If the run's
        files were removed, the effect is logged and skipped. Raises OSError if the disk refuses, so the caller can try
        again."""
        match effect:
            case LogLine(experiment=None):
                if self.files is not None:
                    self.files.log.say("coordinator", effect.text, level=effect.level, at=effect.at)
            case PolicyEffect():
                for each in self._all:
                    if policy_of(each.folder) == effect.policy:
                        each.try_out(effect.effect)
            case MarkRecoverable():
                self.try_out(effect)
            case CloseRun() if policy_of(self.folder):
                pass  # each policy has asked for it
            case _:
                for each in self._all:
                    each.try_out(effect)

    def try_out(self, effect: OwnEffect) -> None:
        """The same, in this folder alone."""
        try:
            self._do(effect)
        except (FileNotFoundError, NotADirectoryError, CheckpointIndexError, ChunkError) as error:
            text = f"{type(effect).__name__} of {self.folder.root} is left undone: {error}"
            print(text, file=sys.stderr, flush=True)
            if self.folder.commander_log.parent.is_dir():
                self._say(text, "error")

    def confirm(self) -> None:
        """Prove to remote hosts a living owner of the run, and restore a removed or replaced journal file. Raises
        RunGoneError if the folder was removed."""
        _refuse_gone(self.folder)
        if self.files is not None:
            if self.files.ownership is not None:
                self.files.ownership.confirm()
            self._put_back(self.files.journal)

    def _put_back(self, journal: RunJournal) -> None:
        disturbed = journal.put_back()
        if disturbed is not None:
            print(disturbed, file=sys.stderr, flush=True)
            self._say(disturbed, "warning")

    def check_room(self, size_bytes: int) -> None:
        """Raise OSError if workers cannot write so many bytes into data/."""
        for each in self._all:
            with suppress(FileNotFoundError):  # somebody has removed it; whoever writes there says so
                check_room(each.folder.data, size_bytes)

    def close(self) -> None:
        """Close everything. May be called again."""
        for each in reversed(self._all[1:]):  # the first has the file of all journals
            each.close()
        if self.files is not None:
            try:
                self._put_back(self.files.journal)
            except (JournalError, OSError) as error:  # nobody tries again: it is the end, or the folder is gone
                print(f"{self.folder.journal} is not whole: {error}", file=sys.stderr, flush=True)
            self.files.close()
            self._ended, self.files = self.files.log, None

    @property
    def ended(self) -> list[Logbook]:
        """Logbooks of a finished run whose services may still be running."""
        own = [] if self._ended is None else [self._ended]
        return own + [log for each in self._all[1:] for log in each.ended]

    def _open_all(self) -> None:
        """Open the files of all policies, or of none."""
        opened: list[OpenFiles] = []
        try:
            for each in self._all:
                opened.append(each.open(opened[0].journal if opened else None))
        except BaseException:
            for files in reversed(opened):
                files.close()
            raise
        for each, files in zip(self._all, opened, strict=True):
            each.take(files)

    def take(self, files: OpenFiles) -> None:
        """From now on these are open."""
        self.files, self._begins_at, self._missed = files, EVERYTHING, None

    def _do(self, effect: OwnEffect) -> None:
        match effect:
            case DeleteChunks():  # first, as one comes with most chunks
                delete_chunks(self.folder.data, effect.files)
            case MarkRecoverable():
                self.folder.beginner(effect.experiment).unlink(missing_ok=True)
            case LogLine():
                self._say(effect.text, effect.level, effect.at)
            case CloseRun():
                if self.files is not None:
                    self.files.log.conclude(settings_of(self._config), effect.results)
                self._sweep(effect.keep)
            case _:
                with self._opened() as files:
                    self._show(effect, files)

    def _show(self, effect: RecordEffect | RewindCurves, files: OpenFiles) -> None:
        match effect:
            case RewindCurves():
                files.log.rewind(effect.train_iter)
            case _:
                record(effect, self.folder, files.log, files.checkpoints)

    @contextmanager
    def _opened(self) -> Generator[OpenFiles]:
        """The files; opened for a moment if the run is not active yet."""
        if self.files is not None:
            yield self.files
            return
        files = self.open(None)
        self._begins_at, self._missed = EVERYTHING, None
        try:
            yield files
        finally:
            files.close()

    def open(self, beside: RunJournal | None) -> OpenFiles:
        """Open the files; `beside` is the journal of another policy. Raises as open_files does."""
        if not self.folder.root.is_dir():
            raise FileNotFoundError(f"{self.folder.root} is gone")
        files = open_files(self.folder, self._config, self._begins_at, beside=beside)
        try:
            if self._missed is not None:
                show_missed(files.log, files.checkpoints, self._missed, self._config)
        except BaseException:
            files.close()
            raise
        return files

    def _say(self, text: str, level: Level, at: SourceLine | None = None) -> None:
        if self.files is not None:
            self.files.log.say("commander", text, level=level, at=at)
            return
        with closing(TextLog(self.folder.commander_log)) as log:
            log.write(LEVELS[level], text, at)

    def _sweep(self, keep: frozenset[str]) -> None:
        """Remove the leftovers of workers that died while writing. The policy's lock file stays: removing a file that a
        process has open would lead to two locks."""
        sweep_orphans(self.folder.data, keep)
        for folder in (self.folder.root, self.folder.ckpt, self.folder.model, self.folder.policy):
            sweep_temporaries(folder, older_than_s=0.0)
            sweep_claims(folder)


def _refuse_gone(folder: RunFolder) -> None:
    if not folder.root.is_dir():
        raise RunGoneError(f"{folder.root} is gone: somebody moved it or took it away")


def write_turns(journals: Sequence[RunJournal], turns: Sequence[JournalEntry]) -> None:
    """Commit these turns to the journals of all policies, as one."""
    if len(journals) == 1:
        journals[0].write(*turns)
        return
    with together(journals):
        for place, journal in enumerate(journals):
            journal.write(*(turn if place == 0 else turn.others[place - 1] for turn in turns))


def open_files(
    folder: RunFolder, config: ExperimentConfig, begins_at: Counters | None, *, beside: RunJournal | None = None
) -> OpenFiles:
    """Open the files of an active run; progress.txt and the curves are cut off at the start. Only the first of several
    policies owns the run; the remaining journals are `beside` the first.

    Raises FolderOwnedError, JournalError, CheckpointIndexError or OSError, and leaves no file open.
    """
    with ExitStack() as undo:
        ownership = None if beside is not None else Ownership(folder.owner)
        if ownership is not None:
            undo.callback(ownership.release)
        journal = RunJournal(folder.journal, policy=policy_of(folder), beside=beside)
        if beside is None:
            undo.callback(journal.close)
        checkpoints = CheckpointIndex(folder.ckpt)
        log = open_commander_logbook(folder, config, begins_at)
        undo.pop_all()
    return OpenFiles(log, checkpoints, journal, ownership)


def show_missed(log: Logbook, checkpoints: CheckpointIndex, run: Recovered, config: ExperimentConfig) -> None:
    """Write to the files of a recovered run the data missed in the last moment. Raises
    CheckpointIndexError or OSError."""
    catch_up(checkpoints, run.snapshot.experiment.dispatch.commander)
    show_again(log, run.snapshot, config)


def open_commander_logbook(
    folder: RunFolder, config: ExperimentConfig, resumed: Counters | None, *, sinks: bool = True
) -> Logbook:
    """See open_logbook."""
    return open_logbook(commander_logbook, folder, config, resumed, sinks=sinks)


PIECES = 16
"""Maximum number of files in one answer; the rest follows with the next."""


def read_log(effect: ReadLog) -> Answered:
    """Read on from the client's position."""
    log, request = RunFolder(Path(effect.run_dir)).log, effect.request
    known = {position.file: position for position in request.positions}
    try:
        found = {each.file: each for each in tail.find(log, request.source)}
        waiting = _waiting(found, known)
        pieces = [_piece(log, file, known.get(file), request.last_lines, effect.is_over) for file in waiting[:PIECES]]
    except NoSuchSourceError as error:
        return Answered(effect.requester, Rejected("unknown", str(error)))
    except OSError as error:
        return Answered(effect.requester, Rejected("invalid", f"the log cannot be read: {error}"))
    more = len(waiting) > PIECES
    over = effect.is_over and not more and not any(piece.text for piece in pieces)
    return Answered(effect.requester, LogText(pieces, over, more))


def _waiting(found: dict[str, LogEntry], known: dict[str, LogPosition]) -> list[str]:
    """Return files new to the client, then files that have grown. The client lists the files in the order of the last
    answers, with the last file read at the end."""
    begun = [file for file, position in known.items() if file in found and found[file].has_news(position)]
    return [*(file for file in found if file not in known), *begun]


def _piece(log: Path, file: str, known: LogPosition | None, last_lines: int | None, is_over: bool) -> LogPiece:
    piece = tail.read(log, known or tail.begin(log, file, last_lines), to_the_end=is_over)
    return LogPiece(piece.position, tail.label(file), piece.text)
