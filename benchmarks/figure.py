"""Figures: ours and what it is compared with, measured by turns in one run, and whether the goal is met."""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

Measure = Callable[[], float]
"""Measures once and returns the value in the figure's unit. Warming up is its own business."""

_GOAL = re.compile(r"(>=|<=) ([0-9.]+)")


class ReferenceFailedError(Exception):
    """A reference that could not be measured here; the message says why."""


@dataclass(frozen=True)
class Goal:
    """What `ratio`, ours divided by the reference, must reach, such as `>= 2` or `<= 0.25`."""

    at_least: bool
    bound: float

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Raise ValueError for anything but `>= number` and `<= number`."""
        match = _GOAL.fullmatch(text)
        if not match:
            raise ValueError(f"a goal reads '>= 2' or '<= 0.25', not {text!r}")
        return cls(at_least=match[1] == ">=", bound=float(match[2]))

    def met(self, ratio: float) -> bool:
        """Say whether `ratio` is good enough; one that is not a number never is."""
        return ratio >= self.bound if self.at_least else ratio <= self.bound


@dataclass(frozen=True)
class Figure:
    """One measured comparison: medians of `n` runs each."""

    name: str
    unit: str
    ours: float
    reference: float
    """Not a number (null in JSON), like `ratio`, where the reference could not be measured."""
    reference_name: str
    ratio: float
    goal: str
    met: bool
    n: int
    failure: str | None = None
    """Why the reference could not be measured."""


def compare(
    name: str, *, unit: str, goal: str, ours: Measure, references: Mapping[str, Measure], n: int = 3
) -> list[Figure]:
    """Measure ours and every reference `n` times by turns and return one Figure per reference.

    The order rotates from round to round, so that none always runs on a machine that the same other one has heated.
    A reference that raises ReferenceFailedError is left out from then on and its figure says why; what ours
    raises is raised.
    """
    Goal.parse(goal)  # a typing error shows before minutes are spent
    measures: dict[str | None, Measure] = {None: ours}
    measures.update(references.items())
    values: dict[str | None, list[float]] = {who: [] for who in measures}
    failures: dict[str | None, str] = {}
    for turn in range(n):
        for who in _rotated(list(measures), turn):
            if who in failures:
                continue
            try:
                values[who].append(measures[who]())
                shown = f"{values[who][-1]:.4g} {unit}"
                print(f"{name}, {turn + 1} of {n}: {who or 'ours'} {shown}", file=sys.stderr, flush=True)
            except ReferenceFailedError as error:
                if who is None:
                    raise
                failures[who] = str(error)
                print(f"{name}: no measurement of {who}: {error}", file=sys.stderr)
    mine = statistics.median(values[None])
    return [
        _figure(name, unit, goal, ours=mine, who=who, values=values[who], n=n, failure=failures.get(who))
        for who in references
    ]


def main(figures: Callable[[bool], Iterable[Figure]]) -> None:
    """Run one figure's file from the command line: measure, with the peers if asked, and print one JSON line each, at
    once where `figures` yields them."""
    parser = argparse.ArgumentParser(description=figures.__doc__)
    parser.add_argument("--peers", action="store_true", help="measure other systems too (`make bench-peers` has them)")
    peers: bool = parser.parse_args().peers
    for figure in figures(peers):
        print(to_json(figure), flush=True)


def to_json(figure: Figure) -> str:
    """Return the figure as one line; `failure` is there only if there was one."""
    fields = msgspec.to_builtins(figure)
    if figure.failure is None:
        del fields["failure"]
    return msgspec.json.encode(fields).decode()


def _rotated(items: list[str | None], turn: int) -> list[str | None]:
    start = turn % len(items)
    return items[start:] + items[:start]


def _figure(
    name: str, unit: str, goal: str, *, ours: float, who: str, values: list[float], n: int, failure: str | None
) -> Figure:
    reference = math.nan if failure else statistics.median(values)
    ratio = ours / reference if reference else math.nan
    met = Goal.parse(goal).met(ratio)
    return Figure(name, unit, ours, reference, who, ratio, goal, met, n, failure)
