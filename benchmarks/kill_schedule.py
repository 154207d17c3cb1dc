"""Who is killed when: drawn from a seed, so that anybody can kill the same roles at the same moments."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

VICTIMS = ("coordinator", "collector", "evaluator", "learner")
"""The processes of a herd."""


@dataclass(frozen=True)
class Kill:
    """One kill -9, or another thing that takes something away."""

    at_s: float
    """Since the begin of what is measured."""
    role: str
    """Of the process that is killed; or what else is hit, such as the link of a host."""
    choice: float
    """Which of those there are, as a share of their list."""


def kill_schedule(seed: int, duration_s: float, interval_s: float, victims: Sequence[str] = VICTIMS) -> list[Kill]:
    """One kill in each interval, at a random moment of its middle quarter; each victim before any is hit again."""
    chance = random.Random(seed)
    kills: list[Kill] = []
    order: list[str] = []
    for number in range(int(duration_s / interval_s)):
        if number % len(victims) == 0:
            order = chance.sample(victims, len(victims))
        at_s = (number + chance.uniform(0.375, 0.625)) * interval_s
        kills.append(Kill(at_s, order[number % len(victims)], chance.random()))
    return kills
