"""A serial run leaves the promised tree, and every number in it is the same wherever it stands."""

from __future__ import annotations

import csv
import hashlib
import importlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remuda.buffer.chunk import chunk_name, parse_name
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.learner.checkpoint import load
from remuda.policy.files.functions import load_action, load_policy, load_value
from remuda.runner.serial import Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves, films, histograms, hyperparameters, texts
from remuda.tests.runner.conftest import Finished
from remuda.tests.runner.runs import run_tiny, tiny_config, write_user_folder

pytestmark = pytest.mark.xdist_group("a finished serial run")

PROMISED = {
    "config.json", "total_config.py", "formatted_total_config.py", "progress.txt", "vars.pkl", "env_spec.json",
    "manifest.json", "model/model.pt", "model/model_info.json", "ckpt/index.json", "ckpt/ckpt_best.pth.tar",
    "log/buffer/buffer_logger.txt", "log/collector/collector_logger.txt", "log/evaluator/evaluator_logger.txt",
    "log/learner/learner_logger.txt", "log/serial/events.out.tfevents", "journal.sqlite", "log/timers.json",
    "log/series.msgpack", "steps/collector_0_0.steps.msgpack",
}  # fmt: skip
WHERE_THERE_IS_GIT = {"git_log.txt", "git_diff.txt"}


