"""Who is killed when: drawn from a seed, so that anybody can kill the same roles at the same moments."""

from __future__ import annotations

import random
from dataclasses import dataclass

VICTIMS = ("coordinator", "collector", "evaluator", "learner")
"""Each is killed once before any is killed again."""


@dataclass(frozen=True)
class Kill:
    """One kill -9."""

    at_s: float
    """Since the begin of what is measured."""
    role: str
    choice: float
    """Which of the workers of this role, as a share of their list."""


def kill_schedule(seed: int, duration_s: float, interval_s: float) -> list[Kill]:
    """One kill in each interval, at a random moment of its middle quarter."""
    chance = random.Random(seed)
    kills: list[Kill] = []
    order: list[str] = []
    for number in range(int(duration_s / interval_s)):
        if number % len(VICTIMS) == 0:
            order = chance.sample(VICTIMS, len(VICTIMS))
        at_s = (number + chance.uniform(0.375, 0.625)) * interval_s
        kills.append(Kill(at_s, order[number % len(VICTIMS)], chance.random()))
    return kills
