"""Components of an action that lie side by side and have as many values: they are computed as one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Run:
    """Neighbouring components with the same number of values."""

    values: int
    """Of each component."""
    number: int
    """Of components."""
    components: slice
    """Which they are."""
    logits: slice
    """Which logits are theirs: values * number."""


@cache
def runs_of(counts: tuple[int, ...]) -> tuple[Run, ...]:
    """The runs of components that have so many values, in order."""
    runs: list[Run] = []
    component = logit = 0
    for values, alike in itertools.groupby(counts):
        number = len(list(alike))
        own, theirs = slice(component, component + number), slice(logit, logit + values * number)
        runs.append(Run(values, number, own, theirs))
        component, logit = own.stop, theirs.stop
    return tuple(runs)
