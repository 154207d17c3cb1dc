"""`python -m remuda.coordinator.monitoring`: the process that serves `/health` and `/metrics` of a coordinator.

The process knows only the snapshots of the coordinator's loop: no key, no run folder, no connection to the herd. The
end of the coordinator breaks the pipe and ends the process.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import time
from http import HTTPStatus

import msgspec

from remuda.coordinator.monitoring.metrics import CONTENT_TYPE, exposition_text, families
from remuda.coordinator.monitoring.process import LENGTH_BYTES
from remuda.coordinator.monitoring.server import Page, Server
from remuda.coordinator.monitoring.snapshot import Snapshot, health


class Pages:
    """Makes both pages from the newest snapshot."""

    def __init__(self) -> None:
        self.newest: Snapshot | None = None

    def health(self) -> Page:
        """200 if the coordinator is well, otherwise 503."""
        found = health(self.newest, time.monotonic())
        status = HTTPStatus.OK if found.is_well else HTTPStatus.SERVICE_UNAVAILABLE
        return Page(status, "application/json", msgspec.json.encode(found) + b"\n")

    def metrics(self) -> Page:
        """All metrics."""
        text = exposition_text(families(self.newest, time.monotonic()))
        return Page(HTTPStatus.OK, CONTENT_TYPE, text.encode())


async def _serve(listener: socket.socket, snapshots: socket.socket) -> None:
    pages = Pages()
    server = Server({"/health": pages.health, "/metrics": pages.metrics})
    reader, writer = await asyncio.open_connection(sock=snapshots)
    async with await server.serve(listener):
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
                pages.newest = msgspec.json.decode(await reader.readexactly(length), type=Snapshot)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the coordinator has ended
        finally:
            writer.transport.abort()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Serve the health and the metrics of a coordinator.")
    parser.add_argument("--listener", type=int, required=True, help="descriptor of a socket that listens")
    parser.add_argument("--snapshots", type=int, required=True, help="descriptor that the coordinator writes to")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the coordinator, which drains and is still asked for
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=arguments.listener) as listener, socket.socket(fileno=arguments.snapshots) as snapshots:
        asyncio.run(_serve(listener, snapshots))


if __name__ == "__main__":
    main()
