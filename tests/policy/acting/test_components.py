"""Adjacent components with equal numbers of values are one run."""

from __future__ import annotations

from remuda.policy.acting.distributions import Run, runs_of


def test_runs_by_hand() -> None:
    assert runs_of((3, 2, 2, 4)) == (
        Run(3, 1, slice(0, 1), slice(0, 3)),
        Run(2, 2, slice(1, 3), slice(3, 7)),
        Run(4, 1, slice(3, 4), slice(7, 11)),
    )
    assert runs_of((2,) * 5) == (Run(2, 5, slice(0, 5), slice(0, 10)),)
