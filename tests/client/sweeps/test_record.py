"""sweep.json: what it looks like, and what it is refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.client.sweeps.record import RunRecord, SweepBook, SweepFileError

FIRST = RunRecord(name="a_x1_s0", variant="a_x1", seed=0, settings={"x": 1}, run_dir="a_x1/a_x1_s0")
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


def test_what_was_written_is_known_again_and_replaced_by_name(tmp_path: Path) -> None:
    writer = book(tmp_path)
    assert writer.runs == {}
    writer.write([FIRST, SECOND])
    failed = RunRecord(
        name="a_x1_s0", variant="a_x1", seed=0, settings={"x": 1}, run_dir="a_x1/a_x1_s0", state="failed"
    )
    writer.write([failed])
    assert book(tmp_path).runs == writer.runs == {"a_x1_s0": failed, "a_x2_s0": SECOND}


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
