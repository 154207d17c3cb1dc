"""`python -m remuda.page`: the process that serves the page, at a lower priority than all other processes."""

from __future__ import annotations

import contextlib
import os

NICENESS = 10


def main() -> None:
    """Entry point."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)  # before the imports, during which the workers of a launch begin
    from remuda.page import serving
    from remuda.worker.process import exit_now

    serving.main()
    exit_now(0)


if __name__ == "__main__":
    main()
