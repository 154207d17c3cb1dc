"""`remuda plot` and `remuda league`: learning curves, and ratings and games of a league."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.chosen_policy import require_run
from remuda.cli.errors import InputError
from remuda.cli.options import AsJson

if TYPE_CHECKING:
    from remuda.client.plots.curves import Axes, Group, Panel

EXAMPLE = "remuda plot runs/cartpole_dqn runs/cartpole_ppo --smooth 3 -o curves.png"

Folders = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN_DIR",
        help="Run folders, folders of run folders, or parts of their names.",
    ),
]
X = Annotated[str, typer.Option("-x", "--xaxis", metavar="COLUMN", help="Column of progress.txt for the x axis.")]
Y = Annotated[
    list[str] | None,
    typer.Option(
        "-y",
        "--value",
        metavar="COLUMN",
        help="Column for the y axis (default: Performance, the evaluation return if there is one); repeatable.",
    ),
]
Smooth = Annotated[
    int, typer.Option("-s", "--smooth", min=1, metavar="ROWS", help="Average each run over this number of rows.")
]
Legend = Annotated[
    list[str] | None,
    typer.Option("-l", "--legend", metavar="LABEL", help="Once per RUN_DIR: all runs in it become one curve."),
]
Select = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="Only runs with TEXT in their path; repeatable.")
]
Exclude = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="No run with TEXT in its path; repeatable.")]
EstimatorOption = Annotated[
    Literal["mean", "median", "max", "min"], typer.Option(help="How the seeds of a curve are combined.")
]
Count = Annotated[bool, typer.Option("--count", help="One curve per run instead of one for all seeds.")]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="A .png, .pdf or .svg file.")]
AsCurves = Annotated[bool, typer.Option("--json", help="Print the curves as JSON instead of drawing them.")]


def plot(
    folders: Folders,
    x: X = "TotalEnvInteracts",
    y: Y = None,
    smooth: Smooth = 1,
    legend: Legend = None,
    select: Select = None,
    exclude: Exclude = None,
    estimator: EstimatorOption = "mean",
    count: Count = False,
    output: Output = Path("plot.png"),
    as_json: AsCurves = False,
) -> None:
    """Draw learning curves from progress.txt of one or many runs.

    Runs that differ only in the seed become one curve: their mean, and a band of one standard deviation. Runs may have
    rows at different positions. The curve is faint at positions without values of all runs.
    """
    from remuda.client.plots.curves import PERFORMANCE, Axes, make_panels

    axes = Axes(x, y or [PERFORMANCE], smooth, estimator)
    if legend and count:
        raise InputError("give only one of --legend (a curve per RUN_DIR) and --count (a curve per run)")
    expanded = _expanded(folders, repeated=any((y, legend, select, exclude)))
    panels = make_panels(_groups(expanded, legend or [], select or [], exclude or [], count=count), axes)
    for panel in panels:
        for run in panel.missing:
            print(f"{run.root} has no value of {panel.y} yet and is left out", file=sys.stderr)
    if as_json:
        print(_json(panels, axes))
    else:
        _draw(panels, output, axes)


def _expanded(folders: Sequence[str], *, repeated: bool) -> list[Path]:
    """The folders for the arguments; `repeated`: a repeatable option was given."""
    from remuda.client.plots.runs import PlotError, expand

    try:
        return expand(folders)
    except PlotError as error:
        hint = "\nIf this is a second value of an option: repeat the option for each value, as in -y A -y B"
        raise InputError(f"{error}{hint if repeated else ''}") from error


def _groups(
    folders: Sequence[Path], legend: Sequence[str], select: Sequence[str], exclude: Sequence[str], *, count: bool
) -> list[Group]:
    from remuda.client.plots.curves import by_legend, by_settings, one_by_one
    from remuda.client.plots.runs import find_runs

    runs = find_runs(folders, select=select, exclude=exclude)
    if legend:
        return by_legend(runs, legend, len(folders))
    return one_by_one(runs) if count else by_settings(runs)


def _draw(panels: Sequence[Panel], output: Path, axes: Axes) -> None:
    from remuda.client.plots.picture import draw

    with _drawing(output):
        draw(panels, output, estimator=axes.estimator)
    for panel in panels:
        told = ", ".join(f"{curve.label} ({curve.runs})" for curve in panel.curves)
        print(f"{panel.y} over {panel.x}: {told}", file=sys.stderr)
    print(output)


@contextmanager
def _drawing(output: Path) -> Generator[None]:
    """Explain failures to draw. Raises InputError."""
    from remuda.client.plots.picture import FORMATS

    if output.suffix.lower() not in FORMATS:
        raise InputError(f"{output}: the name of the picture must end in one of {', '.join(FORMATS)}")
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("matplotlib"):
            raise
        raise InputError(
            "drawing needs matplotlib: pip install 'remuda[plot]' (--json prints the numbers instead)"
        ) from error
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from error


def _json(panels: Sequence[Panel], axes: Axes) -> str:
    content = {
        "estimator": axes.estimator,
        "smooth": axes.smooth,
        "panels": [
            {
                "x": panel.x,
                "y": panel.y,
                "curves": [
                    {
                        "label": curve.label,
                        "runs": curve.runs,
                        **{
                            name: [value if math.isfinite(value) else None for value in getattr(curve, name).tolist()]
                            for name in ("x", "y", "low", "high", "count")
                        },
                    }
                    for curve in panel.curves
                ],
            }
            for panel in panels
        ],
    }
    return json.dumps(content)


LEAGUE_EXAMPLE = "remuda league runs/tic_tac_toe_league -o league.png"

RunArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]
LeagueOutput = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Also draw a .png, .pdf or .svg file.")
]


def league(run_dir: RunArgument, output: LeagueOutput = None, as_json: AsJson = False) -> None:
    """Show the pool of a league, best first: ratings with intervals, and the games of each against each.

    Columns with numbers are the percentage of games won against the member in that place, draws as halves. `-o` draws
    the ratings of all evaluated checkpoints over time, and the matrix of the games. `--json` prints league.json.
    """
    require_run(run_dir)
    from remuda.client.plots.league import draw_league, read_league, table
    from remuda.storage.run_folder import RunFolder

    known = read_league(run_dir)
    print(RunFolder(run_dir).league.read_text() if as_json else table(known))
    if not as_json:
        begun_again = known.resets_before + len(known.resets)
        print(f"{known.games} games; exploiters began again {begun_again} times", file=sys.stderr)
    if output is not None:
        with _drawing(output):
            draw_league(known, run_dir, output)
        print(output)
