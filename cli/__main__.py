"""Where `remuda` and `python -m remuda.cli` begin, and how they end."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process; always ends by SystemExit or an unforeseen exception's traceback."""
    try:
        from remuda.cli.errors import InputError
        from remuda.cli.former_options import refusal

        if said := refusal(sys.argv[1:]):
            raise InputError(said)
        from remuda.cli.app import app  # takes a while, in which somebody may change their mind

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
