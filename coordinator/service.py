"""The coordinator's loop: poll, decode, handle, apply effects, tick."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import zmq

from remuda.coordinator.effects import DeleteChunks, Effect, Exit, PrepareRun, ReadLog, Remember, Send
from remuda.coordinator.events import Event, Received, ShutdownRequested, Tick, Weighed
from remuda.coordinator.herd_folder import HerdFolder
from remuda.coordinator.journal import JournalError
from remuda.coordinator.log_reader import read_log
from remuda.coordinator.reachable import reachable
from remuda.coordinator.registry import Limits
from remuda.coordinator.run_books import RunBooks
from remuda.coordinator.state import Coordinator
from remuda.logbook.timers import Timers
from remuda.wire import connection_file
from remuda.wire.codec import CodecError, ProtocolMismatchError
from remuda.wire.connection_file import ConnectionFile, ConnectionFileError
from remuda.wire.envelope import Envelope
from remuda.wire.messages import PROTOCOL_VERSION, BeatHeard, Rejected
from remuda.wire.sockets import Arrival, Malformed, RouterSocket
from remuda.worker.life import Life
from remuda.worker.vitals import VitalSigns

TICK_S = 0.05
MESSAGES_PER_TURN = 64
"""Messages handled before the journal is written, their answers go out and the clock is looked at again. So many share
a commit that it costs each of them little; so few that in a flood the first are answered while the others wait: who has
as many in flight as he may goes on meanwhile."""

COMPLAINT_INTERVAL_S = 5.0
"""At most one line about malformed messages or a full disk in so long, lest it fill the disk."""
LOOPBACK = "tcp://127."
ANY_ADDRESS = "tcp://127.0.0.1:0"
LEASES_PER_START = 1_000_000
"""A lease must never have the number of one that a coordinator before this one gave out, even if the run that it was
for, and its journal, are lost: what its worker still says would be taken for another's."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Where Linux says it."""
CONFIRM_S = 10.0
"""Between two signs of life for other hosts in the folders it owns."""


class CannotListenError(Exception):
    """The address to listen on is not of this machine, or taken; the text says which and why."""


@dataclass(frozen=True)
class Settings:
    """How a coordinator is started."""

    runs_dir: Path
    connection_file: Path
    address: str | None = None
    """Where to listen, such as tcp://127.0.0.1:5555; None: where the one before it listened if that is free, else any
    free port of the loopback interface."""
    lasting: bool = False
    """It owns the runs folder and takes up what a coordinator before it left there. One that is not lasting lives for
    the runs it is given."""
    limits: Limits = field(default_factory=Limits)


