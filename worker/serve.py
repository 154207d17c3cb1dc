"""The loop of every worker: take a lease, work under it, hand it back, until dismissed."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol

from remuda.config.errors import NoExit
from remuda.logbook.streams import end_printed, keep_printed
from remuda.logbook.timers import Timers
from remuda.wire.conversation import RefusedError
from remuda.wire.messages import AnyMessage, Assign, Drain, Leave, Ready, Registered, WorkerFailed, shortened
from remuda.wire.patience import CoordinatorLostError
from remuda.worker.link import Link
from remuda.worker.shutdown_guard import ShutdownGuard
from remuda.worker.vitals import VitalSigns

IDLE_WAIT_S = 0.2
"""Seconds between two checks for the end of the process, without work."""
HAND_IN_S = 3.0
"""Default limit in seconds on handing in results at the end of a process."""
LOOK_INTERVAL_S = 0.003
"""Seconds between two checks for messages during work: a check costs a learner a twentieth of an update."""
WARNINGS_AT_MOST = 100
_DOUBTS = ("CUDA", "cuDNN", "CUBLAS", "can't allocate memory")
"""Errors with these words may leave the process in a bad state."""


class AskedToEndError(Exception):
    """The process should end, so work stops unfinished. Not a failure, and not reported."""


class TakenOverError(Exception):
    """Another worker has taken over the work of this seemingly dead worker. Ends the lease without a failure."""


class HopelessError(Exception):
    """The work has failed and would fail in any worker: the run is over."""


class LastLeaseError(Exception):
    """The work has failed, and all further work in this process would fail: the process ends and is started again."""


class Work(Protocol):
    """The work of a role under a lease."""

    def handle(self, message: AnyMessage) -> None:
        """Handle a message about this lease. Raises AskedToEndError."""
        ...

    @property
    def timers(self) -> Timers:
        """Use of time under this lease."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the commander's log at the start of the work."""
        ...

    def step(self) -> bool:
        """Do a small piece of work. False if all work waits for the next message."""
        ...

    def drain(self) -> None:
        """Finish current work and begin nothing new; `drained` becomes true afterwards."""
        ...

    @property
    def drained(self) -> bool:
        """True after `drain`, with all work finished and announced."""
        ...

    @property
    def unstored(self) -> bool:
        """True while data exists only in this process."""
        ...

    def close(self) -> None:
        """Close environments, files and threads; called once, also after an error."""
        ...


def serve(
    link: Link,
    guard: ShutdownGuard,
    begin: Callable[[Assign], Work],
    registered: Callable[[Registered], None] = lambda news: None,
    hand_in_s: float = HAND_IN_S,
) -> str:
    """Work until dismissed or asked to end; return the reason. `registered` is called after a new registration.

    Before its end a process hands in its results; it waits at most `hand_in_s` for storage, for instance while the
    coordinator is away. An exception in the work is reported with its traceback and ends the lease, not the process:
    the worker is free for another lease. The exception is raised if the process may be in a bad state: memory or the
    GPU has failed, or the work cannot be closed. Raises CoordinatorLostError and RefusedError like the link.
    """
    lease_loop = _LeaseLoop(link, begin, registered)
    try:
        while not guard.ending:
            reason = lease_loop.turn()
            if reason is not None:
                return reason
        _raise_failure(link)
        lease_loop.hand_in(hand_in_s)
        return guard.reason
    finally:
        lease_loop.close()


