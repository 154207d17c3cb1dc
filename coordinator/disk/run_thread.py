"""Writes a run's files, in order, in the run's thread: a slow disk holds up only this run, as Holds records."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from remuda.coordinator.disk.room import AGAIN_S, Room
from remuda.coordinator.disk.run_folder import RunEffect
from remuda.coordinator.effects import DeleteChunks, PolicyEffect, RewindCurves, effect_of
from remuda.coordinator.events import HeldUp, RunBroken
from remuda.coordinator.settings import Hold
from remuda.training.effects import LogLine
from remuda.training.journal_database import JournalError
from remuda.training.journal_entry import JournalEntry
from remuda.training.next_command import resume_command

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
"""Time between two attempts to write to a refusing disk."""
CONFIRM_S = 10.0
"""Time between two signs of life in the run's folder, for other hosts."""
BATCHES_AT_ONCE = 64
"""Maximum number of turns in one commit."""
STALL_S = 2.0
"""A run whose disk has accepted no write for this time is held up, until the disk accepts writes again."""
PATIENCE_S = 600.0
"""A run that has been held up for this time has failed."""


@dataclass(frozen=True)
class JournalBatch:
    """The writes of a run in one turn of the coordinator's loop."""

    number: int
    entry: JournalEntry | None
    effects: Sequence[RunEffect]


@dataclass(frozen=True)
class Journaled:
    """All turns up to this number are in the run's journal, the files are deleted, and curves are set back for a new
    learner."""

    experiment: str
    number: int


class Writer(Protocol):
    """Writes a run's files. Raises JournalError or OSError if the disk refuses; the call is then repeated."""

    def journal(self, turns: Sequence[JournalEntry]) -> None:
        """Commit these turns."""
        ...

    def carry_out(self, effect: RunEffect) -> None:
        """Carry out this effect."""
        ...

    def confirm(self) -> None:
        """Prove to remote hosts a living owner of the run."""
        ...

    def check_room(self, size_bytes: int) -> None:
        """Raise OSError if workers of the run cannot write so many bytes."""
        ...

    def close(self) -> None:
        """Let go of the run's files."""
        ...


class _GivenUpError(Exception):
    """The write is not needed any more."""


