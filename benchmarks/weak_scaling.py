"""Weak scaling: what 1, 2, 4 … 64 collectors take per second, beside as many times what one takes.

The environments sleep 20 ms in each step, so that 64 processes leave two cores idle most of the time. So the question
is not how fast the cores are: it is whether coordinator, learner and files hold any collector up, however many there
are.
"""

from __future__ import annotations

from functools import partial

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.paced_herd import Pace, steps_per_s

MOST = 64
BETWEEN = (2, 4, 8, 16, 32)
PACE = Pace(step_s=0.02, num_envs=8, chunk_env_steps=80)
WINDOW_S = 24.0
"""Fifteen chunks of each collector."""


def figures(peers: bool) -> list[Figure]:
    """The goal is 60 of 64, medians of three. The points between are there for the curve, one run each."""
    if peers:
        return []
    rate = partial(steps_per_s, PACE, shared_folder=True, window_s=WINDOW_S)
    ends = compare(
        name_of(MOST),
        unit="env steps/s",
        goal=f">= {60 / 64}",
        ours=lambda: rate(MOST),
        references={times(MOST): lambda: MOST * rate(1)},
    )
    alone = ends[0].reference / MOST
    found: list[Figure] = []
    for count in BETWEEN:
        found += compare(
            name_of(count),
            unit="env steps/s",
            goal=">= 0",
            ours=partial(rate, count),
            references={times(count): partial(float, count * alone)},
            n=1,
        )
    return found + ends


def name_of(collectors: int) -> str:
    """The name of one point."""
    return f"weak_scaling, {collectors} collectors"


def times(collectors: int) -> str:
    """What a point is compared with."""
    return f"{collectors} times one collector"


if __name__ == "__main__":
    main(figures)
