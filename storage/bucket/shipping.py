"""The bucket of a run, for the command that runs it: a process opens the run and ships the run folder meanwhile."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Literal, Self

import msgspec

from remuda.storage.bucket.address import BucketError, NotShippedError, address_of_folder, local_folder
from remuda.storage.bucket.shipper import Shipped
from remuda.storage.existing_folder import OnExists

FINISH = b"finish\n"
_OPEN_S = 3_600.0
"""Longest time to restore a run."""
_LAST_S = 3_600.0
"""Longest time for the end of the process; the process has a deadline of its own, storage.last_copy_s."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_STEADY_S = 60.0
"""A process that lived so long is started again after the first pause."""
_TRIES = 5
"""Starts of a process that dies while it opens the run, or during the last copy."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line from the process."""

    kind: Literal["said", "ready", "refused", "moved", "failed", "shipped", "done"]
    text: str = ""
    address: str = ""
    folder: str = ""
    shipped: Shipped | None = None


_DECODER = msgspec.json.Decoder(Event)


def open_bucket(run_dir: str | os.PathLike[str], on_exists: OnExists, say: Callable[[str], None]) -> Shipping | None:
    """Open the run at an address, or of a local folder that stands for an address; None for any other folder. Raises
    BucketError."""
    address = address_of_folder(run_dir)
    return None if address is None else Shipping(address, on_exists, say)


class Shipping:
    """A run in a bucket, open until `finish` or `close`."""

    def __init__(
        self, address: str, on_exists: OnExists, say: Callable[[str], None], *, has_runs: bool = False
    ) -> None:
        """Open the run; a run to continue is restored. `say` shows a line and may be called by another thread. Raises
        BucketError if the run cannot be opened; nothing is started then."""
        self.address, self.folder = address, local_folder(address)
        self.on_exists: OnExists = on_exists if on_exists in ("resume", "force") else "error"
        """For the run folder on this machine. A run at another name, or at a free address, finds no folder there."""
        self._say, self._has_runs = say, has_runs
        self._last: Shipped | None = None
        self._why_moved: str | None = None
        self._acts: list[Callable[[str], object]] = []
        self._failed: str | None = None
        self._is_open = self._is_finishing = self._is_done = False
        self._closing = threading.Event()
        self._opened: SimpleQueue[Event] = SimpleQueue()
        self._opens = ("--on-exists", on_exists)
        self._process = self._start(*self._opens)
        self._thread = threading.Thread(target=self._follow, name="bucket", daemon=True)
        self._thread.start()
        try:
            event = self._opened.get(timeout=_OPEN_S)
        except Empty:
            event = Event("refused", f"{address} could not be opened within {_OPEN_S:g} s")
        except BaseException:
            self.close()
            raise
        if event.kind != "ready":
            self.close()
            raise BucketError(event.text)
        self.address, self.folder = event.address, Path(event.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ship the end of the run, and say so. Raises NotShippedError; after an exception ships as much as possible."""
        if error is None:
            self._say(f"shipped to {self.finish()}")
        else:
            self.close()

    def when_moved(self, act: Callable[[str], object]) -> None:
        """Call `act` with a text once another process has continued the run from the bucket: this run must end."""
        self._acts.append(act)
        if self._why_moved is not None:
            act(self._why_moved)

    @property
    def pid(self) -> int:
        """Process id of the present process."""
        return self._process.pid

    def finish(self) -> str:
        """Ship the ended run; returns a line about the bucket. Raises NotShippedError if the bucket does not have all
        of the run."""
        self._is_finishing = True
        self._send_finish()
        self._thread.join(_LAST_S)
        self.close()
        if not self._is_done:
            why = self._why_moved or self._failed or "the process that ships ended early"
            raise NotShippedError(
                f"{self.address} does not have the end of the run: {why}. All of the run is in {self.folder}"
            )
        if self._last is None:
            return self.address
        return f"{self.address} (generation {self._last.number}, {self._last.total_bytes / 1e6:.1f} MB)"

    def close(self) -> None:
        """End the process after its last copy; without a run, at once. May be called again."""
        self._closing.set()
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_LAST_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()

    def _start(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "remuda.storage.bucket", "--address", self.address]
        return subprocess.Popen(
            [*command, "--folder", os.fspath(self.folder), *(["--has-runs"] if self._has_runs else []), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends the run, and the run's end this process
        )

    def _send_finish(self) -> None:
        with contextlib.suppress(OSError):  # it has died: the next process gets the line
            assert self._process.stdin is not None
            self._process.stdin.write(FINISH)
            self._process.stdin.flush()

    def _follow(self) -> None:
        """Read the lines of the process, and start it again if it dies."""
        pause_s, tries = _FIRST_PAUSE_S, 0
        while True:
            begun_s = time.monotonic()
            assert self._process.stdout is not None
            with self._process.stdout as lines:
                for line in lines:
                    self._note(line)
            code = self._process.wait()
            tries += self._is_finishing or not self._is_open
            if self._has_ended():
                return
            ended = f"the process of {self.address} ended with {code}"
            if tries > _TRIES:
                if not self._is_open:
                    self._opened.put(Event("refused", ended))
                return
            self._say(f"{ended}; it is started again")
            pause_s = _FIRST_PAUSE_S if time.monotonic() - begun_s > _STEADY_S else min(2 * pause_s, _LONGEST_PAUSE_S)
            self._closing.wait(pause_s)
            if self._has_ended():
                return
            self._start_again()

    def _start_again(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process = self._start(*(("--continues",) if self._is_open else self._opens))
        if self._closing.is_set() and self._process.stdin is not None:  # `close` has closed that of the dead process
            self._process.stdin.close()
        elif self._is_finishing:
            self._send_finish()

    def _has_ended(self) -> bool:
        return self._is_done or self._closing.is_set() or self._why_moved is not None or self._failed is not None

    def _note(self, line: bytes) -> None:
        try:
            event = _DECODER.decode(line)
        except msgspec.MsgspecError:  # a library has printed something
            return
        match event.kind:
            case "ready" if not self._is_open:
                self._is_open = True
                self._opened.put(event)
            case "ready":
                pass
            case "shipped":
                self._last = event.shipped
            case "done":
                self._is_done = True
            case "moved":
                self._why_moved = event.text
                self._say(f"{self.address}: {event.text}")
                for act in self._acts:
                    act(event.text)
            case "failed":
                self._failed = event.text
            case "refused" if not self._is_open:
                self._failed = event.text
                self._opened.put(event)
            case _:
                self._say(event.text)