class Service:
    """Gives the pure state machine a socket, a disk and a clock."""

    def __init__(self, settings: Settings, life: Life) -> None:
        """Raises CannotListenError, before anything is written; FolderOwnedError where another coordinator owns the
        runs folder; JournalError and OSError."""
        self._settings = settings
        self._life = life
        self._id = str(uuid4())
        asked_for = None if settings.address is None else _listen(settings.address)
        self._herd = HerdFolder(settings.runs_dir) if settings.lasting else None
        self._socket = asked_for or _listen_again(None if self._herd is None else self._herd.last_address)
        self._address = reachable(self._socket.address)
        self._epoch = 1 if self._herd is None else self._herd.begin(self._socket.address)
        self._books = RunBooks(settings.runs_dir)
        self._coordinator = Coordinator(
            id=self._id,
            address=self._address,
            pid=os.getpid(),
            now_s=time.monotonic(),
            limits=settings.limits,
            leases=self._epoch * LEASES_PER_START,
            boot=_boot(),
        )
        self._effects: deque[Effect] = deque()
        self._deletions: list[DeleteChunks] = []
        """The first effects of a turn: whoever is answered writes the next file, and data/ keeps to its quota. Messages
        that nothing comes between go out several at a time."""
        self._unwritten: list[Remember] = []
        self._timers = Timers()
        self._vitals = VitalSigns(0, self._timers)
        self._done = False
        self._asked_to_end = False
        self._next_complaint_s = 0.0
        self._next_confirm_s = 0.0

    @property
    def address(self) -> str:
        """Where others reach it."""
        return self._address

    @property
    def listens_on(self) -> str:
        """What it is bound to."""
        return self._socket.address

    def run(self) -> None:
        """Until told to end, and everything is saved and everybody gone."""
        with contextlib.ExitStack() as end:  # each of these, whatever becomes of the others; the last one first
            if self._herd is not None:
                end.callback(self._herd.close)
            end.callback(self._socket.close)
            end.callback(self._books.close)
            self._recover()
            connection_file.write(self._settings.connection_file, self._connection())
            end.callback(self._remove_connection_file)
            self._turn_until_done()

    def _turn_until_done(self) -> None:
        next_tick_s = time.monotonic()
        while not self._done:
            with self._timers("waiting for messages"):
                self._socket.wait(max(next_tick_s - time.monotonic(), 0.0))
            with self._timers("decide"):
                self._receive()
                now_s = time.monotonic()
                if now_s >= next_tick_s:
                    self._tick(now_s)
                    next_tick_s = now_s + TICK_S
            self._carry_out(now_s)

    def _recover(self) -> None:
        if self._herd is None:
            return
        found = list(self._herd.recover(self._books))
        self._effects += self._coordinator.recover(found, time.monotonic())

    def _connection(self) -> ConnectionFile:
        return ConnectionFile(
            coordinator=self._id,
            address=self._address,
            protocol=PROTOCOL_VERSION,
            host=platform.node(),
            pid=os.getpid(),
            epoch=self._epoch,
        )

    def _remove_connection_file(self) -> None:
        """Unless another coordinator has put its own there."""
        path = self._settings.connection_file
        with contextlib.suppress(ConnectionFileError):
            if connection_file.read(path).coordinator == self._id:
                path.unlink(missing_ok=True)

    def _receive(self) -> None:
        for event in self._socket.receive_up_to(MESSAGES_PER_TURN):
            match event:
                case Arrival():
                    self._handle(Received(event.peer, event.envelope))
                case Malformed():
                    self._refuse(event)

    def _tick(self, now_s: float) -> None:
        if self._life.ending and not self._asked_to_end:
            self._asked_to_end = True
            self._handle(ShutdownRequested(self._life.reason))
        self._handle(Tick())
        vitals = self._vitals.due()
        if vitals is not None:
            self._handle(Weighed(vitals))
        if now_s >= self._next_confirm_s:
            self._next_confirm_s = now_s + CONFIRM_S
            self._books.confirm()
            if self._herd is not None:
                self._herd.confirm()

    def _handle(self, event: Event) -> None:
        for effect in self._coordinator.handle(event, time.monotonic()):
            match effect:
                case PrepareRun():
                    self._handle(self._books.prepare(effect))
                case ReadLog():
                    self._handle(read_log(effect))
                case DeleteChunks():
                    self._deletions.append(effect)
                case _:
                    self._effects.append(effect)

    def _carry_out(self, now_s: float) -> None:
        """Journal what this turn has changed, then do what it asks for. A disk that refuses is tried again at the next
        turn: until then nobody is told anything, but that the coordinator is alive."""
        try:
            with self._timers("journal"):
                self._write_journals(now_s)
            with self._timers("carry out"):
                self._effects.extendleft(reversed(self._deletions))
                self._deletions.clear()
                while self._effects:
                    self._apply(self._effects[0])
                    self._effects.popleft()
        except (JournalError, OSError) as error:
            self._complain(f"the disk refuses, and everything waits for it: {error}")
            self._answer_beats()

    def _write_journals(self, now_s: float) -> None:
        while self._unwritten or self._coordinator.has_news:
            self._unwritten = self._unwritten or self._coordinator.remember(now_s)
            self._books.journal(self._unwritten[0])  # before it is listed: what is listed has a journal
            if self._herd is not None:
                self._herd.note(self._unwritten[0])
            del self._unwritten[0]

    def _apply(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case Exit():
                self._done = True
            case _:
                self._books.carry_out(effect)

    def _send(self, effect: Send) -> None:
        """A message that cannot be sent is its reader's loss, and nobody else's."""
        try:
            self._socket.send(effect.peer, effect.envelope)
        except CodecError as error:
            self._complain(f"to {effect.peer!r}: {error}")

    def _answer_beats(self) -> None:
        waiting = deque[Effect]()
        for effect in self._effects:
            if isinstance(effect, Send) and isinstance(effect.envelope.message, BeatHeard):
                self._apply(effect)
            else:
                waiting.append(effect)
        self._effects = waiting

    def _refuse(self, event: Malformed) -> None:
        """Tell a peer of another protocol so, in its own; say of other garbage only now and then that it came."""
        self._complain(f"malformed message from {event.peer!r} (the {self._socket.malformed}. in all): {event.error}")
        if isinstance(event.error, ProtocolMismatchError):
            answer = Envelope(0, 0, 1, Rejected("protocol", str(event.error)))
            self._socket.send(event.peer, answer, protocol=event.error.theirs)

    def _complain(self, text: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_complaint_s:
            self._next_complaint_s = now_s + COMPLAINT_INTERVAL_S
            print(text, file=sys.stderr, flush=True)


def _boot() -> str:
    """Tells this start of this machine from any other; empty where the system has no such word."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def _listen(address: str) -> RouterSocket:
    try:
        return RouterSocket(address)
    except zmq.ZMQError as error:
        raise CannotListenError(f"{address}: {error.strerror}") from error


def _listen_again(before: str | None) -> RouterSocket:
    """Workers of the coordinator before this one look for it where that one was. What it was told to open to others is
    not open to them again unless this one is told so, too."""
    if before is not None and before.startswith(LOOPBACK):
        with contextlib.suppress(CannotListenError):
            return _listen(before)
    return _listen(ANY_ADDRESS)