class _LeaseLoop:
    """The current lease, if any, and its work."""

    def __init__(self, link: Link, begin: Callable[[Assign], Work], registered: Callable[[Registered], None]) -> None:
        self._registered = registered
        self._link = link
        self._begin = begin
        self._work: Work | None = None
        self._vitals: VitalSigns | None = None
        self._lease = 0
        self._look_s = 0.0

    def turn(self) -> str | None:
        """Do a piece of work and handle messages; return the reason of a dismissal."""
        try:
            with NoExit():
                return self._turn()
        except (CoordinatorLostError, RefusedError):
            raise  # there is no coordinator to report it to
        except TakenOverError as news:
            self._let_go(news)
            return None
        except Exception as error:
            self._fail(error)
            return None

    def hand_in(self, within_s: float) -> None:
        """Finish current work, and wait for its storage, without acknowledgements."""
        if self._work is not None:
            try:
                with NoExit():
                    self._work.drain()
                    self._store(time.monotonic() + within_s)
            except (CoordinatorLostError, RefusedError):
                raise
            except TakenOverError as news:
                self._let_go(news)
            except Exception as error:
                self._report(error)
                raise

    def _store(self, end_s: float) -> None:
        """Continue storing, also with a returned coordinator; begin nothing new."""
        while self._work is not None and self._work.unstored and time.monotonic() < end_s:
            message = self._link.receive(IDLE_WAIT_S)
            if isinstance(message, Registered):
                self._registered(message)
                self._carry_on(message)
            elif message is not None and not isinstance(message, Assign | Leave | Drain):
                self._tell(message)
            self._step()

    def _step(self) -> None:
        if self._work is not None:
            self._work.step()

    def close(self) -> None:
        """Close the work."""
        work, self._work, self._vitals = self._work, None, None
        try:
            if work is not None:
                work.close()
        finally:
            end_printed()

    def _turn(self) -> str | None:
        busy = self._work is not None and self._work.step()
        if self._work is not None and self._work.drained:
            self._tell_vitals(last=True)
            self.close()
            self._link.end_lease(self._lease)
            return None
        self._tell_vitals()
        message = self._receive(busy)
        match message:
            case None:
                return None
            case Leave():
                return message.reason
            case Assign():
                self._take(message)
            case Registered():
                self._registered(message)
                self._carry_on(message)
            case Drain() if self._work is not None and message.lease == self._lease:
                self._work.drain()
            case Drain():
                return None
            case _:
                self._tell(message)
        return None

    def _tell(self, message: AnyMessage) -> None:
        """Pass a message to the work, except messages about finished leases (ChunkAccepted has no lease; its chunk
        identifies the worker)."""
        if self._work is not None and getattr(message, "lease", self._lease) == self._lease:
            with contextlib.suppress(AskedToEndError):
                self._work.handle(message)

    def _receive(self, busy: bool) -> AnyMessage | None:
        """Return the next message, if any; without work, wait for a moment."""
        if self._work is None:
            return self._link.receive(IDLE_WAIT_S)
        now_s = time.monotonic()
        if busy and now_s < self._look_s:
            return None
        self._look_s = now_s + LOOK_INTERVAL_S
        with self._work.timers("messages" if busy else self._link.doing.text):
            return self._link.receive(0.0 if busy else IDLE_WAIT_S)

    def _tell_vitals(self, *, last: bool = False) -> None:
        if self._vitals is not None:
            vitals = self._vitals.now() if last else self._vitals.due()
            if vitals is not None:
                self._link.send(vitals)

    def _fail(self, error: Exception) -> None:
        """Report the exception and leave the lease. Raises the exception if this process should end."""
        self._report(error)
        if self._lease == 0 or leaves_doubt(error):
            raise error
        self.close()
        self._link.end_lease(self._lease)

    def _let_go(self, news: TakenOverError) -> None:
        print(f"lets go of lease {self._lease}: {news}", file=sys.stderr, flush=True)
        self.close()
        self._link.end_lease(self._lease)

    def _report(self, error: Exception) -> None:
        text = shortened(f"{type(error).__name__}: {error}")
        trace = _sendable(traceback.format_exc()[-100_000:])
        hopeless = isinstance(error, HopelessError)
        self._link.send(WorkerFailed(self._lease, _sendable(text), trace, hopeless=hopeless))

    def _carry_on(self, registered: Registered) -> None:
        """Continue after a new registration; the work ends with its lease."""
        if self._work is None or registered.lease != self._lease:
            return
        if registered.goes_on:
            self._work.handle(registered)
        else:
            self.close()
            self._link.forget_lease()

    def _take(self, assign: Assign) -> None:
        self.close()
        self._lease = assign.lease
        self._link.begin_lease(assign.lease)
        self._link.activity("preparing", "preparing to work")
        keep_printed()
        self._work = self._begin(assign)
        if self._link.doing.phase == "preparing":
            self._link.activity("waiting", "waiting to begin")
        self._vitals = VitalSigns(assign.lease, self._work.timers)
        warnings = [shortened(_sendable(text)) for text in self._work.warnings[:WARNINGS_AT_MOST]]
        self._link.send(Ready(assign.lease, warnings))


def _raise_failure(link: Link) -> None:
    """Raise the error of a failed link at the end of the process, for the exit code."""
    while link.receive(0.0) is not None:
        pass


def leaves_doubt(error: Exception) -> bool:
    """True if the error may harm the next lease of this process: memory, a GPU or other processes have failed."""
    return isinstance(error, (MemoryError, LastLeaseError)) or any(doubt in str(error) for doubt in _DOUBTS)


def _sendable(text: str) -> str:
    """Replace characters that messages cannot hold, for instance in file names that are not UTF-8."""
    return text.encode(errors="replace").decode()
