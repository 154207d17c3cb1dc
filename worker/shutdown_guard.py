"""Ends a worker's process: by a signal, after the loss of its parent, or by force if it does not end in time."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

EXIT_NOT_IN_TIME = 1
EXIT_AT_ONCE = 130
SAME_REQUEST_S = 0.5
"""Signals within this time are one request: Ctrl-C reaches a whole process group, and the parent also passes it on."""
_STDERR = 2  # the descriptor, since sys.stderr of a notebook or a test may have none
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ShutdownGuard:
    """Ends a process in order; a context manager, entered in the main thread.

    The first SIGTERM or SIGINT, the end of the lifeline, or `end` sets `ending`: the main thread finishes its work and
    returns. If it has not left the context `grace_s` seconds later, all stacks are printed and the process exits with
    code 1. At a second signal (SAME_REQUEST_S later or more) it exits at once with code 130. SIGUSR1 prints all stacks.
    A crash in C, such as an environment's, prints its stack; its signal ends the process all the same.

    A separate thread reads signals, so all this also works while the main thread is stuck in C code.
    """

    def __init__(self, *, lifeline: int | None = None, grace_s: float = 20.0) -> None:
        """`lifeline` is the reading end of a pipe whose writing end only the parent has: it breaks with the parent."""
        self._lifeline = lifeline
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._asked_at_s: float | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._last_acts: list[Callable[[], None]] = []
        self._written: socket.socket | None = None
        self._former: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._tells_crashes = not faulthandler.is_enabled()  # by python -X faulthandler, or by a test

    @property
    def ending(self) -> bool:
        """True if the process was asked to end."""
        return self._reason is not None

    @property
    def reason(self) -> str:
        """Reason of the end, for people; empty before."""
        return self._reason or ""

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the process is asked to end (at once if it was already), to wake a
        waiting main thread."""
        with self._lock:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        callback()

    def end(self, reason: str) -> None:
        """Ask the process to end; only the first reason counts. May be called by any thread."""
        with self._lock:
            if self._reason is not None:
                return
            self._asked_at_s = time.monotonic()  # before the reason, which tells the main thread that it was asked
            self._reason = reason
        self._nudge()  # so that the watching thread notices the deadline
        for callback in self._callbacks:
            callback()

    def on_forced_exit(self, callback: Callable[[], None]) -> None:
        """Call `callback` just before the process exits by force (after a second signal, or when `grace_s` is over).

        It runs in the watching thread, even if the main thread is stuck; it must be quick.
        """
        self._last_acts.append(callback)

    def __enter__(self) -> ShutdownGuard:
        global _entered
        self._signalled, self._written = socket.socketpair()
        self._signalled.setblocking(False)
        self._written.setblocking(False)
        self._former_wakeup = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        _entered = self
        for number in _SIGNALS:
            self._former[number] = signal.signal(number, _noted_by_the_watching_thread)
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited: dead children would go unnoticed
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        faulthandler.register(signal.SIGUSR1, file=_STDERR, all_threads=True, chain=False)
        if self._tells_crashes:
            faulthandler.enable(_STDERR, all_threads=False)
        self._left = False
        self._watcher = threading.Thread(target=self._watch, name="remuda-shutdown", daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _entered
        _entered = None
        self._left = True
        self._nudge()
        self._watcher.join()
        faulthandler.unregister(signal.SIGUSR1)
        if self._tells_crashes:
            faulthandler.disable()
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_wakeup)
        self._signalled.close()
        if self._written is not None:
            self._written.close()

    def _nudge(self) -> None:
        # OSError: the watching thread has much to read already, and then looks at the deadline; or it has ended.
        if self._written is not None:
            with contextlib.suppress(OSError):
                self._written.send(b"\0")

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._signalled, selectors.EVENT_READ)
            if self._lifeline is not None:
                selector.register(self._lifeline, selectors.EVENT_READ)
            while not self._left:
                for key, _ in selector.select(self._left_s()):
                    if key.fileobj is self._signalled:
                        self._read_signals()
                    else:
                        self._read_lifeline(selector)
                if self._left_s() == 0.0 and not self._left:
                    self._exit_now()

    def _left_s(self) -> float | None:
        return None if self._asked_at_s is None else max(0.0, self._asked_at_s + self._grace_s - time.monotonic())

    def _read_signals(self) -> None:
        for number in self._signalled.recv(64):
            if number not in _SIGNALS:
                continue
            if self._asked_at_s is not None and time.monotonic() - self._asked_at_s >= SAME_REQUEST_S:
                self._force_exit(EXIT_AT_ONCE)
            self.end(f"asked to by {signal.Signals(number).name}")

    def _read_lifeline(self, selector: selectors.BaseSelector) -> None:
        assert self._lifeline is not None
        if not os.read(self._lifeline, 64):
            selector.unregister(self._lifeline)
            self.end("its parent process is gone")

    def _exit_now(self) -> None:
        print(f"did not end within {self._grace_s:g} s ({self.reason}); stacks:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(_STDERR, all_threads=True)
        self._force_exit(EXIT_NOT_IN_TIME)

    def _force_exit(self, exit_code: int) -> None:
        try:
            for callback in self._last_acts:
                callback()
        finally:
            os._exit(exit_code)


def _noted_by_the_watching_thread(number: int, frame: FrameType | None) -> None:
    """Do nothing: Python has written the number of the signal to the wakeup descriptor."""


_entered: ShutdownGuard | None = None
_mask_before_fork: set[int] = set()


def _hold_signals() -> None:
    """Block signals around a fork: a signal to the child must wait until the child has its own handlers."""
    global _mask_before_fork
    _mask_before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask_before_fork)


def _forget_in_child() -> None:
    """Restore signal handling in a forked child, which must neither ignore signals nor report its own to the parent."""
    global _entered
    if _entered is not None:
        _entered = None
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
    _release_signals()


os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_forget_in_child)
