"""A worker's connection to the stream server: a thread that carries all transfers of the process."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count

from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.keys.folder import CallerKeys
from remuda.wire.sockets import SILENCE_S
from remuda.wire.streams import Cancel, StreamDealer
from remuda.worker.stores.transfers import Transfer

WAIT_S = 0.25
"""Between two attempts without a connection, or with a full queue."""
LONGEST_WAIT_S, IDLE_WAIT_S = 1.0, 60.0
"""Longest pauses in seconds without due work, while the server owes an answer and otherwise. A herd has many of these
threads, and each turn takes time."""
RETRY_S = 1.0
"""Retry delay after a refused connection, or without a key."""
JOIN_S = 5.0
_FAILED = "the thread that carries files has failed"


class StreamClient:
    """Carries transfers from any thread. An absent server never ends a transfer; after a failure of this thread each
    transfer is refused at once."""

    def __init__(self, keys: Callable[[], CallerKeys], finished: Callable[[], None] = lambda: None) -> None:
        """`keys` are asked for with every connection; may raise KeyFileError. `finished` is called, by the thread of
        this client, when something has changed that the main thread may wait for."""
        self._keys = keys
        self._settled = finished
        self._numbers = count(1)
        self._commands: deque[Callable[[float], None]] = deque()
        self._transfers: dict[int, Transfer] = {}
        self._address: str | None = None
        self._socket: StreamDealer | None = None
        self._asked_s: float | None = None
        """Begin of the wait for a due answer; None without one."""
        self._renewed_s = 0.0
        self._let_in = 0
        self._connect_due_s = 0.0
        self._closing = threading.Event()
        self._ended = False
        self.trouble = ""
        """Reason for a missing connection, as far as known."""
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._wake_receiver.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="remuda-streams", daemon=True)
        self._thread.start()

    # --- for any thread ---

    def serve_at(self, address: str) -> None:
        """Set the server's present address. Running transfers continue there."""
        self._do(lambda now_s: self._move(address))

    def start(self, transfer: Transfer) -> None:
        """Begin a transfer."""

        def begin(now_s: float) -> None:
            number = next(self._numbers)
            self._transfers[number] = transfer
            transfer.open(number, now_s)

        self._do(begin)
        if self._ended:
            transfer.give_up(_FAILED)

    def cancel(self, transfer: Transfer) -> None:
        """Give up a transfer."""

        def end(now_s: float) -> None:
            for number, each in list(self._transfers.items()):
                if each is transfer:
                    del self._transfers[number]
                    if self._socket is not None:
                        self._socket.say(Cancel(number))
            transfer.give_up("it was given up")

        self._do(end)

    @property
    def failed(self) -> bool:
        """True if an error has ended its thread."""
        return self._ended and not self._closing.is_set()

    def wake(self) -> None:
        """Let the thread look for due work."""
        with contextlib.suppress(OSError):  # it is full, so the thread wakes up anyway; or closed
            self._wake_sender.send(b"\0")

    def close(self) -> None:
        """End the thread; unfinished transfers are given up. May be called again."""
        if self._closing.is_set():
            return
        self._closing.set()
        self.wake()
        self._thread.join(JOIN_S)
        self._wake_sender.close()
        self._wake_receiver.close()

    def _do(self, command: Callable[[float], None]) -> None:
        self._commands.append(command)
        self.wake()

    # --- for its own thread ---

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn()
        finally:
            self._ended = True
            self._disconnect()
            self._give_all_up("the worker ends" if self._closing.is_set() else _FAILED)

    def _give_all_up(self, reason: str) -> None:
        while self._commands:  # what was begun at the last moment
            with contextlib.suppress(Exception):  # what has ended the thread may do so again
                self._commands.popleft()(time.monotonic())
        for transfer in self._transfers.values():
            transfer.give_up(reason)

    def _turn(self) -> None:
        now_s = time.monotonic()
        while self._commands:
            self._commands.popleft()(now_s)
        self._connect_if_due(now_s)
        if self._socket is None:
            self._pause()
            return
        self._listen(self._socket, now_s)
        if not self._look_after(self._socket, now_s):
            return
        self._talk(self._socket)
        self._forget_finished()
        if any(each.expects for each in self._transfers.values()):
            self._asked_s = self._asked_s or now_s
        else:
            self._asked_s = None
        if not self._commands:
            self._socket.wait(self._wait_s(time.monotonic()))
            self._clear()

    def _wait_s(self, now_s: float) -> float:
        """Until something is due."""
        due_s = min((each.due_s for each in self._transfers.values()), default=math.inf)
        if due_s <= now_s:
            return WAIT_S
        return min(due_s - now_s, IDLE_WAIT_S if self._asked_s is None else LONGEST_WAIT_S)

    def _listen(self, server: StreamDealer, now_s: float) -> None:
        while (said := server.take()) is not None:
            self._asked_s, self.trouble = None, ""
            message, data = said
            transfer = self._transfers.get(message.transfer)
            if transfer is not None:
                transfer.on_message(message, data, now_s)

    def _look_after(self, server: StreamDealer, now_s: float) -> bool:
        """Restart transfers after each new connection; connect again after a silence. Returns False for a refused
        connection, which is closed and replaced after a pause."""
        refusal = server.refusal()
        if refusal is not None:
            self.trouble = f"the stream server at {self._address} does not let this worker in: {refusal}"
            self._disconnect()  # either key may have been replaced: the next connection shows the newest
            self._connect_due_s = now_s + RETRY_S
            return False
        if server.times_let_in != self._let_in:
            self._let_in = server.times_let_in
            self._begin_again(now_s)
        if self._asked_s is not None and now_s - max(self._asked_s, self._renewed_s) > SILENCE_S:
            self.trouble = f"the stream server at {self._address} has been silent for {now_s - self._asked_s:.0f} s"
            self._renewed_s = now_s
            server.renew()
            self._begin_again(now_s)
        return True

    def _begin_again(self, now_s: float) -> None:
        for number, transfer in self._transfers.items():
            if not transfer.finished:
                transfer.open(number, now_s)

    def _talk(self, server: StreamDealer) -> None:
        now_s = time.monotonic()
        for transfer in self._transfers.values():
            for message, data in transfer.say(now_s):
                if not server.say(message, *data):
                    return  # its queue is full; the rest follows

    def _forget_finished(self) -> None:
        finished = [number for number, each in self._transfers.items() if each.finished]
        for number in finished:
            del self._transfers[number]
        if finished:
            self._settled()

    def _move(self, address: str) -> None:
        if address != self._address:
            self._address = address
            self._disconnect()
            self._connect_due_s = 0.0

    def _connect_if_due(self, now_s: float) -> None:
        if self._socket is not None or self._address is None or now_s < self._connect_due_s:
            return
        if not self._transfers:
            return  # a worker without transfers needs no connection
        try:
            self._socket = StreamDealer(self._address, self._keys())
        except ConnectionFileError as error:  # a key that cannot be read, as while a file system is away
            self.trouble = str(error)
            self._connect_due_s = now_s + RETRY_S
            return
        self._socket.watch(self._wake_receiver.fileno())
        self._let_in, self._renewed_s = 0, now_s

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _pause(self) -> None:
        self._wake_receiver.setblocking(True)
        self._wake_receiver.settimeout(WAIT_S)
        with contextlib.suppress(OSError):
            self._wake_receiver.recv(4_096)
        self._wake_receiver.setblocking(False)

    def _clear(self) -> None:
        with contextlib.suppress(OSError):
            while self._wake_receiver.recv(4_096):
                pass
