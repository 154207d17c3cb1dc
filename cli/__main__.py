"""Where `remuda` and `python -m remuda.cli` begin, and how they end."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import NoReturn

INTERRUPTED = 130


def run() -> NoReturn:
    """Run the command line of this process, and end the process; an unexpected exception ends it with a traceback."""
    end = SystemExit()
    try:
        main(starts_early=True)
    except SystemExit as raised:
        end = raised
    from remuda.worker.quick_exit import exit_code, exit_now

    exit_now(exit_code(end))


def main(*, starts_early: bool = False) -> None:
    """Run the command line; ends with SystemExit, or with an unexpected exception.

    `starts_early`: a process that this command will need is started before the command line is read."""
    try:
        from remuda.cli.errors import InputError
        from remuda.cli.former_options import refusal

        if said := refusal(sys.argv[1:]):
            raise InputError(said)
        from remuda.cli.early_nanny import early_nanny

        with early_nanny(sys.argv[1:]) if starts_early else nullcontext() as nanny:
            from remuda.cli.app import app  # takes a while, and Ctrl-C may come meanwhile

            app(prog_name="remuda", obj=nanny)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        from remuda.cli.errors import exit_code

        code = exit_code(error)
        if code is None:
            raise
        from remuda.logbook.lines import unforgeable

        print(unforgeable(str(error)), file=sys.stderr)
        sys.exit(code)


if __name__ == "__main__":
    run()
