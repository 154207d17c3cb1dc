"""Ratings and games of a league: as a table, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tabulate import tabulate

from remuda.client.plots.picture import COLOURS, DOTS_PER_INCH, STYLE
from remuda.client.plots.runs import FloatArray, PlotError, read_progress
from remuda.storage.run_folder import RunFolder, folder_of_policy
from remuda.storage.untrusted import read_bounded

_MOST_BYTES = 16 << 20
_RATING = ("TestEnvInteracts", "AverageTestRating", "MinTestRating", "MaxTestRating")


class Member(msgspec.Struct, frozen=True):
    """A checkpoint of the pool."""

    name: str
    env_step: int
    rating: float
    rating_low: float
    rating_high: float


class Policy(msgspec.Struct, frozen=True):
    """A policy of the league."""

    name: str
    exploits: str | None
    """None: a main policy."""


class League(msgspec.Struct, frozen=True):
    """Content of league.json, as far as people read it."""

    policies: list[Policy]
    games: int
    members: list[Member]
    matrix: list[list[tuple[int, int, int] | None]]
    """Won, drawn and lost games of a member (row) against a member (column); None without games."""
    matches: list[list[float]]
    """Of each policy: shares of its episodes by opponent: the newest version of each policy, then the members."""
    resets: list[dict[str, Any]]
    """Exploiters that began again, the newest."""
    resets_before: int = 0


def read_league(run_dir: Path) -> League:
    """Read the league of a run. Raises PlotError."""
    path = RunFolder(run_dir).league
    try:
        return msgspec.json.decode(read_bounded(path, most_bytes=_MOST_BYTES), type=League)
    except FileNotFoundError as error:
        raise PlotError(f"{path} does not exist: the run has no self_play.league, or no evaluation is over") from error
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise PlotError(f"{path} cannot be read: {error}") from error


def table(league: League) -> str:
    """Return the members, best first, with the share of won games (draws as halves) against each, in percent."""
    order = sorted(range(len(league.members)), key=lambda at: -league.members[at].rating)
    rows = [
        [
            place,
            league.members[at].name,
            league.members[at].env_step,
            f"{league.members[at].rating:.1f}",
            f"{league.members[at].rating_low:.1f} to {league.members[at].rating_high:.1f}",
            *(_percent(league.matrix[at][other]) for other in order),
        ]
        for place, at in enumerate(order, 1)
    ]
    headers = ["", "checkpoint", "env_step", "rating", "interval", *map(str, range(1, len(order) + 1))]
    return tabulate(rows, headers=headers, tablefmt="plain", disable_numparse=True, colalign=["right"])


def draw_league(league: League, run_dir: Path, path: Path) -> None:
    """Draw the ratings of all evaluated checkpoints with intervals, and the games of the pool. Raises ImportError
    without matplotlib, and OSError."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    library: Any = matplotlib  # its own annotations leave every **kwargs unknown
    with library.rc_context(STYLE):
        figure: Any = Figure(figsize=(11.5, 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        for policy, colour in zip(league.policies, COLOURS, strict=False):
            _draw_ratings(left, policy, _ratings(folder_of_policy(run_dir, policy.name).progress), colour)
        left.set_xlabel("Environment steps")
        left.set_ylabel("Rating")
        if len(league.policies) > 1:
            left.legend()
        _draw_matrix(figure, right, league)
        figure.savefig(path, dpi=DOTS_PER_INCH)


def _draw_ratings(axes: Any, policy: Policy, ratings: Sequence[FloatArray], colour: str) -> None:
    steps, middle, low, high = ratings
    label = f"{policy.name} (exploits {policy.exploits})" if policy.exploits else policy.name
    axes.fill_between(steps, low, high, color=colour, alpha=0.14, linewidth=0)
    axes.plot(steps, middle, color=colour, linewidth=1.8, marker=".", label=label)


def _draw_matrix(figure: Any, axes: Any, league: League) -> None:
    won = np.array([[_share(pair) for pair in row] for row in league.matrix], dtype=float)
    drawn = axes.imshow(won, cmap="RdBu", vmin=0.0, vmax=1.0)
    names = [member.name.replace("iteration_", "") for member in league.members]
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.grid(visible=False)
    for row, column in np.argwhere(np.isfinite(won)):
        axes.text(column, row, f"{100 * won[row, column]:.0f}", ha="center", va="center", fontsize=7)
    axes.set_title("Games won by the row, in percent", fontsize=10)
    figure.colorbar(drawn, ax=axes, shrink=0.8)


def _ratings(progress: Path) -> list[FloatArray]:
    """Return steps, middle, lower and upper bound of the ratings in a table. Raises PlotError."""
    columns = read_progress(progress)
    found = [columns.get(name, np.zeros(0)) for name in _RATING]
    rated = np.isfinite(found[1])
    return [column[rated] for column in found]


def _share(pair: tuple[int, int, int] | None) -> float:
    return float("nan") if pair is None else (pair[0] + 0.5 * pair[1]) / sum(pair)


def _percent(pair: tuple[int, int, int] | None) -> str:
    return "-" if pair is None else f"{100 * _share(pair):.0f}"
