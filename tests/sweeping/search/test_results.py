"""What is promised of a search's results: the best first, and a picture."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from remuda.sweeping.record import RunRecord
from remuda.sweeping.search.picture import draw
from remuda.sweeping.search.results import best_of, failures, results_json, trials_table
from remuda.sweeping.search.study import Trial

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


def test_each_run_that_failed_is_named_with_its_reason() -> None:
    fine = RunRecord(name="a_t000_s0", variant="a_t000", seed=0, settings={}, run_dir="", state="finished")
    failed = replace(fine, name="a_t001_s0", state="failed", reason="the floor gave way")
    assert failures([fine, failed]) == "1 of 2 runs failed:\n  a_t001_s0: the floor gave way"
    assert failures([fine]) == ""


def test_json_holds_trials_and_the_best() -> None:
    told = json.loads(results_json(Path("/a"), [], TRIALS, {"policy.hidden": 1.0}))
    assert (told["best"], told["trials"][1]["value"], told["importances"]) == (2, 3.0, {"policy.hidden": 1.0})


def test_a_picture_with_a_panel_for_each_setting(tmp_path: Path) -> None:
    path = draw(tmp_path, TRIALS, ["learner.learning_rate"])
    assert path is not None
    assert path == tmp_path / "study.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert draw(tmp_path / "none", TRIALS[3:], []) is None
