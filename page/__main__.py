"""`python -m remuda.page`: the process that serves the page, at a lower priority than all other processes."""

from __future__ import annotations

import contextlib
import os

NICENESS = 10
"""Niceness of the page's process. Below a command with this niceness or more, the page is one nicer."""


def lower_priority() -> None:
    """Let all other processes of the run go first. The niceness of the command counts: at nice 18, on a full machine, a
    page does not answer."""
    with contextlib.suppress(OSError):
        os.nice(max(NICENESS - os.nice(0), 1))


def main() -> None:
    """Entry point."""
    lower_priority()  # before the imports, during which the workers of a launch begin
    from remuda.page import serving
    from remuda.worker.process import exit_now

    serving.main()
    exit_now(0)


if __name__ == "__main__":
    main()
