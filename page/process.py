"""The side of the command that has a page: starts the process that serves it, starts it again if it dies, and ends it.

Nothing here needs the packages of the extra `page`; `is_installed` says whether they are there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

import msgspec

from remuda.coordinator.monitoring.address import is_loopback, listen, url
from remuda.page.tokens import PageRight, Tokens, link
from remuda.wire.child_end import end_within
from remuda.worker.threads import bounded

INSTALL = "pip install 'remuda[page]'"
RESTART_S = 10.0
"""Least time between two starts, if it dies."""
END_S = 5.0
_LOOK_S = 0.1
_NEEDED = ("starlette", "uvicorn")


def is_installed() -> bool:
    """Whether the packages that serve a page are there."""
    return all(find_spec(name) is not None for name in _NEEDED)


class PageProcess:
    """Serves the page of a runs folder from its start until it is closed; a context manager.

    A thread waits for the process alone. No method but `close` waits for anything.
    """

    def __init__(
        self,
        address: str,
        tokens: Tokens,
        *,
        runs_dir: Path,
        connection_file: Path | None,
        of_launch: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Listens at `address`, such as `8080`, `0.0.0.0:8080` or, for any free port of the loopback interface, `0`.
        `of_launch`: see Views. `say` gets a line if the process dies. Raises HttpAddressError, OSError."""
        self._tokens = tokens
        self._arguments = ["--runs-dir", str(runs_dir.absolute())]
        if connection_file is not None:
            self._arguments += ["--connection-file", str(connection_file.absolute())]
        if of_launch:
            self._arguments.append("--of-launch")
        self._say = say
        self._listener = listen(address)
        self._closing = threading.Event()
        try:
            self._process = self._started()
        except OSError:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._look_after, name="remuda-page", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Of the process that serves."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where it is, without a token; if it listens on all interfaces, under the name of this host."""
        found = url(self._listener)
        for anywhere in ("0.0.0.0", "[::]"):  # noqa: S104 - not listened at, but replaced
            found = found.replace(f"//{anywhere}:", f"//{socket.gethostname()}:")
        return found

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self._listener)

    def link(self, right: PageRight) -> str:
        """The link that opens it with this right."""
        return link(self.url, self._tokens.operator if right == "operator" else self._tokens.viewer)

    def close(self) -> None:
        """End the process, and wait until it has gone. May be called again."""
        self._closing.set()
        while self._thread.is_alive():  # which may be starting it again just now
            if _break_off(self._process) is None:
                break  # even SIGKILL does not end it
            self._thread.join(_LOOK_S)
        self._listener.close()

    def __enter__(self) -> PageProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        listener = self._listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "remuda.page", *self._arguments, "--listener", str(listener)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=bounded(os.environ),
            pass_fds=(listener,),
            start_new_session=True,  # Ctrl-C reaches only this process, which then ends that one
        )
        first = {"viewer": self._tokens.viewer, "operator": self._tokens.operator}
        assert process.stdin is not None, "it was asked for"
        with contextlib.suppress(BrokenPipeError):  # it has died already, which the thread notices
            process.stdin.write(msgspec.json.encode(first) + b"\n")
            process.stdin.flush()
        return process

    def _look_after(self) -> None:
        while True:
            code = self._process.wait()
            if self._closing.is_set():
                return
            _break_off(self._process)
            self._say(f"the page's process ended with exit code {code}; it is started again in {RESTART_S:g} s")
            if not self._start_again():
                return

    def _start_again(self) -> bool:
        """After a pause, and after another one for as long as it cannot be started; False once this is closed."""
        while not self._closing.wait(RESTART_S):
            try:
                self._process = self._started()
            except OSError as error:
                self._say(f"the page's process cannot be started: {error}; the next attempt is in {RESTART_S:g} s")
            else:
                return True
        return False


def _break_off(process: subprocess.Popen[bytes]) -> int | None:
    """Break the pipe, at which the process ends; one that does not is killed. Returns what end_within does."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    return end_within(process, END_S)
