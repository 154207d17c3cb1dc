"""All disk work of the coordinator, outside its main thread: one writing thread per run.

The coordinator's thread hands work over here and collects the results, and waits a moment for journals on fast disks
only. run_thread.py defines the order of a run's writes, HeldReplies holds the dependent messages.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from remuda.coordinator.bill import bill
from remuda.coordinator.disk.jobs import BusyError, Jobs
from remuda.coordinator.disk.run_folder import RunEffect, read_log
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.disk.run_thread import CONFIRM_S, STALL_S, HeldSince, Holds, JournalBatch, Journaled, RunThread
from remuda.coordinator.disk.runs_folder import ListedRun, RunsFolder, RunWriter, unrecoverable_run
from remuda.coordinator.effects import (
    Abandon,
    CloseRun,
    DiskEffect,
    FindRoom,
    KeepQuota,
    PrepareRun,
    ReadBill,
    ReadLog,
)
from remuda.coordinator.events import (
    Answered,
    DiskEvent,
    HeldUp,
    QuotaKept,
    RecoveredRun,
    RunBroken,
    RunPrepared,
    RunRecovered,
    RunRefused,
)
from remuda.coordinator.journaling import prepared_experiment
from remuda.training.effects import LogLine
from remuda.training.journal_database import JournalError
from remuda.training.journal_entry import JournalEntry
from remuda.wire.messages import OVER, Bill, Rejected

HERD_LINES_KEPT = 1_000
QUICK_S = 0.01
"""Time for which a turn waits for the journals. A local disk takes less time. While the coordinator waits, the two
threads do not compete for the interpreter's lock at every message: competition would cost more than waiting."""
SLOW_S = 1.0
"""After a slow write, the coordinator does not wait for this journal during this time."""
END_S = 30.0
"""Time limit for writing at the end of the coordinator."""

_OF_HERD = "herd"
"""The errands on the list of runs."""

Found = DiskEvent | RunRecovered