class RunThread:
    """Writes turns in order: the journal, then deletions and curves to set back, then the report that the turn is
    journaled, then the rest.

    `put` and the properties are for the coordinator's thread and never wait for the disk.
    """

    def __init__(
        self,
        experiment: str,
        writer: Writer,
        tell: Callable[[Journaled | RunBroken], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tell` is called by the thread of the run."""
        self.experiment = experiment
        self._writer = writer
        self._tell = tell
        self._clock = clock
        self._turns: deque[JournalBatch] = deque()
        """Turns not completely written yet."""
        self._since_s = 0.0
        """Time at which the first batch was queued, or became the first."""
        self._changed = threading.Condition()
        self._given_up = threading.Event()
        self._resting = False
        self._thread: threading.Thread | None = None
        self.refusal: str | None = None
        """The disk's last error; None without an error, also if the disk does not answer."""
        self._said: set[int] = set()
        """Ids of waiting effects carried out early; see `_say_what_is_wrong`."""
        self.room = Room(clock)
        """Disk space wanted by the run's workers."""
        self._confirm_due_s = clock() + CONFIRM_S
        self._journaled = 0
        self._newest = 0

    # --- for the coordinator's thread ---

    def put(self, turn: JournalBatch) -> None:
        """Queue a turn, after all queued turns."""
        with self._changed:
            if not self._turns:
                self._since_s = self._clock()
            self._turns.append(turn)
            self._newest = turn.number
            self._resting = False
            self._start()

    def want_room(self, size_bytes: int) -> None:
        """Look for room for so many bytes, between turns, until found."""
        with self._changed:
            self.room.want(size_bytes)
            self._resting = False
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"writer of {self.experiment}", daemon=True)
            self._thread.start()
        self._changed.notify()

    @property
    def waits_for(self) -> int:
        """Number of the newest turn, if not journaled yet; 0 if all are."""
        return 0 if self._newest <= self._journaled else self._newest

    def noted(self, number: int) -> None:
        """Record that the coordinator's thread knows all turns up to this number as journaled."""
        self._journaled = max(self._journaled, number)

    def held_up_s(self, now_s: float) -> float:
        """Seconds since anything was written while something waits; 0 if nothing waits."""
        with self._changed:
            return now_s - self._since_s if self._turns else 0.0

    def rest(self) -> None:
        """Write all queued turns, then close the run's files and end the thread, until the next turn."""
        with self._changed:
            self._resting = True
            self._changed.notify()

    def give_up(self) -> None:
        """Drop all queued turns, and close the run's files as soon as the disk answers."""
        self._given_up.set()
        self.rest()

    @property
    def rests(self) -> bool:
        """Everything is written and nothing is open."""
        return self._thread is None

    def join(self, deadline_s: float) -> bool:
        """Wait until the thread rests; return False if this time of the clock passed before."""
        thread = self._thread
        if thread is not None:
            thread.join(max(deadline_s - self._clock(), 0.0))
        return thread is None or not thread.is_alive()

    # --- the lane's thread ---

    def _run(self) -> None:
        try:
            while not self._rest():
                while (turns := self._next()) is not None:
                    if turns:
                        self._write(turns)
                    self.room.look(self._writer.check_room)
                    self._confirm()
        except _GivenUpError:
            self._close()
        except Exception as error:
            self._close()
            self._tell(RunBroken(self.experiment, f"{type(error).__name__}: {error}", traceback.format_exc()))

    def _rest(self) -> bool:
        """Close the files, and end unless more was queued in the meantime."""
        with self._changed:
            if self._has_work():
                return False
        self._close()
        with self._changed:
            if self._has_work():
                return False
            self._thread = None
            return True

    def _has_work(self) -> bool:
        return bool(self._turns) or (self.room.wanted_bytes > 0 and not self._resting)

    def _close(self) -> None:
        try:
            self._writer.close()
        except Exception as error:
            print(f"the files of experiment {self.experiment} were not closed: {error}", file=sys.stderr)

    def _confirm(self) -> None:
        if self._clock() >= self._confirm_due_s:
            self._confirm_due_s = self._clock() + CONFIRM_S
            self._insist(self._writer.confirm)

    def _next(self) -> list[JournalBatch] | None:
        """Return the turns to write; an empty list without new turns for a while; None if the thread may rest."""
        with self._changed:
            pause_s = AGAIN_S if self.room.wanted_bytes else CONFIRM_S
            self._changed.wait_for(lambda: self._turns or self._resting or self.room.is_due, pause_s)
            if self._given_up.is_set():
                raise _GivenUpError
            if not self._turns:
                return None if self._resting else []
            return [self._turns[i] for i in range(min(len(self._turns), BATCHES_AT_ONCE))]

    def _write(self, turns: Sequence[JournalBatch]) -> None:
        entries = [turn.entry for turn in turns if turn.entry is not None]
        if entries:
            self._insist(lambda: self._writer.journal(entries))
        first, later = _before_anybody_is_answered([effect for turn in turns for effect in turn.effects])
        for effect in first:
            self._carry_out(effect)
        self._tell(Journaled(self.experiment, turns[-1].number))
        for effect in later:
            self._carry_out(effect)
        with self._changed:
            for _ in turns:
                self._turns.popleft()
            self._since_s = self._clock()

    def _carry_out(self, effect: RunEffect) -> None:
        if id(effect) in self._said:
            self._said.remove(id(effect))
            return
        self._insist(lambda: self._writer.carry_out(effect))

    def _say_what_is_wrong(self) -> None:
        """Log waiting errors early while the disk refuses other writes: the log may have room all the same."""
        with self._changed:
            waiting = [effect for turn in self._turns for effect in turn.effects if id(effect) not in self._said]
        for effect in waiting:
            if isinstance(effect, LogLine) and effect.experiment and effect.level == "error":
                with contextlib.suppress(OSError):
                    self._writer.carry_out(effect)
                    self._said.add(id(effect))

    def _insist(self, action: Callable[[], None]) -> None:
        """Repeat the call until the disk accepts it, or the write is not needed any more."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                action()
            except (JournalError, OSError) as error:
                self.refusal = str(error)
                self._say_what_is_wrong()
                if self._given_up.wait(pause_s):
                    raise _GivenUpError from error
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self.refusal, self._since_s = None, self._clock()
                return


def _before_anybody_is_answered(
    effects: Sequence[RunEffect],
) -> tuple[list[RunEffect], list[RunEffect]]:
    """Split the effects into the first effects and the rest. Deletions come first because a collector writes the next
    payload file after the answer; curves are set back before a learner begins, with all earlier points."""
    curves = [i for i, effect in enumerate(effects) if isinstance(effect_of(effect), RewindCurves)]
    rewound = max(curves, default=-1) + 1
    first, later = list(effects[:rewound]), list[RunEffect]()
    deletions: list[DeleteChunks] = []
    for effect in effects[rewound:]:
        if isinstance(effect, PolicyEffect) and isinstance(effect.effect, DeleteChunks):
            first.append(effect)
        elif isinstance(effect, DeleteChunks):
            deletions.append(effect)
        else:
            later.append(effect)
    if deletions:
        files = tuple(file for each in deletions for file in each.files)
        first.append(DeleteChunks(deletions[0].experiment, files))
    return first, later


@dataclass(frozen=True)
class HeldSince:
    """A hold as stored over a restart."""

    since_s: float
    """By the coordinator's clock; in the list of runs, seconds since 1970."""
    why: str
    room_bytes: int
    """Bytes for which the workers lacked room."""


class Holds:
    """The holds of all runs. For the coordinator's thread."""

    def __init__(
        self,
        keep: Callable[[str, HeldSince | None], None],
        run_dir_of: Callable[[str], Path],
        clock: Callable[[], float],
    ) -> None:
        """`keep` is called with every new or changed hold, and with None at the end of a hold. `run_dir_of` gives the
        run folder of an experiment."""
        self._keep, self._run_dir_of, self._clock = keep, run_dir_of, clock
        self.before: dict[str, HeldSince] = {}
        """Holds of the previous coordinator, of runs not recovered yet."""
        self._held: dict[str, HeldSince] = {}

    def __contains__(self, experiment: str) -> bool:
        return experiment in self._held

    def restore(self, experiment: str, run_thread: RunThread) -> Hold:
        """Continue a hold of the previous coordinator, until the disk has room."""
        listed = self.before.pop(experiment)
        held = self._held[experiment] = replace(listed, since_s=listed.since_s - self._offset_s())
        run_thread.want_room(held.room_bytes)
        return Hold(held.why, held.since_s + PATIENCE_S, journals=True)

    def forget(self, experiment: str) -> None:
        """The run is over."""
        self._held.pop(experiment, None)

    def look(self, experiment: str, run_thread: RunThread, now_s: float) -> HeldUp | RunBroken | None:
        """Return the event about this run's hold, if anything has changed."""
        blocked_s, lacking_s = run_thread.held_up_s(now_s), run_thread.room.lacking_s(now_s)
        known = self._held.get(experiment)
        if max(blocked_s, lacking_s) <= STALL_S:
            if known is None or run_thread.room.wanted_bytes:
                return None
            del self._held[experiment]
            self._keep(experiment, None)
            return HeldUp(experiment, None)
        blocked = blocked_s > STALL_S
        refusal = run_thread.refusal if blocked else run_thread.room.problem
        why = f"its disk refuses: {refusal}" if refusal else "its disk does not answer"
        since_s = now_s - max(blocked_s, lacking_s) if known is None else known.since_s
        if now_s - since_s > PATIENCE_S:
            way_out = f"once it is well, type: {resume_command('submit', self._run_dir_of(experiment))}"
            return RunBroken(experiment, f"{why} ({PATIENCE_S:.0f} s were waited); {way_out}")
        held = HeldSince(since_s, why, run_thread.room.wanted_bytes)
        if held == known:
            return None
        self._held[experiment] = held
        self._keep(experiment, replace(held, since_s=held.since_s + self._offset_s()))
        return HeldUp(experiment, Hold(why, since_s + PATIENCE_S, journals=not blocked))

    def _offset_s(self) -> float:
        """Return the time since 1970 at zero of the coordinator's clock."""
        return time.time() - self._clock()
