"""Where `remuda` and `python -m remuda.cli` begin, and how they end."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process; always ends by SystemExit or an unforeseen exception's traceback."""
    from remuda.cli.app import app
    from remuda.cli.errors import INTERRUPTED, exit_code

    try:
        app(prog_name="remuda")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        print(error, file=sys.stderr)
        sys.exit(code)


if __name__ == "__main__":
    main()
