"""Where `remuda` and `python -m remuda.cli` begin, and how they end."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process; ends with SystemExit, or with the traceback of an unexpected exception."""
    try:
        from remuda.cli.errors import InputError
        from remuda.cli.former_options import refusal

        if said := refusal(sys.argv[1:]):
            raise InputError(said)
        from remuda.cli.app import app  # takes a while, and Ctrl-C may come meanwhile

        app(prog_name="remuda")
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
    main()
