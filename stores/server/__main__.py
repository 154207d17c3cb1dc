"""`python -m remuda.stores.server`: a stream server in the foreground. Its coordinator starts it."""

from __future__ import annotations

import argparse
from pathlib import Path

from remuda.logbook.streams import best_effort_stderr
from remuda.stores.server.service import StreamServer
from remuda.wire.keys.folder import KeysFolder
from remuda.worker.shutdown_guard import ShutdownGuard

GRACE_S = 10.0


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
