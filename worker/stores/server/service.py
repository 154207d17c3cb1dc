"""The stream server's loop: poll, decode, write or read a piece, answer."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from remuda.logbook.lines import unforgeable
from remuda.logbook.streams import best_effort_stderr
from remuda.wire.codec import Frame
from remuda.wire.door import Door
from remuda.wire.keys.authorized import AuthorizedKeys, Grants
from remuda.wire.keys.folder import KeysFolder
from remuda.wire.keys.secret_file import KeyFileError
from remuda.wire.messages import shortened
from remuda.wire.streams import (
    Cancel,
    FromServer,
    FromWorker,
    Get,
    LogAppend,
    LogHas,
    Piece,
    Put,
    ReceivedMessage,
    Refused,
    StreamRouter,
    Took,
)
from remuda.worker.shutdown_guard import ShutdownGuard
from remuda.worker.stores.server.downloads import Downloads
from remuda.worker.stores.server.granted_paths import GrantedPaths, NotAllowedError, RunIsOverError
from remuda.worker.stores.server.uploads import Uploads, append

WAIT_S = 0.2
TICK_S = 1.0
LOOK_INTERVAL_S = 0.5
"""Between two looks at the list of keys."""
COMPLAINT_INTERVAL_S = 5.0
"""Between two lines about who was refused."""
GRACE_S = 10.0


class StreamServer:
    """Writes and reads files of runs for workers without the runs folder.

    Has one thread: a hanging disk holds up all streams, but no coordinator. All state is in the files: after a restart,
    workers repeat unfinished transfers.
    """

    def __init__(
        self, runs_dir: Path, keys: KeysFolder, address: str, listener: int | None = None, refusals: int | None = None
    ) -> None:
        """Bind to `address`, or take the listening descriptor `listener`. `refusals` is the writing end of a
        non-blocking pipe, which gets a line of JSON (RefusalCounts) after refusals. Raises zmq.ZMQError, KeyFileError
        and NoCurveError."""
        self._authorized = AuthorizedKeys(keys.authorized)
        self._authorized.look()
        self._places = GrantedPaths(runs_dir, Grants(keys.server))
        door = Door(keys.server, self._authorized)
        self._refusals = door.refusals
        self._refusals_pipe = refusals
        self._refusals_told = 0
        self._socket = StreamRouter(address, door, listener)
        self._uploads = Uploads(self._answer)
        self._downloads = Downloads(self._socket.say)
        self._next_look_s = self._next_tick_s = self._next_refusals_s = 0.0

    @property
    def address(self) -> str:
        """Bound address, with the real port."""
        return self._socket.address

    def watch(self, descriptor: int) -> None:
        """Let `turn` also return when this descriptor becomes readable."""
        self._socket.watch(descriptor)

    def run(self, done: Callable[[], bool]) -> None:
        """Serve until `done`."""
        while not done():
            self.turn(WAIT_S)

    def turn(self, timeout_s: float) -> None:
        """Wait for messages, at most `timeout_s`, and handle them."""
        self._socket.wait(timeout_s)
        now_s = time.monotonic()
        for each in self._socket.take():
            self._handle(each, now_s)
        self._look_after(now_s)

    def close(self) -> None:
        """Close the socket and all files. May be called again."""
        self._uploads.close()
        self._downloads.close()
        self._socket.close()

    def _handle(self, said: ReceivedMessage, now_s: float) -> None:
        try:
            self._do(said.peer, said.message, said.data, now_s)
        except RunIsOverError as error:
            self._answer(said.peer, Refused(said.message.transfer, str(error), again=False))
        except NotAllowedError as error:
            self._refusals.note("forbidden", f"the key {said.name}: {type(said.message).__name__}")
            self._answer(said.peer, Refused(said.message.transfer, shortened(str(error)), again=False))
        except OSError as error:
            self._answer(said.peer, Refused(said.message.transfer, shortened(str(error)), again=True))

    def _do(self, peer: bytes, message: FromWorker, data: Sequence[Frame], now_s: float) -> None:
        match message:
            case Piece():
                self._uploads.piece(peer, message, data[0], now_s)
            case Took():
                self._downloads.took(peer, message.transfer, message.below, now_s)
            case Put():
                self._uploads.put(peer, message, data, self._places.to_write(message), now_s)
            case Get():
                self._downloads.get(peer, message, self._places.to_read(message), now_s)
            case LogAppend():
                size = append(self._places.log(message.grant), message.offset, data[0])
                self._answer(peer, LogHas(message.transfer, size))
            case Cancel():
                self._uploads.cancel(peer, message.transfer, now_s)
                self._downloads.cancel(peer, message.transfer)

    def _look_after(self, now_s: float) -> None:
        self._socket.look_after(now_s)
        if now_s >= self._next_tick_s:
            self._next_tick_s = now_s + TICK_S
            self._uploads.tick(now_s)
            self._downloads.tick(now_s)
            self._socket.forget_gone()
            self._tell_refusals()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_INTERVAL_S
            try:
                self._socket.hang_up(self._authorized.look())
            except KeyFileError as error:
                _print(str(error))
        if now_s >= self._next_refusals_s and (news := self._refusals.news()) is not None:
            self._next_refusals_s = now_s + COMPLAINT_INTERVAL_S
            _print(f"the stream server {news}")

    def _tell_refusals(self) -> None:
        """Report refusals to the coordinator, for its own count. Tries again after a full or closed pipe."""
        if self._refusals_pipe is None or self._refusals.total == self._refusals_told:
            return
        total, line = self._refusals.total, msgspec.json.encode(self._refusals.counts) + b"\n"
        with contextlib.suppress(OSError):
            os.write(self._refusals_pipe, line)
            self._refusals_told = total

    def _answer(self, peer: bytes, message: FromServer) -> None:
        """Send an answer; a worker whose answer is lost asks again."""
        self._socket.say(peer, message)


def _print(text: str) -> None:
    """Print a line to the coordinator's output, which may be gone."""
    with contextlib.suppress(OSError):
        print(unforgeable(text), file=sys.stderr, flush=True)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Serve files of runs to workers that do not see them.")
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--keys-dir", type=Path, required=True)
    parser.add_argument("--address", required=True, help="what the listener is bound to")
    parser.add_argument("--listener", type=int, required=True, help="file descriptor of a socket that listens")
    parser.add_argument("--lifeline", type=int, required=True, help="file descriptor whose end means: stop")
    parser.add_argument("--refusals", type=int, default=None, help="file descriptor that is told how many were refused")
    arguments = parser.parse_args()
    with best_effort_stderr(), ShutdownGuard(lifeline=arguments.lifeline, grace_s=GRACE_S) as guard:
        keys = KeysFolder(arguments.keys_dir)
        server = StreamServer(arguments.runs_dir, keys, arguments.address, arguments.listener, arguments.refusals)
        try:
            server.run(lambda: guard.ending)
        finally:
            server.close()


if __name__ == "__main__":
    main()
