"""A serial run with sinks: they hold what progress.txt holds, under Remuda's names, over a resume too."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from remuda.runner.serial import Start
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.runs import Flag, run_tiny, tiny_config

NAMES = {
    "TotalEnvInteracts": "env_step",
    "Time": "wall_s",
    "AverageEpRet": "collector/reward_mean",
    "StdEpRet": "collector/reward_std",
    "MaxEpRet": "collector/reward_max",
    "MinEpRet": "collector/reward_min",
    "EpLen": "collector/length_mean",
    "AverageTestEpRet": "evaluator/reward_mean",
    "TestEpLen": "evaluator/length_mean",
    "LossQ": "learner/total_loss",
    "AverageQVals": "learner/q_value",
    "StdQVals": "learner/q_value_std",
    "MaxQVals": "learner/q_value_max",
    "MinQVals": "learner/q_value_min",
}


def progress(run: RunFolder) -> list[dict[str, float]]:
    header, *rows = (line.split("\t") for line in run.progress.read_text().splitlines())
    return [dict(zip(header, map(float, row), strict=True)) for row in rows]


def same(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))


@pytest.mark.parametrize("interrupted", [False, True])
def test_every_row_of_progress_is_in_every_sink(interrupted: bool, user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "log.sinks=[csv, jsonl]")
    root = tmp_path / "run"
    if interrupted:
        run_tiny(config, Start(root), stop=Flag(looks=60))
    run = RunFolder(run_tiny(config, Start(root, "resume" if interrupted else "error")).run_dir)
    with open(run.progress_csv, newline="") as file:
        from_csv = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    from_json = [json.loads(line) for line in run.progress_jsonl.read_text().splitlines()]
    rows = progress(run)
    assert len(rows) == len(from_csv) == len(from_json) > 5
    for row, seen, read in zip(rows, from_csv, from_json, strict=True):
        assert all(same(row[theirs], seen[ours]) for theirs, ours in NAMES.items())
        assert all(same(value, math.nan if read.get(name) is None else read[name]) for name, value in seen.items())
    assert from_csv[-1]["train_iter"] > 0
    assert from_csv[-1]["episode"] > 10
    assert not math.isnan(from_csv[-1]["learner/cur_lr"])
    last = from_csv[-1]
    for metric in ("total_loss", "td_error", "grad_norm"):
        smallest, median, largest = (last[f"learner/{metric}_{name}"] for name in ("min", "median", "max"))
        assert smallest <= median <= largest
        assert smallest < last[f"learner/{metric}"] < largest


def test_a_sink_that_cannot_be_opened_costs_the_run_nothing(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "log.sinks=[csv, jsonl]")
    first = run_tiny(config, Start(tmp_path / "run"), stop=Flag(looks=60))
    run = RunFolder(first.run_dir)
    run.progress_csv.unlink()
    run.progress_csv.mkdir()  # in the way of the file
    result = run_tiny(config, Start(run.root, "resume"))
    assert (result.reason, result.failed) == ("max_env_steps", False)
    assert run.serial_evaluator_log.read_text().count("sink csv is left out; the run continues") == 1
    assert len(run.progress_jsonl.read_text().splitlines()) == len(progress(run))
