"""A serial run leaves the promised tree, and every number in it is the same wherever it stands."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import msgspec
import pytest
import torch

from remuda.buffer.chunk import chunk_name, parse_name
from remuda.config.load import load_config
from remuda.learner.checkpoint import load
from remuda.policy.files.functions import load_policy, load_value
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.logbook.event_reader import curves, hyperparameters, texts
from remuda.tests.runner.conftest import Finished
from remuda.wire.messages import CheckpointRecord

pytestmark = pytest.mark.xdist_group("a finished serial run")

PROMISED = {
    "config.json", "total_config.py", "formatted_total_config.py", "progress.txt", "vars.pkl", "env_spec.json",
    "model/model.pt", "model/model_info.json", "ckpt/index.json", "ckpt/ckpt_best.pth.tar",
    "log/buffer/buffer_logger.txt", "log/collector/collector_logger.txt", "log/evaluator/evaluator_logger.txt",
    "log/learner/learner_logger.txt", "log/serial/events.out.tfevents", "journal.sqlite", "log/timers.json",
    "log/series.msgpack",
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
    assert folders == {"ckpt", "data", "log", "model"}


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


def test_an_environment_that_cannot_be_pickled_is_warned_of_and_described_all_the_same(finished: Finished) -> None:
    spec = json.loads(finished.folder.env_spec.read_text())
    assert (spec["make"], spec["num_envs"], spec["action_space"]["n"]) == ("walk:make", 3, 2)
    log = finished.folder.serial_evaluator_log.read_text()
    assert finished.folder.vars_pkl.exists() != ("vars.pkl was not written" in log)


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
    for record in index.records:
        path = finished.folder.ckpt / record.file
        assert hashlib.sha256(path.read_bytes()).hexdigest() == record.sha256
        content = torch.load(path, weights_only=True)
        assert (content["last_iter"], content["last_step"]) == (record.train_iter, record.env_step)


def test_no_more_checkpoints_stay_than_are_kept_besides_initial_best_and_last(finished: Finished) -> None:
    index = CheckpointIndex(finished.folder.ckpt)
    assert index.best is not None
    assert index.last is not None
    always = {0, index.best.train_iter, index.last.train_iter}
    assert len({record.train_iter for record in index.records} - always) <= finished.config.checkpoint.keep


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


def test_what_an_evaluation_names_is_a_file_that_was_there(finished: Finished) -> None:
    log = finished.folder.serial_evaluator_log.read_text()
    named = re.findall(r"evaluation of (iteration_(\d+)\.pth\.tar)", log)
    learner = finished.folder.learner_log.read_text()
    assert len(named) >= 4
    assert all(f"/ckpt/{file}" in learner for file, _ in named)


def test_the_policy_loads_from_the_folder(finished: Finished) -> None:
    root, train_iter = finished.folder.root, finished.result.counters.train_iter
    env, get_action = load_policy(root)
    observation, _ = env.reset(seed=0)
    assert get_action(observation) in (0, 1)
    info = json.loads((finished.folder.model / "model_info.json").read_text())
    assert (info["env"]["make"], info["train_iter"]) == ("walk:make", train_iter)
    last, model = load_value(root, "last"), load_value(root, "model")
    assert last(observation) == pytest.approx(model(observation), rel=1e-5)


def test_index_json_is_what_other_tools_expect(finished: Finished) -> None:
    content = json.loads(finished.folder.index.read_text())
    listed = msgspec.convert(content["checkpoints"], list[CheckpointRecord])
    assert [record.train_iter for record in listed] == sorted(record.train_iter for record in listed)