def files_in(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def rows(path: Path) -> list[dict[str, float]]:
    header, *lines = (line.split("\t") for line in path.read_text().splitlines())
    return [dict(zip(header, map(float, line), strict=True)) for line in lines]


def test_the_tree_is_the_promised_one(finished: Finished) -> None:
    found = {re.sub(r"(tfevents)\..*", r"\1", name) for name in files_in(finished.folder.root)}
    checkpoints = {f"ckpt/{record.file}" for record in CheckpointIndex(finished.folder.ckpt).records}
    found -= {name for name in found if name.startswith("data/") and chunk_name(parse_name(name[5:])) == name[5:]}
    models = {f"model/iteration_{record.train_iter}.pt" for record in CheckpointIndex(finished.folder.ckpt).records}
    assert {name for name in found if name.startswith("model/iteration_")} <= models, "those of others are gone"
    last = CheckpointIndex(finished.folder.ckpt).last
    assert last is not None
    assert finished.folder.model_of(last.train_iter).samefile(finished.folder.model / "model.pt")
    found -= models
    assert found - WHERE_THERE_IS_GIT == (PROMISED | checkpoints) - {"vars.pkl"} | (found & {"vars.pkl"})
    folders = {path.name for path in finished.folder.root.iterdir() if path.is_dir()}
    assert folders == {"ckpt", "data", "log", "model", "steps"}


def test_tensorboard_shows_settings_and_how_it_ended(finished: Finished) -> None:
    [(step, markdown)] = texts(finished.folder.serial_tb)["config/text_summary"]
    assert step == 0
    assert "    policy:\n      type: dqn\n" in markdown
    found = hyperparameters(finished.folder.serial_tb)
    assert found["policy.type"] == "dqn"
    last = CheckpointIndex(finished.folder.ckpt).last
    assert last is not None
    results = curves(finished.folder.serial_tb)
    assert results["results/env_step"] == [(last.train_iter, last.env_step)]
    assert "results/best_return" in results


def test_the_config_in_the_folder_runs_the_same_experiment(finished: Finished) -> None:
    for path in (finished.folder.config_json, finished.folder.total_config, finished.folder.formatted_total_config):
        assert load_config(path).config == finished.config


def test_env_step_is_the_number_of_steps_really_taken_wherever_it_stands(finished: Finished) -> None:
    counters, folder = finished.result.counters, finished.folder
    assert counters.env_step == finished.steps_taken
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    assert (last.env_step, last.train_iter) == (counters.env_step, counters.train_iter)
    assert load(folder.ckpt / last.file).progress.counters.env_step == counters.env_step
    assert rows(folder.progress)[-1]["TotalEnvInteracts"] == 400
    assert f"env_step {counters.env_step} has reached max_env_steps 400" in folder.serial_evaluator_log.read_text()
    seen = curves(folder.serial_tb)
    assert max(step for step, _ in seen["evaluator_step/reward_mean"]) == counters.env_step
    assert [step for step, value in seen["collector_step/total_envstep_count"] if step != value] == []


def test_every_checkpoint_is_listed_with_its_checksum_and_holds_the_counters_of_its_record(finished: Finished) -> None:
    index = CheckpointIndex(finished.folder.ckpt)
    assert index.records[0].train_iter == 0
    assert len(index.records) >= 3
    assert index.best is not None
    assert index.last is not None
    always = {0, index.best.train_iter, index.last.train_iter}
    assert len({record.train_iter for record in index.records} - always) <= finished.config.checkpoint.keep
    for record in index.records:
        path = finished.folder.ckpt / record.file
        assert hashlib.sha256(path.read_bytes()).hexdigest() == record.sha256
        content = torch.load(path, weights_only=True)
        assert (content["last_iter"], content["last_step"]) == (record.train_iter, record.env_step)


def test_the_best_checkpoint_is_the_one_that_was_evaluated_best(finished: Finished) -> None:
    index, best = CheckpointIndex(finished.folder.ckpt), finished.result.best
    assert best is not None
    assert index.best is not None
    evaluated = [record.reward for record in index.records if record.reward is not None]
    assert index.best.reward == max(evaluated) == best.reward_mean
    assert finished.folder.best.read_bytes() == (finished.folder.ckpt / index.best.file).read_bytes()
    shown = [row["AverageTestEpRet"] for row in rows(finished.folder.progress)]
    assert max(value for value in shown if value == value) == best.reward_mean


def test_progress_has_row_0_and_then_one_per_interval_and_one_at_the_end(finished: Finished) -> None:
    shown = rows(finished.folder.progress)
    steps = [int(row["TotalEnvInteracts"]) for row in shown]
    assert [row["Epoch"] for row in shown] == list(range(len(shown)))
    assert steps == list(range(0, 401, 50))
    assert shown[0]["AverageTestEpRet"] < 0
    evaluated = {row["TestEnvInteracts"]: row["AverageTestEpRet"] for row in shown if row["AverageTestEpRet"] < 0}
    curve = dict(curves(finished.folder.serial_tb)["evaluator_step/reward_mean"])
    assert evaluated == {step: pytest.approx(value, rel=1e-6) for step, value in curve.items()}, "the very steps"
    assert shown[-1]["LossQ"] > 0


def test_logs_begin_and_end_as_promised(finished: Finished) -> None:
    folder = finished.folder
    assert folder.learner_log.read_text().split("] ", 1)[1].startswith("[RANK0]: QNetwork(")
    assert folder.serial_collector_log.read_text().splitlines()[0].endswith("n_sample: 12, env_num: 3")
    totals = re.findall(r"^total_envstep_count: (\d+)$", folder.serial_collector_log.read_text(), re.MULTILINE)
    assert int(totals[-1]) == finished.result.counters.env_step, "what came after the last report that was due as well"
    learner = folder.learner_log.read_text()
    for record in CheckpointIndex(folder.ckpt).records:
        assert f"saved checkpoint {folder.ckpt / record.file}" in learner
    assert "=== Training Iteration 10 Result ===" in learner
    sampled = [int(times) for times in re.findall(r"=== Sample data (\d+) Times ===", folder.buffer_log.read_text())]
    assert [times // 20 for times in sampled] == list(range(1, len(sampled) + 1))
    *_, last = folder.serial_evaluator_log.read_text().splitlines()
    assert "the run is over after" in last


def test_the_policy_loads_from_the_folder(finished: Finished) -> None:
    root, counters = finished.folder.root, finished.result.counters
    env, get_action = load_policy(root)
    observation, _ = env.reset(seed=0)
    assert get_action(observation) in (0, 1)
    info = json.loads((finished.folder.model / "model_info.json").read_text())
    assert (info["env"]["make"], info["train_iter"], info["env_step"]) == (
        "walk:make", counters.train_iter, counters.env_step,
    )  # fmt: skip
    last, model = load_value(root, "last"), load_value(root, "model")
    assert last(observation) == pytest.approx(model(observation), rel=1e-5)
    acts, exported = load_action(root, "last"), load_action(root, "model")
    seen = np.random.default_rng(0).uniform(-10.0, 10.0, (50, 2)).astype(np.float32)
    assert [acts(row) for row in seen] == [exported(row) for row in seen]


def progress(run: RunFolder) -> list[dict[str, float]]:
    header, *rows = (line.split("\t") for line in run.progress.read_text().splitlines())
    return [dict(zip(header, map(float, row), strict=True)) for row in rows]


def test_it_is_everywhere_also_over_a_resume(user: Path, tmp_path: Path) -> None:
    """Nothing is discounted here, so the discounted return is the return."""
    settings = (
        "env.episode_info=[side, steps_to_go, nobody_knows]", "log.sinks=[csv]", "policy.discount=1.0",
        "log.progress_interval_env_steps=100",
    )  # fmt: skip
    run_tiny(tiny_config(user, *settings, "stop.max_env_steps=180"), Start(tmp_path / "run"))
    run = RunFolder(run_tiny(tiny_config(user, *settings), Start(tmp_path / "run", "resume")).run_dir)
    rows = progress(run)
    assert all(-1.0 <= row["MinSide"] <= row["MedianSide"] <= row["MaxSide"] <= 1.0 for row in rows[1:])
    assert all(row["MinStepsToGo"] >= 0.0 for row in rows[1:])
    assert all(math.isnan(row["AverageNobodyKnows"]) for row in rows), "the environment does not report it"
    assert abs(rows[0]["AverageTestSide"]) <= 1.0
    assert math.isnan(rows[0]["AverageSide"]), "nobody has trained yet"
    with open(run.progress_csv, newline="") as file:
        sunk = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert {"collector/side_median", "evaluator/steps_to_go_mean"} <= sunk[0].keys()
    for role in ("collector", "evaluator"):
        for statistic in ("mean", "std", "max", "min", "median"):
            discounted = [row[f"{role}/discounted_return_{statistic}"] for row in sunk]
            assert discounted == [pytest.approx(row[f"{role}/reward_{statistic}"], nan_ok=True) for row in sunk]
    collected, evaluated = run.serial_collector_log.read_text(), run.serial_evaluator_log.read_text()
    for name in ("side_mean", "discounted_return_mean"):
        assert f"\n{name}: " in collected
        assert f"| {name} |" in evaluated.replace("  ", " ")
    seen = curves(run.serial_tb)
    assert {f"{role}_{axis}/side_{statistic}" for role in ("collector", "evaluator") for axis in ("iter", "step")
            for statistic in ("mean", "std", "median", "min", "max")} <= seen.keys()  # fmt: skip
    assert {"collector_step/reward_median", "collector_step/length_median"} <= seen.keys()
    assert {"collector_step/discounted_return_mean", "evaluator_iter/discounted_return_median"} <= seen.keys()


EPISODES = ["AverageEpRet", "StdEpRet", "MaxEpRet", "MinEpRet"]
TESTS = ["AverageTestEpRet", "StdTestEpRet", "MaxTestEpRet", "MinTestEpRet"]
Q_VALUES, VALUES = ([f"{statistic}{letter}Vals" for statistic in ("Average", "Std", "Max", "Min")] for letter in "QV")
ACTOR_CRITIC = [*VALUES, "LossPi", "LossV", "Entropy", "KL", "ClipFrac"]
LOSSES = {
    "dqn": [*Q_VALUES, "LossQ"],
    "ppo": [*ACTOR_CRITIC, "StopIter"],
    "muzero": [*VALUES, "LossPi", "LossV", "LossR", "LossConsistency", "Entropy"],
    "sac": [*Q_VALUES, "LossPi", "LossQ", "Entropy", "Temperature"],
}
"""Spinning Up's columns, in its order; others of Remuda's own stand between the losses and the time."""


def table(run: Path) -> Any:
    """As everybody reads it."""
    pandas: Any = importlib.import_module("pandas")  # it ships no types
    return pandas.read_table(run / "progress.txt")


SMALL_MUZERO = {"latent": 8, "simulations": 3, "support_size": 20, "projection_units": 16, "projection_bottleneck": 8}
CHANGES: dict[str, dict[str, Any]] = {
    "ppo": {
        "policy": {"type": "ppo", "hidden": [8], "horizon_steps": 16},
        "collector": {},
        "log": {"interval_train_iters": 2, "progress_interval_env_steps": 50},
    },
    "muzero": {"policy": {"type": "muzero", "hidden": [8], **SMALL_MUZERO}},
    "sac": {
        "policy": {"type": "sac", "hidden": [8]},
        "env": {"id": "Pendulum-v1", "num_envs": 3, "vectorization": "sync", "max_episode_steps": 40},
    },
}
"""Sections of the config, for a run of the algorithm."""


@pytest.fixture(scope="module", params=LOSSES)
def run_of(
    request: pytest.FixtureRequest, finished: Finished, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ExperimentConfig, RunFolder]:
    """An algorithm, the config of a run, and its folder."""
    algorithm, user = str(request.param), tmp_path_factory.mktemp("user")
    if algorithm == "dqn":
        return algorithm, finished.config, finished.folder
    write_user_folder(user, **CHANGES[algorithm], stop={"max_env_steps": 250})
    config = tiny_config(user)
    result = run_tiny(config, Start(user / "run"))
    assert not result.failed, result.explanation
    return algorithm, config, RunFolder(result.run_dir)


def test_equal_seeds_give_equal_numbers(run_of: tuple[str, ExperimentConfig, RunFolder], tmp_path: Path) -> None:
    _, config, first = run_of
    second = RunFolder(run_tiny(config, Start(tmp_path / "run")).run_dir)
    assert first.progress.read_bytes() == second.progress.read_bytes()
    records = CheckpointIndex(first.ckpt).records
    assert [record.file for record in records] == [record.file for record in CheckpointIndex(second.ckpt).records]
    assert len(records) >= 3
    for record in records:
        one, two = (torch.load(run.ckpt / record.file, weights_only=True)["model"] for run in (first, second))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_every_column_is_there_and_numbers_are_numbers(run_of: tuple[str, ExperimentConfig, RunFolder]) -> None:
    algorithm, _, folder = run_of
    read = table(folder.root)
    columns = list(read.columns)
    promised = ["Epoch", *EPISODES, *TESTS, "EpLen", "TestEpLen", "TotalEnvInteracts", *LOSSES[algorithm]]
    assert columns[: len(promised)] == promised
    assert columns[-1] == "Time"
    assert ("visit_entropy_mean" in columns) == (algorithm == "muzero"), "a collected metric"
    assert all(np.issubdtype(kind, np.number) for kind in read.dtypes)
    assert list(read["Epoch"]) == list(range(len(read)))
    assert read["TotalEnvInteracts"].is_monotonic_increasing
    assert read["Time"].is_monotonic_increasing
    assert (read["MinEpRet"].dropna() <= read["AverageEpRet"].dropna()).all()
    assert (read["AverageEpRet"].dropna() <= read["MaxEpRet"].dropna()).all()
    assert read[LOSSES[algorithm]].iloc[-1].notna().all()
    average, std, largest, smallest = (
        read[name].dropna() for name in (Q_VALUES if algorithm in ("dqn", "sac") else VALUES)
    )
    assert ((smallest <= average) & (average <= largest) & (std > 0)).all()
    if algorithm == "ppo":
        assert (read["StopIter"].dropna() == 80).all(), "ten epochs of eight minibatches"


ENVS = "remuda.tests.environments"
WEIGHTS = {"torso.0", "streams.0", "advantage", "value"}


def steps_of(points: Sequence[tuple[int, object]]) -> list[int]:
    return [step for step, _ in points]


def saved(folder: RunFolder) -> list[int]:
    """Each checkpoint that was ever saved, by its iteration."""
    log = folder.learner_log.read_text()
    return sorted({int(found) for found in re.findall(r"saved checkpoint .*/iteration_(\d+)\.pth\.tar", log)})


def evaluated(folder: RunFolder) -> list[int]:
    return steps_of(curves(folder.serial_tb)["evaluator_iter/reward_mean"])


def test_every_checkpoint_has_its_weights_and_every_evaluation_its_actions(finished: Finished) -> None:
    found, folder = histograms(finished.folder.serial_tb), finished.folder
    weights = {tag for tag in found if tag.startswith("weights_iter/")}
    assert weights == {f"weights_iter/{layer}.{kind}" for layer in WEIGHTS for kind in ("weight", "bias")}
    assert all(steps_of(found[tag]) == saved(folder) for tag in weights)
    assert found.keys() - weights == {"actions_iter/action"}
    actions = found["actions_iter/action"]
    assert steps_of(actions) == evaluated(folder)
    lengths = dict(curves(folder.serial_tb)["evaluator_iter/envstep_count"])
    assert {step: sum(buckets.counts) for step, buckets in actions} == lengths, "each action of each evaluation"
    assert all(set(buckets.edges) <= {-0.5, 0.5, 1.5} for _, buckets in actions)
    assert films(folder.serial_tb) == {}, "nobody has asked for films"
