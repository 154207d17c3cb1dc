"""Runs that several figures look at: each seed is run once by every side, all sides by turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from remuda.benchmarks.figure import Measure, ReferenceFailedError


@dataclass(frozen=True)
class Run:
    """One training run until its evaluations reach the value; both infinite for one that does not get there."""

    seconds: float
    """From the start of training."""
    env_steps: float


class Rounds:
    """Plays a round, one run of each side with the same seed, when the first figure asks for it, and remembers it.

    The seeds are 0, 1, 2 and so on. The order rotates from round to round, as in `compare`. A side that raises
    ReferenceFailedError is left out from then on, and each measure of it raises the same; other errors are raised.
    """

    def __init__(self, sides: Mapping[str, Callable[[int], Run]]) -> None:
        self._sides = dict(sides)
        self._runs: dict[str, list[Run]] = {side: [] for side in sides}
        self._failures: dict[str, ReferenceFailedError] = {}
        self._played = 0

    def measure(self, side: str, what: Callable[[Run], float]) -> Measure:
        """Return a measure that says `what` of the side's run with seed 0, at the next call with seed 1, and so on."""
        seeds = itertools.count()
        return lambda: what(self._run(side, next(seeds)))

    def _run(self, side: str, seed: int) -> Run:
        while self._played <= seed:
            self._play(self._played)
            self._played += 1
        runs = self._runs[side]
        if seed >= len(runs):
            raise self._failures[side]
        return runs[seed]

    def _play(self, seed: int) -> None:
        order = list(self._sides)
        start = seed % len(order)
        for side in order[start:] + order[:start]:
            if side in self._failures:
                continue
            try:
                self._runs[side].append(self._sides[side](seed))
            except ReferenceFailedError as error:
                self._failures[side] = error
