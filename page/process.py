"""The page from the side of commands: process, tokens of links, and the file with the last address."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import subprocess
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from remuda.coordinator.monitoring.address import is_loopback, listen, url
from remuda.storage.atomic import write_bytes
from remuda.storage.untrusted import NotPrivateError, read_private
from remuda.wire.child_end import end_within
from remuda.wire.keys.pair import KeyPair
from remuda.wire.messages import Uuid
from remuda.worker.process import child_environment

PageRight = Literal["viewer", "operator"]
"""Right of a token, as of a key: a viewer reads, an operator also acts."""
_PURPOSE = "remuda: token of the page, right "
_SCHEME = "bearer"
_BYTES = 32
FILE = "page.json"
_MODE = 0o600
_MOST_BYTES = 4_096
INSTALL = "pip install 'remuda[page]'"
RESTART_S = 10.0
"""Least seconds between two starts of a dying process."""
END_S = 5.0
_LOOK_S = 0.1
_NEEDED = ("starlette", "uvicorn")


@dataclass(frozen=True)
class Tokens:
    """A token for each right, hidden from the text forms of the object."""

    viewer: str = field(repr=False)
    operator: str = field(repr=False)

    @staticmethod
    def of(key: KeyPair) -> Tokens:
        """Derive the tokens from this key."""
        return Tokens(_token(key, "viewer"), _token(key, "operator"))

    @staticmethod
    def fresh() -> Tokens:
        """Create random tokens."""
        return Tokens(secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES))

    def right(self, authorization: str | None) -> PageRight | None:
        """Return the right of the header `Authorization: Bearer TOKEN`; None for any other text."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != _SCHEME:
            return None
        shown = token.strip().encode("utf-8", "surrogateescape")
        if hmac.compare_digest(shown, self.operator.encode()):
            return "operator"
        return "viewer" if hmac.compare_digest(shown, self.viewer.encode()) else None


def link(address: str, token: str) -> str:
    """Return the link that opens a page. The part after `#` stays in the browser, out of servers and logs."""
    return f"{address}/#token={token}"


def _token(key: KeyPair, right: PageRight) -> str:
    digest = hmac.digest(key.secret, f"{_PURPOSE}{right}".encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


class Address(Struct, frozen=True):
    """Content of the file."""

    coordinator: Uuid
    """UUID of the page's coordinator."""
    serving: bool
    """False after a regular end."""
    url: Annotated[str, Meta(pattern=r"^http://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}\Z", max_length=300)]


class AddressFile:
    """The file of a folder of keys, without tokens."""

    def __init__(self, keys_dir: Path) -> None:
        self._path = keys_dir / FILE

    @property
    def address(self) -> Address | None:
        """Content; None for a missing or damaged file."""
        try:
            return msgspec.json.decode(read_private(self._path, most_bytes=_MOST_BYTES), type=Address)
        except (OSError, NotPrivateError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    @property
    def port(self) -> int | None:
        """Port of the last page, also after its end."""
        address = self.address
        try:
            return None if address is None else urlsplit(address.url).port
        except ValueError:  # above 65535
            return None

    def url_of(self, coordinator: str) -> str | None:
        """Return the address of this coordinator's page; None without a served page."""
        found = self.address
        return found.url if found is not None and found.serving and found.coordinator == coordinator else None

    def write(self, url: str, coordinator: str, *, serving: bool) -> None:
        """Raises OSError."""
        content = msgspec.json.encode(Address(coordinator, serving, url))
        write_bytes(self._path, content + b"\n", durable=False, mode=_MODE)


def is_installed() -> bool:
    """Return True if the packages for serving a page are installed."""
    return all(find_spec(name) is not None for name in _NEEDED)


class PageProcess:
    """Serves the page of a runs folder until `close`; a context manager.

    A thread waits for the process. Only `close` blocks.
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
        """Listen at `address`, for instance `8080`, `0.0.0.0:8080` or, for any free port of the loopback interface,
        `0`.

        `of_launch`: see Views. `say` receives a line about a dead process. Raises HttpAddressError, OSError.
        """
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
        """Process id of the server."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Address without a token; with the name of this host for a server on all interfaces."""
        found = url(self._listener)
        for anywhere in ("0.0.0.0", "[::]"):  # noqa: S104 - not listened at, but replaced
            found = found.replace(f"//{anywhere}:", f"//{socket.gethostname()}:")
        return found

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches the page."""
        return is_loopback(self._listener)

    def link(self, right: PageRight) -> str:
        return link(self.url, self._tokens.operator if right == "operator" else self._tokens.viewer)

    def close(self) -> None:
        """End the process, and wait for the end. May be called again."""
        self._closing.set()
        while self._thread.is_alive():  # the thread may be restarting it
            if _break_off(self._process) is None:
                break  # even SIGKILL failed
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
            env=child_environment(os.environ),
            pass_fds=(listener,),
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the other
        )
        first = {"viewer": self._tokens.viewer, "operator": self._tokens.operator}
        assert process.stdin is not None, "it was asked for"
        with contextlib.suppress(BrokenPipeError):  # already dead; the thread notices
            process.stdin.write(msgspec.json.encode(first) + b"\n")
            process.stdin.flush()
        return process

    def _look_after(self) -> None:
        while True:
            code = self._process.wait()
            if self._closing.is_set():
                return
            _break_off(self._process)
            self._say(f"the page's process ended with exit code {code}; it restarts in {RESTART_S:g} s")
            if not self._start_again():
                return

    def _start_again(self) -> bool:
        """Start the process after a pause, repeatedly until success; return False once closed."""
        while not self._closing.wait(RESTART_S):
            try:
                self._process = self._started()
            except OSError as error:
                self._say(f"the page's process cannot be started: {error}; the next attempt is in {RESTART_S:g} s")
            else:
                return True
        return False


def _break_off(process: subprocess.Popen[bytes]) -> int | None:
    """Close the pipe, which ends the process; kill a process that stays. Returns the result of end_within."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    return end_within(process, END_S)
