"""The tables at the end of a sweep, to the letter."""

from __future__ import annotations

import math

from msgspec.structs import replace

from remuda.sweeping.record import RunRecord
from remuda.sweeping.summary import by_variant, runs_table, variants_table

BASE = RunRecord(name="", variant="", seed=0, settings={}, run_dir="")


def record(variant: str, seed: int, best: float | None, **changes: object) -> RunRecord:
    return replace(
        BASE, name=f"{variant}_s{seed}", variant=variant, seed=seed, best_return=best, last_return=best, **changes
    )


RECORDS = [
    record("a_x1", 0, 100.0, state="finished", reason="stop_value", env_step=2_000, train_iter=60, wall_s=1.25),
    record("a_x1", 1, 200.0, state="stopped", reason="stopped", env_step=1_000, train_iter=30, wall_s=0.5),
    record("a_x2", 0, None, state="failed", reason="RuntimeError: " + "the floor gave way " * 5),
    record("a_x2", 1, None),
]


def test_the_runs() -> None:
    assert runs_table(RECORDS) == (
        "run      state     reason                                  env_step    last    best    seconds\n"
        "-------  --------  ------------------------------------  ----------  ------  ------  ---------\n"
        "a_x1_s0  finished  stop_value                                  2000  100.00  100.00        1.2\n"
        "a_x1_s1  stopped   stopped                                     1000  200.00  200.00        0.5\n"
        "a_x2_s0  failed    RuntimeError: the floor gave way th…           0       -       -        0.0\n"
        "a_x2_s1  waiting                                                  0       -       -        0.0"
    )


def test_the_variants() -> None:
    assert variants_table(by_variant(RECORDS)) == (
        "variant      finished            last            best\n"
        "---------  ----------  --------------  --------------\n"
        "a_x1              1/2  150.00 ± 50.00  150.00 ± 50.00\n"
        "a_x2              0/2               -               -"
    )


def test_numbers_by_variant() -> None:
    first, second = by_variant(RECORDS)
    assert (first.variant, first.seeds, first.finished) == ("a_x1", 2, 1)
    assert (first.best_mean, first.best_std, first.last_mean, first.last_std) == (150, 50, 150, 50)
    assert math.isnan(second.best_mean)
    assert math.isnan(second.last_std)
