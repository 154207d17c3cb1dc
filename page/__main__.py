"""`python -m remuda.page`: the process that serves the page, at a lower priority than all other processes."""

from __future__ import annotations

import contextlib
import os

NICENESS = 10
"""Of the page's process; of commands that are at a low priority themselves the page is only one below."""


def lower_priority() -> None:
    """Let all other processes of the run go first. A page whose command is nice already is not lowered by another 10:
    on a full machine a page at nice 18 does not answer."""
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