class Disk:
    """Owns the threads of runs and the jobs. All methods are for the coordinator's thread. Only `close` waits for a
    disk, and `write` for QUICK_S."""

    def __init__(
        self,
        folders: RunFolders,
        runs_folder: RunsFolder | None,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Other threads call `wake` when `collect` has something to return."""
        self._run_folders, self._runs_folder = folders, runs_folder
        self._wake, self._clock = wake, clock
        self._jobs = Jobs()
        self._run_threads: dict[str, RunThread] = {}
        self._leaving: list[RunThread] = []
        """Threads of abandoned runs: they still write the reason."""
        self._active: set[str] = set()
        """Runs whose files stay open between turns: neither queued nor over."""
        self._herd_lines: deque[tuple[int, LogLine]] = deque(maxlen=HERD_LINES_KEPT)
        """The newest lines about the herd, with turn numbers: for later runs."""
        self._submitted: dict[str, int] = {}
        """First turn whose herd lines concern a queued run."""
        self._has_had_runs = False
        """True once a run was accepted since this start. Runs submitted before have the herd's lines since the start in
        their log."""
        self._holds = Holds(self._keep_hold, self._run_folders.run_dir, clock)
        self._journaled: deque[Journaled] = deque()
        self._told: deque[Found] = deque()
        self._awaited: set[str] = set()
        """Experiments whose journals this turn waits for."""
        self._written = threading.Condition()
        """Guards `_awaited`; notified when it is empty."""
        self._slow_until_s: dict[str, float] = {}
        self._turn = 0
        self._confirm_due_s = clock() + CONFIRM_S

    # --- hand over ---

    def prepare(self, effect: PrepareRun) -> None:
        """Have a run folder made; the result is RunPrepared or RunRefused."""
        self._submitted[effect.experiment] = self._turn + 1 if self._has_had_runs else 0
        self._jobs.put(f"prepare {effect.experiment}", lambda: self._tell(self._prepared(effect)))

    def ask(self, effect: ReadLog | ReadBill | KeepQuota) -> Answered | None:
        """Have a log or the use of all runs read, or a quota written; the result is Answered, or QuotaKept. A refusal
        comes at once if too many requests wait."""
        key, what, herd = _OF_HERD, "the list of runs", self._runs_folder
        call: Callable[[], Answered | QuotaKept]
        match effect:
            case ReadLog():
                key = what = f"the logs of {effect.run_dir}"
                call = partial(read_log, effect)
            case ReadBill():
                call = partial(_read_bill, effect, herd)
            case KeepQuota():
                call = partial(_keep_quota, effect, herd)
        try:
            self._jobs.put(key, lambda: self._tell(call()))
        except BusyError as error:
            return Answered(effect.requester, Rejected("busy", f"{what}: {error}"))
        return None

    def recover(self, runs: Iterable[ListedRun]) -> None:
        """Start the recovery of these runs; each gives a RunRecovered."""
        if self._runs_folder is not None:
            self._holds.before = self._runs_folder.held()
        for run in runs:
            self._jobs.put(f"recover {run.experiment}", partial(self._recover_one, run))

    def write(self, entries: Sequence[JournalEntry], effects: Sequence[DiskEffect]) -> None:
        """Write a turn: the part of every run in the run's thread. Waits at most QUICK_S for the journals."""
        self._turn += 1
        parts: dict[str, list[RunEffect]] = {each.experiment: [] for each in entries}
        abandoned: list[Abandon] = []
        for effect in effects:
            match effect:
                case Abandon():
                    abandoned.append(effect)
                case LogLine(experiment=None):
                    self._say_of_herd(effect, parts)
                case _ if effect.experiment is None or self._run_folders.files(effect.experiment) is None:
                    pass  # of a run that is over: there is nothing left to be written
                case FindRoom():
                    self._run_thread(effect.experiment).want_room(effect.size_bytes)
                case _:
                    parts.setdefault(effect.experiment, []).append(effect)
                    if isinstance(effect, CloseRun):
                        self._run_folders.about_to_close(effect.experiment)
        entry_of = {each.experiment: each for each in entries}
        for id, entry in entry_of.items():
            parts[id] = [*self._lines_before(entry), *parts[id]]
        self._awaited = {id for id in entry_of if self._is_quick(id)}  # nobody else looks at it yet
        for id, part in parts.items():
            self._put(id, entry_of.get(id), part)
        for each in abandoned:
            self._abandon(each)
        self._wait_for_the_quick()

    def waits_for(self, experiment: str) -> int:
        """Return the turn required in this run's journal before messages about the run may be sent; 0 if the journal is
        complete."""
        run_thread = self._run_threads.get(experiment)
        return 0 if run_thread is None else run_thread.waits_for

    @property
    def lag_s(self) -> float:
        """Longest wait of a write for a run's disk; 0 without a wait."""
        now_s = self._clock()
        return max((run_thread.held_up_s(now_s) for run_thread in self._run_threads.values()), default=0.0)

    # --- hear ---

    def journaled(self) -> list[Journaled]:
        """Return the turns journaled since the last call."""
        journaled: list[Journaled] = []
        while self._journaled:
            told = self._journaled.popleft()
            run_thread = self._run_threads.get(told.experiment)
            if run_thread is not None:
                run_thread.noted(told.number)
            journaled.append(told)
        return journaled

    def found(self) -> list[Found]:
        """Return the events from other threads since the last call."""
        found: list[Found] = []
        while self._told:
            match told := self._told.popleft():
                case RunBroken():
                    self._run_threads.pop(told.experiment, None)
                case RunRefused():
                    self._submitted.pop(told.experiment, None)
                case RunPrepared():
                    self._has_had_runs = True
                case RunRecovered(experiment=id, run=RecoveredRun() as run) if id in self._holds.before:
                    hold = self._holds.restore(id, self._run_thread(id))
                    told = RunRecovered(id, replace(run, hold=hold))
                case _:
                    pass
            found.append(told)
        return found

    def look(self) -> list[HeldUp | RunBroken]:
        """Return new and ended holds, and runs held up for too long. Called periodically."""
        now_s = self._clock()
        looked = (self._holds.look(id, run_thread, now_s) for id, run_thread in self._run_threads.items())
        found = [event for event in looked if event is not None]
        for event in found:
            if isinstance(event, HeldUp) and event.hold is None and event.experiment not in self._active:
                self._run_threads[event.experiment].rest()
        self._run_threads = {
            id: run_thread for id, run_thread in self._run_threads.items() if not self._is_done(id, run_thread)
        }
        self._leaving = [run_thread for run_thread in self._leaving if not run_thread.rests]
        self._slow_until_s = {id: until_s for id, until_s in self._slow_until_s.items() if until_s > now_s}
        if now_s >= self._confirm_due_s and self._runs_folder is not None:
            self._confirm_due_s = now_s + CONFIRM_S
            with contextlib.suppress(BusyError):
                self._jobs.put(_OF_HERD, self._runs_folder.confirm)
        return found

    def close(self) -> list[str]:
        """Write everything and close all files. Returns and prints the experiments not completely written, since the
        disks take too long."""
        deadline_s = self._clock() + END_S
        for run_thread in self._run_threads.values():
            run_thread.rest()
        run_threads = [*self._run_threads.values(), *self._leaving]
        late = sorted({run_thread.experiment for run_thread in run_threads if not run_thread.join(deadline_s)})
        for experiment in late:
            text = f"the disk of experiment {experiment} did not take all that was to be written: what it has is kept"
            print(text, file=sys.stderr)
        if not self._jobs.wait(_OF_HERD, max(deadline_s - self._clock(), 0.0)):
            text = "the list of runs cannot be written: the next coordinator may take up runs that are over"
            print(text, file=sys.stderr)
        return late

    # --- inside ---

    def _put(self, experiment: str, entry: JournalEntry | None, part: Sequence[RunEffect]) -> None:
        run_thread = self._run_thread(experiment)
        run_thread.put(JournalBatch(self._turn, entry, part))
        if entry is not None:
            state = entry.snapshot.experiment.state
            (self._active.discard if state == "queued" or state in OVER else self._active.add)(experiment)
        if experiment not in self._active and not run_thread.room.wanted_bytes:
            run_thread.rest()

    def _run_thread(self, experiment: str) -> RunThread:
        run_thread = self._run_threads.get(experiment)
        if run_thread is None:
            writer = RunWriter(self._run_folders, self._runs_folder, experiment)
            run_thread = self._run_threads[experiment] = RunThread(experiment, writer, self._tell, self._clock)
        return run_thread

    def _keep_hold(self, experiment: str, held: HeldSince | None) -> None:
        """Record a hold in the list of runs, for the next coordinator."""
        if (herd := self._runs_folder) is not None:
            otherwise = f"the next coordinator does not know how long {experiment} is held up"
            self._note(lambda: herd.note_hold(experiment, held), otherwise)

    def _note(self, write: Callable[[], None], otherwise: str) -> None:
        """Write to the list of runs, unless its own disk hangs; print the consequence of an error."""

        def noted() -> None:
            try:
                write()
            except JournalError as error:
                print(f"{otherwise}: {error}", file=sys.stderr)

        with contextlib.suppress(BusyError):
            self._jobs.put(_OF_HERD, noted)

    def _say_of_herd(self, line: LogLine, parts: dict[str, list[RunEffect]]) -> None:
        """Log a line about the herd in every active run, and later in the runs that wait for workers now."""
        self._herd_lines.append((self._turn, line))
        for id in self._active:
            parts.setdefault(id, []).append(line)

    def _lines_before(self, entry: JournalEntry) -> list[LogLine]:
        """Lines about the herd since this run was submitted, or since the coordinator started if no run was accepted
        before; used once, as the run begins."""
        id, state = entry.experiment, entry.snapshot.experiment.state
        if id in self._active or state == "queued":
            return []
        since = self._submitted.pop(id, 0)
        return [line for turn, line in self._herd_lines if turn >= since] if state not in OVER else []

    def _abandon(self, effect: Abandon) -> None:
        run_thread, herd = self._run_threads.pop(effect.experiment, None), self._runs_folder
        if run_thread is not None:
            run_thread.room.give_up()
            if run_thread.held_up_s(self._clock()) > STALL_S:
                run_thread.give_up()
            else:
                run_thread.rest()  # it writes the reason to the run's log first
                self._leaving.append(run_thread)
        self._run_folders.forget(effect.experiment)
        self._holds.forget(effect.experiment)
        self._active.discard(effect.experiment)
        self._submitted.pop(effect.experiment, None)
        if herd is not None:
            otherwise = f"the next coordinator takes {effect.last.identity.run_dir} up again"
            self._note(lambda: herd.note_over(effect.last), otherwise)

    def _is_done(self, id: str, run_thread: RunThread) -> bool:
        """True if a thread has no more to write; otherwise start a new thread. A held-up thread is checked once more,
        to report the recovery."""
        return run_thread.rests and not run_thread.waits_for and id not in self._holds

    def _is_quick(self, experiment: str) -> bool:
        run_thread = self._run_threads.get(experiment)
        busy = run_thread is not None and run_thread.waits_for
        return not busy and self._slow_until_s.get(experiment, 0.0) <= self._clock()

    def _wait_for_the_quick(self) -> None:
        with self._written:
            self._written.wait_for(lambda: not self._awaited, QUICK_S)
            slow, self._awaited = self._awaited, set()
        for experiment in slow:
            self._slow_until_s[experiment] = self._clock() + SLOW_S

    def _tell(self, told: Journaled | Found) -> None:
        """For any thread."""
        if isinstance(told, Journaled):
            self._journaled.append(told)
        else:
            self._told.append(told)
        awaited = isinstance(told, Journaled | RunBroken) and self._stop_awaiting(told.experiment)
        if not awaited or isinstance(told, RunBroken):
            self._wake()

    def _stop_awaiting(self, experiment: str) -> bool:
        """Stop waiting for the experiment's journal in this turn; return True if the turn waited for it."""
        with self._written:
            awaited = experiment in self._awaited
            self._awaited.discard(experiment)
            if not self._awaited:
                self._written.notify()
        return awaited

    def _prepared(self, effect: PrepareRun) -> RunPrepared | RunRefused:
        """Runs in an errand's thread: a replay index of a million rows takes time."""
        try:
            prepared = self._run_folders.prepare(effect)
            if isinstance(prepared, RunRefused):
                return prepared
            return RunPrepared(effect, prepared_experiment(prepared, self._clock()))
        except Exception as error:
            self._run_folders.close_run(effect.experiment)
            traceback.print_exc()
            reason = f"{type(error).__name__} while the run was prepared: {error}; its folder stays as it is"
            return RunRefused(effect.experiment, effect.requester, Rejected("invalid", reason))

    def _recover_one(self, run: ListedRun) -> None:
        """Runs in an errand's thread."""
        assert self._runs_folder is not None, "who has no list has nothing to recover"
        try:
            known = self._runs_folder.take_up(run, self._run_folders, self._clock())
        except Exception as error:
            traceback.print_exc()
            self._run_folders.close_run(run.experiment)
            known = unrecoverable_run(run.experiment, run.run_dir, error)
        self._tell(RunRecovered(run.experiment, known))


def _read_bill(effect: ReadBill, runs_folder: RunsFolder | None) -> Answered:
    """By an errand's thread."""
    request, known = effect.request, [charge for charge in effect.known if charge.hours]
    period = request.since_hour, request.until_hour
    items = [item for charge in known for item in charge.items(*period)]
    try:
        if runs_folder is not None:
            items += runs_folder.used(*period, without={charge.identity.id for charge in known})
    except sqlite3.Error as error:
        return Answered(effect.requester, Rejected("invalid", f"the list of runs cannot be read: {error}"))
    return Answered(effect.requester, Bill(bill(items, request.by)))


def _keep_quota(effect: KeepQuota, runs_folder: RunsFolder | None) -> QuotaKept | Answered:
    """By an errand's thread."""
    try:
        if runs_folder is not None:
            runs_folder.keep_quota(effect.quota)
    except JournalError as error:
        return Answered(effect.requester, Rejected("invalid", f"the quota cannot be written: {error}"))
    return QuotaKept(effect.requester, effect.quota)
