"""`remuda league`: ratings and games of a league."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from remuda.cli.chosen_policy import require_run
from remuda.cli.errors import InputError
from remuda.cli.options import AsJson

EXAMPLE = "remuda league runs/tic_tac_toe_league -o league.png"

RunArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Also draw a .png, .pdf or .svg file.")
]


def league(run_dir: RunArgument, output: Output = None, as_json: AsJson = False) -> None:
    """Show the pool of a league, best first: ratings with intervals, and the games of each against each.

    Columns with numbers are the percentage of games won against the member in that place, draws as halves. `-o` draws
    the ratings of all evaluated checkpoints over time, and the matrix of the games. `--json` prints league.json.
    """
    require_run(run_dir)
    from remuda.client.plots.league import draw_league, read_league, table
    from remuda.client.plots.picture import FORMATS
    from remuda.client.plots.runs import PlotError
    from remuda.storage.run_folder import RunFolder

    try:
        known = read_league(run_dir)
        print(RunFolder(run_dir).league.read_text() if as_json else table(known))
        if not as_json:
            begun_again = known.resets_before + len(known.resets)
            print(f"{known.games} games; exploiters began again {begun_again} times", file=sys.stderr)
        if output is None:
            return
        if output.suffix.lower() not in FORMATS:
            raise InputError(f"{output}: the name of the picture must end in one of {', '.join(FORMATS)}")
        draw_league(known, run_dir, output)
    except PlotError as error:
        raise InputError(str(error)) from error
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("matplotlib"):
            raise
        raise InputError("drawing needs matplotlib: pip install 'remuda[plot]'") from error
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from error
    print(output)
