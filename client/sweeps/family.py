"""A population's results: a table of its members, the tree of its lineage, and a picture of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tabulate import tabulate

from remuda.client.progress import number
from remuda.client.sweeps.lineage import Lineage, Origin
from remuda.client.sweeps.population import setting_text
from remuda.client.sweeps.record import RunRecord
from remuda.wire.messages import CheckpointRecord

# matplotlib's annotations are partial.
# pyright: reportUnknownMemberType=false

PICTURE = "lineage.png"
_SHA_SHOWN = 12


@dataclass
class Relative:
    """A run of the lineage."""

    birth: Origin
    ends: list[CheckpointRecord | None] = field(default_factory=list[CheckpointRecord | None])
    """Last checkpoint of each interval; None for an interval that failed."""
    until_env_steps: list[int] = field(default_factory=list[int])
    """Planned end of each interval, also of an interval under way, which has no entry in `ends`."""
    children: list[Relative] = field(default_factory=list["Relative"])
    """In the order of their births."""
    is_member: bool = False
    """False for a replaced run."""

    @property
    def evaluated(self) -> list[tuple[int, float]]:
        """Steps and returns from its beginning on."""
        known = [end for end in (self.birth.checkpoint, *self.ends) if end is not None]
        return [(end.env_step, end.reward) for end in known if end.reward is not None]


def relatives(lineage: Lineage) -> list[Relative]:
    """Return all runs in the order of their births, with their children."""
    found: dict[str, Relative] = {}
    for interval in lineage.intervals:
        for origin, end in zip(interval.origins, interval.ends or [None] * len(interval.origins), strict=True):
            if origin.run not in found:
                found[origin.run] = Relative(origin)
                if origin.parent is not None:
                    found[origin.parent].children.append(found[origin.run])
            found[origin.run].until_env_steps.append(interval.until_env_step)
            if interval.ends:
                found[origin.run].ends.append(end)
    for origin in lineage.intervals[-1].origins if lineage.intervals else ():
        found[origin.run].is_member = True
    return list(found.values())


def members(lineage: Lineage, records: Mapping[str, RunRecord]) -> list[tuple[Origin, RunRecord]]:
    """Return the members with the records of their runs, by their newest returns, the best first."""
    present = [(origin, records[origin.run]) for interval in lineage.intervals[-1:] for origin in interval.origins]
    return sorted(present, key=lambda one: math.inf if one[1].last_return is None else -one[1].last_return)


def members_table(lineage: Lineage, records: Mapping[str, RunRecord]) -> str:
    """Format a line per member."""
    present, births = members(lineage, records), {one.birth.run: one.birth for one in relatives(lineage)}
    rows = [
        (
            origin.run,
            record.state,
            births[origin.run].parent or "-",
            record.env_step,
            number(record.last_return),
            *(setting_text(value) for value in origin.settings.values()),
        )
        for origin, record in present
    ]
    headers = ("run", "state", "parent", "env_step", "return", *(present[0][0].settings if present else ()))
    return tabulate(rows, headers, disable_numparse=True)


def tree(lineage: Lineage) -> str:
    """Format the lineage: a line per run below the run whose checkpoint it began from."""
    roots = [one for one in relatives(lineage) if one.birth.parent is None]
    return "\n".join(line for one in roots for line in _lines(one, "", ""))


def _lines(one: Relative, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{_described(one)}"
    for child in one.children:
        last = child is one.children[-1]
        yield from _lines(child, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")


def _described(one: Relative) -> str:
    origin, known = one.birth.checkpoint, [end for end in one.ends if end is not None]
    settings = " ".join(f"{key.rpartition('.')[2]}={setting_text(value)}" for key, value in one.birth.settings.items())
    sha256 = "" if origin is None else f" {origin.file} {origin.sha256[:_SHA_SHOWN]}"
    begins = "0" if origin is None else f"{origin.env_step} ({number(origin.reward)})"
    ends = f"{known[-1].env_step} ({number(known[-1].reward)})" if known else "…"
    fate = "" if one.is_member else ", replaced"
    failed = ", failed" if one.ends and one.ends[-1] is None else ""
    return f"{one.birth.run}{sha256} {settings} env_step {begins} to {ends}{failed}{fate}"


def draw(folder: Path, lineage: Lineage, *, log: bool) -> Path | None:
    """Write lineage.png into the sweep's folder: return over steps, a line per run from its origin on, in the colour of
    its first setting (with `log` by the logarithm). Returns its path, or None without matplotlib or results."""
    try:
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LogNorm, Normalize
        from matplotlib.figure import Figure
    except ImportError:
        return None
    runs = [one for one in relatives(lineage) if one.evaluated]
    if not runs:
        return None
    key = next(iter(runs[0].birth.settings))
    shown: list[Any] = [one.birth.settings[key] for one in runs]
    if not all(type(value) in (int, float) for value in shown):
        choices = list(dict.fromkeys(map(str, shown)))
        shown, log = [choices.index(str(value)) for value in shown], False
    scale: Any = (LogNorm if log else Normalize)(min(shown), max(shown))
    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axes, colours = figure.add_subplot(), cast("Any", colormaps["viridis"])
    for one, value in zip(runs, shown, strict=True):
        at, returns = zip(*one.evaluated, strict=True)
        colour = colours(scale(value))
        axes.plot(at, returns, color=colour, alpha=1.0 if one.is_member else 0.5)
        if one.birth.checkpoint is not None:
            axes.plot(at[:1], returns[:1], "o", color=colour)
        if not one.is_member:
            axes.plot(at[-1:], returns[-1:], "x", color=colour)
    axes.set_xlabel("env_step")
    axes.set_ylabel("mean evaluation return")
    axes.set_title("each line a run; ● goes on from another's checkpoint, x replaced", fontsize="small")
    figure.colorbar(ScalarMappable(scale, colours), ax=axes, label=key)
    path = folder / PICTURE
    figure.savefig(path, dpi=100)
    return path
