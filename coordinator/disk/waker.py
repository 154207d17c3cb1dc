"""How other threads wake the coordinator's loop, which waits at its socket."""

from __future__ import annotations

import contextlib
import select
import socket


class Waker:
    """A pair of sockets: `fileno` becomes readable when a thread has called `wake`."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._receiver.fileno()

    def wake(self) -> None:
        """Wake the thread that waits. For any thread; harmless after `close`."""
        with contextlib.suppress(OSError):  # there are plenty of reasons to wake up already
            self._sender.send(b"\0")

    def clear(self) -> None:
        """Clear the signal, to wait for the next one."""
        with contextlib.suppress(BlockingIOError):
            while self._receiver.recv(4_096):
                pass

    def wait(self, timeout_s: float) -> None:
        """Wait until `wake` is called, or the time is over."""
        poll = select.poll()  # select() itself takes no descriptor above 1,023
        poll.register(self._receiver, select.POLLIN)
        poll.poll(1_000 * timeout_s)
        self.clear()

    def close(self) -> None:
        """Close both ends."""
        self._receiver.close()
        self._sender.close()
