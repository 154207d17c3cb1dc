"""The coordinator's loop: poll, decode, handle, apply effects, tick."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from remuda.coordinator.effects import Effect, Exit, PrepareRun, Send
from remuda.coordinator.events import Event, Received, ShutdownRequested, Tick
from remuda.coordinator.registry import Limits
from remuda.coordinator.run_books import RunBooks
from remuda.coordinator.state import Coordinator
from remuda.wire import connection_file
from remuda.wire.codec import ProtocolMismatchError
from remuda.wire.connection_file import ConnectionFile, ConnectionFileError
from remuda.wire.envelope import Envelope
from remuda.wire.messages import PROTOCOL_VERSION, Rejected
from remuda.wire.sockets import Arrival, Malformed, RouterSocket
from remuda.worker.life import Life

TICK_S = 0.05
MESSAGES_PER_TURN = 1_000
"""Messages handled before the clock is looked at again, so that a flood cannot hold up beats' deadlines."""

COMPLAINT_INTERVAL_S = 5.0
"""At most one line about malformed messages in so long, lest whoever sends them fill the disk."""


@dataclass(frozen=True)
class Settings:
    """How a coordinator is started."""

    runs_dir: Path
    connection_file: Path
    address: str = "tcp://127.0.0.1:0"
    limits: Limits = field(default_factory=Limits)


class Service:
    """Gives the pure state machine a socket, a disk and a clock."""

    def __init__(self, settings: Settings, life: Life) -> None:
        self._settings = settings
        self._life = life
        self._id = str(uuid4())
        self._socket = RouterSocket(settings.address)
        self._books = RunBooks(settings.runs_dir)
        self._coordinator = Coordinator(
            id=self._id,
            address=self._socket.address,
            pid=os.getpid(),
            now_s=time.monotonic(),
            limits=settings.limits,
        )
        self._done = False
        self._asked_to_end = False
        self._next_complaint_s = 0.0

    def run(self) -> None:
        """Until told to end, and everything is saved and everybody gone."""
        connection_file.write(self._settings.connection_file, self._connection())
        next_tick_s = time.monotonic()
        try:
            while not self._done:
                self._socket.wait(max(next_tick_s - time.monotonic(), 0.0))
                self._receive()
                now_s = time.monotonic()
                if now_s >= next_tick_s:
                    self._tick(now_s)
                    next_tick_s = now_s + TICK_S
        finally:
            self._remove_connection_file()
            self._books.close()
            self._socket.close()

    def _connection(self) -> ConnectionFile:
        return ConnectionFile(
            coordinator=self._id,
            address=self._socket.address,
            protocol=PROTOCOL_VERSION,
            host=platform.node(),
            pid=os.getpid(),
            epoch=1,
        )

    def _remove_connection_file(self) -> None:
        """Unless another coordinator has put its own there."""
        path = self._settings.connection_file
        with contextlib.suppress(ConnectionFileError):
            if connection_file.read(path).coordinator == self._id:
                path.unlink(missing_ok=True)

    def _receive(self) -> None:
        for _ in range(MESSAGES_PER_TURN):
            event = self._socket.receive()
            if event is None:
                return
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

    def _handle(self, event: Event) -> None:
        self._apply(self._coordinator.handle(event, time.monotonic()))

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._socket.send(effect.peer, effect.envelope)
                case PrepareRun():
                    self._handle(self._books.prepare(effect))
                case Exit():
                    self._done = True
                case _:
                    self._books.carry_out(effect)

    def _refuse(self, event: Malformed) -> None:
        """Tell a peer of another protocol so, in its own; say of other garbage only now and then that it came."""
        now_s = time.monotonic()
        if now_s >= self._next_complaint_s:
            self._next_complaint_s = now_s + COMPLAINT_INTERVAL_S
            text = f"malformed message from {event.peer!r} (the {self._socket.malformed}. in all): {event.error}"
            print(text, file=sys.stderr, flush=True)
        if isinstance(event.error, ProtocolMismatchError):
            answer = Envelope(0, 0, 1, Rejected("protocol", str(event.error)))
            self._socket.send(event.peer, answer, protocol=event.error.theirs)
