"""A finished run's files, read by the tools that people have: pandas, Spinning Up's plotting, TensorBoard's reader."""

from __future__ import annotations

import importlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.runner.serial import Start
from remuda.tests.logbook.event_reader import curves
from remuda.tests.runner.conftest import Finished
from remuda.tests.runner.runs import run_tiny, tiny_config, write_user_folder

pytestmark = pytest.mark.xdist_group("a finished serial run")

pandas: Any = importlib.import_module("pandas")  # it ships no types

EPISODES = ["AverageEpRet", "StdEpRet", "MaxEpRet", "MinEpRet"]
TESTS = ["AverageTestEpRet", "StdTestEpRet", "MaxTestEpRet", "MinTestEpRet"]
Q_VALUES, VALUES = ([f"{statistic}{letter}Vals" for statistic in ("Average", "Std", "Max", "Min")] for letter in "QV")
ACTOR_CRITIC = [*VALUES, "LossPi", "LossV", "Entropy", "KL", "ClipFrac"]
LOSSES = {
    "dqn": [*Q_VALUES, "LossQ"],
    "rainbow": [*Q_VALUES, "LossQ"],
    "ppo": [*ACTOR_CRITIC, "StopIter"],
    "impala": ACTOR_CRITIC,
    "muzero": [*VALUES, "LossPi", "LossV", "LossR", "LossConsistency", "Entropy"],
    "sac": [*Q_VALUES, "LossPi", "LossQ", "Entropy", "Temperature"],
}
"""Spinning Up's columns, in its order; others of Remuda's own stand between the losses and the time."""


def table(run: Path) -> Any:
    """As everybody reads it."""
    return pandas.read_table(run / "progress.txt")


def spinning_up(logdir: Path) -> Any:
    """Do as Spinning Up's plotting does: every folder below `logdir` with a progress.txt is a run, its config.json says
    which experiment it belongs to, and runs of the same experiment are its units."""
    units: Counter[str] = Counter()
    runs: list[Any] = []
    for root, _, files in sorted(os.walk(logdir)):
        if "progress.txt" not in files:
            continue
        condition = str(json.loads((Path(root) / "config.json").read_text())["exp_name"])
        run = table(Path(root))
        run.insert(len(run.columns), "Unit", units[condition])
        run.insert(len(run.columns), "Condition1", condition)
        performance = "AverageTestEpRet" if "AverageTestEpRet" in run else "AverageEpRet"
        run.insert(len(run.columns), "Performance", run[performance])
        units[condition] += 1
        runs.append(run)
    return pandas.concat(runs, ignore_index=True)


@pytest.mark.parametrize("algorithm", LOSSES)
def test_every_column_is_there_and_numbers_are_numbers(algorithm: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"stop": {"max_env_steps": 250}}
    if algorithm == "muzero":
        changes["policy"] = {"type": algorithm, "hidden": [8], "simulations": 3, "projection_units": 16}
    elif algorithm in ("sac", "rainbow"):
        changes["policy"] = {"type": algorithm, "hidden": [8]}
    elif algorithm != "dqn":
        changes["policy"] = {"type": algorithm, "hidden": [8], "horizon_steps": 16}
        changes["collector"], changes["log"] = {}, {"interval_train_iters": 2, "progress_interval_env_steps": 50}
    write_user_folder(tmp_path / "user", **changes)
    run = run_tiny(tiny_config(tmp_path / "user"), Start(tmp_path / "run"))
    assert not run.failed, run.explanation
    read = table(run.run_dir)
    columns = list(read.columns)
    promised = ["Epoch", *EPISODES, *TESTS, "EpLen", "TestEpLen", "TotalEnvInteracts", *LOSSES[algorithm]]
    assert columns[: len(promised)] == promised
    assert columns[-1] == "Time"
    assert all(np.issubdtype(kind, np.number) for kind in read.dtypes)
    assert list(read["Epoch"]) == list(range(len(read)))
    assert read["TotalEnvInteracts"].is_monotonic_increasing
    assert read["Time"].is_monotonic_increasing
    assert (read["MinEpRet"].dropna() <= read["AverageEpRet"].dropna()).all()
    assert (read["AverageEpRet"].dropna() <= read["MaxEpRet"].dropna()).all()
    assert read[LOSSES[algorithm]].iloc[-1].notna().all()
    average, std, largest, smallest = (
        read[name].dropna() for name in (Q_VALUES if algorithm in ("dqn", "rainbow", "sac") else VALUES)
    )
    assert ((smallest <= average) & (average <= largest) & (std > 0)).all()
    if algorithm == "ppo":
        assert (read["StopIter"].dropna() == 80).all(), "ten epochs of eight minibatches"


def test_spinning_ups_plotting_finds_runs_seeds_and_performance(tmp_path: Path) -> None:
    for seed in (0, 1):
        run_tiny(
            tiny_config(tmp_path / "user", "stop.max_env_steps=250", f"seed={seed}"),
            Start(tmp_path / "runs" / str(seed)),
        )
    run_tiny(tiny_config(tmp_path / "user", "stop.max_env_steps=120", "name=other"), Start(tmp_path / "runs" / "other"))
    data = spinning_up(tmp_path / "runs")
    assert set(data["Condition1"]) == {"tiny", "other"}
    assert set(data[data["Condition1"] == "tiny"]["Unit"]) == {0, 1}
    curve = data.dropna(subset=["Performance"]).groupby(["Condition1", "Unit"])["Performance"]
    assert (curve.size() >= 2).all()
    first = data[data["TotalEnvInteracts"] == 0]
    assert len(first) == 3
    assert first["Performance"].notna().all()


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_where_both_intervals_agree_every_row_has_its_own_performance(algorithm: str, tmp_path: Path) -> None:
    """What tools want that draw lines through neighbours only, as Spinning Up's with its old seaborn."""
    if algorithm == "ppo":
        policy = {"type": "ppo", "hidden": [8], "horizon_steps": 16}
        write_user_folder(tmp_path / "user", policy=policy, collector={})
    intervals = ("log.progress_interval_env_steps=100", "evaluator.interval_env_steps=100")  # of no whole chunks
    config = tiny_config(tmp_path / "user", *intervals, "stop.max_env_steps=350")
    run = run_tiny(config, Start(tmp_path / "run")).run_dir
    read = spinning_up(run)
    assert list(read["TotalEnvInteracts"]) == [0, 100, 200, 300, 350]
    if algorithm == "ppo":  # it has learned nothing since the evaluation before the end
        read = read[:-1]
    assert read["Performance"].notna().all()
    late = read["TestEnvInteracts"] - read["TotalEnvInteracts"]
    assert ((late >= 0) & (late < 100)).all(), "no row shows what was due at the one before"
    checkpoints = json.loads((run / "ckpt" / "index.json").read_text())["checkpoints"]
    evaluated = [each["reward"] for each in checkpoints if each["reward"] is not None]
    assert all(np.isclose(read["Performance"], reward).any() for reward in evaluated)


def test_tensorboards_reader_finds_what_the_table_says(finished: Finished) -> None:
    read = table(finished.folder.root)
    evaluated = read.dropna(subset=["AverageTestEpRet"])
    seen = dict(curves(finished.folder.serial_tb)["evaluator_step/reward_mean"])
    assert len(evaluated) >= 3
    for value in evaluated["AverageTestEpRet"]:
        assert any(np.isclose(value, point, rtol=1e-6) for point in seen.values())
    assert list(seen)[-1] == read["TestEnvInteracts"].iloc[-1]
