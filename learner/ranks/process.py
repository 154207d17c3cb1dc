"""A learner rank besides rank 0, as a process of the learner's machine: rank 0 starts it, and it ends with it."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import traceback

from remuda.learner.ranks.following import Here, serve_leases
from remuda.learner.ranks.local_line import LocalLine
from remuda.policy.ranks import RankLostError
from remuda.worker.threads import bound_threads

EXIT_FAILED = 1


def main() -> None:
    """Entry point of `python -m remuda.learner.ranks.process`."""
    parser = argparse.ArgumentParser(description="Learn with rank 0 of a learner, which starts this process.")
    parser.add_argument("--line", type=int, required=True, help="file descriptor of the socket to rank 0")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, required=True, help="seconds that rank 0 may take to answer")
    given = parser.parse_args()
    line = LocalLine(socket.socket(fileno=given.line), "learner rank 0", given.timeout_s)
    ending = threading.Thread(target=_end_with_rank_0, args=(line,), name="remuda-lifeline", daemon=True)
    ending.start()
    bound_threads()
    try:
        serve_leases(line, Here(given.rank, "", os.getpid()), local_rank=given.rank)
    except Exception as error:
        if isinstance(error, RankLostError) and line.is_broken():
            ending.join()  # rank 0 is gone: that is no error of this one, and the thread ends the process
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(EXIT_FAILED)


def _end_with_rank_0(line: LocalLine) -> None:
    """End this process at once when rank 0 ends, however it ends: it holds nothing that would be lost."""
    line.wait_until_broken()
    os._exit(0)


if __name__ == "__main__":
    main()
