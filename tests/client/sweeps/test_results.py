"""The tables at the end of a sweep, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.client.sweeps.record import RunRecord, SweepBook, SweepFileError
from remuda.client.sweeps.results import best_of, by_variant, draw, runs_table, trials_table, variants_table
from remuda.client.sweeps.study import Trial

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


TRIALS = [
    Trial(0, {"learner.learning_rate": 0.0012345678, "policy.hidden": [64]}, "complete", 10.0),
    Trial(1, {"learner.learning_rate": 0.01, "policy.hidden": [32, 32]}, "pruned", 3.0),
    Trial(2, {"learner.learning_rate": 0.1, "policy.hidden": [64]}, "complete", 12.5),
    Trial(3, {"learner.learning_rate": 0.2, "policy.hidden": [64]}, "failed", None),
]


def test_the_best_first_then_what_was_given_up() -> None:
    lines = trials_table(TRIALS, most=3).splitlines()
    assert lines[0].split() == ["trial", "state", "return", "learner.learning_rate", "policy.hidden"]
    assert [line.split()[:4] for line in lines[2:5]] == [
        ["t002", "complete", "12.50", "0.1"],
        ["t000", "complete", "10.00", "0.001235"],
        ["t001", "pruned", "3.00", "0.01"],
    ]
    assert lines[5] == "… and 1 more"
    assert best_of(TRIALS) == TRIALS[2]
    assert best_of(TRIALS[3:]) is None


def test_a_picture_with_a_panel_for_each_setting(tmp_path: Path) -> None:
    path = draw(tmp_path, TRIALS, ["learner.learning_rate"])
    assert path is not None
    assert path == tmp_path / "study.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert draw(tmp_path / "none", TRIALS[3:], []) is None


SECOND = RunRecord(
    name="a_x2_s0",
    variant="a_x2",
    seed=0,
    settings={"x": 2},
    run_dir="a_x2/a_x2_s0",
    state="finished",
    reason="stop_value",
    experiment="1f5f2705-79c6-45e3-8ccb-e85cb4e68d91",
    env_step=60,
    train_iter=5,
    last_return=1.5,
    best_return=2.0,
    wall_s=0.25,
)
TEXT = """{
  "format": 1,
  "name": "a",
  "mode": "parallel",
  "runs": [
    {
      "name": "a_x2_s0",
      "variant": "a_x2",
      "seed": 0,
      "settings": {
        "x": 2
      },
      "run_dir": "a_x2/a_x2_s0",
      "state": "finished",
      "reason": "stop_value",
      "experiment": "1f5f2705-79c6-45e3-8ccb-e85cb4e68d91",
      "env_step": 60,
      "train_iter": 5,
      "last_return": 1.5,
      "best_return": 2.0,
      "wall_s": 0.25
    }
  ]
}
"""


def book(folder: Path, name: str = "a") -> SweepBook:
    return SweepBook(folder, name=name, mode="parallel")


def test_what_it_looks_like(tmp_path: Path) -> None:
    book(tmp_path).write([SECOND])
    assert (tmp_path / "sweep.json").read_text() == TEXT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is damaged"),
        (TEXT.replace('"format": 1', '"format": 2'), "is damaged"),
        (TEXT.replace('"name": "a"', '"name": "b"'), "is the folder of the sweep b, not of a"),
        (TEXT.replace("parallel", "serial"), "this sweep was started on this machine: --on local"),
    ],
)
def test_what_is_not_ours(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(SweepFileError, match=said):
        book(tmp_path)


def test_the_variants() -> None:
    assert variants_table(by_variant(RECORDS)) == (
        "variant      finished            last            best\n"
        "---------  ----------  --------------  --------------\n"
        "a_x1              1/2  150.00 ± 50.00  150.00 ± 50.00\n"
        "a_x2              0/2               -               -"
    )
