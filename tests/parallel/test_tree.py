"""The run folder of parallel mode, file by file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from remuda.config.load import load_config
from remuda.logbook.series import Evaluation, Event, Interval, read_series
from remuda.policy.files.functions import load_value
from remuda.tests.logbook.event_reader import curves, hyperparameters, texts
from remuda.tests.parallel.conftest import Finished
from remuda.tests.parallel.reading import UUID, index, joined, progress
from remuda.tests.patience import HANG_S

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a finished parallel run")]

ALWAYS = """
config.json total_config.py formatted_total_config.py git_log.txt git_diff.txt
journal.sqlite progress.txt vars.pkl env_spec.json model/model.pt model/model_info.json
ckpt/ckpt_best.pth.tar ckpt/index.json ckpt/iteration_0.pth.tar
log/coordinator_logger.txt log/buffer/buffer_logger.txt log/learner/learner_logger.txt
log/commander/commander_logger.txt log/commander/commander_collector_logger.txt
log/commander/commander_evaluator_logger.txt log/timers.json log/series.msgpack
"""
EVENTS = ("log/buffer/buffer_tb_logger", "log/learner/learner_tb_logger", "log/commander/commander_tb_logger")


def files(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if not path.is_dir()}


def test_the_tree_holds_what_is_promised_and_nothing_else(finished: Finished) -> None:
    run, incarnations = finished.run, joined(finished.run / "log" / "coordinator_logger.txt")
    left = files(run) - set(ALWAYS.split())
    assert set(ALWAYS.split()) <= files(run)
    left -= {f"ckpt/{record['file']}" for record in index(run)["checkpoints"]}
    left -= {f"model/iteration_{record['train_iter']}.pt" for record in index(run)["checkpoints"]}
    left -= {
        f"log/{one.role}/{one.uuid}_{one.incarnation:06d}_logger.txt" for one in incarnations if one.role != "learner"
    }
    for folder in EVENTS:
        events = [name for name in left if re.fullmatch(rf"{folder}/events\.out\.tfevents\.\d+\.[^/]+", name)]
        assert len(events) == 1, folder
        left -= set(events)
    policy = [name for name in left if re.fullmatch(rf"policy/policy_{UUID}_\d{{6}}", name)]
    assert len(policy) == 1
    left -= {*policy, f"{policy[0]}.lock"}
    collectors = "|".join(one.uuid for one in incarnations if one.role == "collector")
    assert {
        name for name in left if not re.fullmatch(rf"data/({collectors})_000001_\d{{9}}\.safetensors", name)
    } == set()


def test_tensorboard_shows_settings_and_how_it_ended(finished: Finished) -> None:
    folder = finished.run / "log" / "commander" / "commander_tb_logger"
    assert [step for step, _ in texts(folder)["config/text_summary"]] == [0]
    assert hyperparameters(folder)["policy.type"] == "dqn"
    last = index(finished.run)["checkpoints"][-1]
    assert curves(folder)["results/env_step"] == [(last["train_iter"], last["env_step"])]


def test_the_time_series_tells_of_every_worker_and_every_evaluation(finished: Finished) -> None:
    moments = list(read_series(finished.run / "log" / "series.msgpack"))
    incarnations = joined(finished.run / "log" / "coordinator_logger.txt")
    came = {moment.worker for moment in moments if isinstance(moment, Event) and moment.event == "worker_joined"}
    assert came == {one.uuid for one in incarnations}
    evaluated = {moment.train_iter: moment.return_mean for moment in moments if isinstance(moment, Evaluation)}
    rewards = {record["train_iter"]: record["reward"] for record in index(finished.run)["checkpoints"]}
    kept = {train_iter: mean for train_iter, mean in evaluated.items() if train_iter in rewards}  # others were pruned
    assert kept == {train_iter: reward for train_iter, reward in rewards.items() if reward is not None}
    intervals = [moment for moment in moments if isinstance(moment, Interval)]
    assert intervals[-1].env_step == index(finished.run)["checkpoints"][-1]["env_step"]
    roles = {usage.role for interval in intervals for usage in interval.roles}
    assert roles >= {"learner", "collector"}, "each tells at its own time"


def test_timers_say_where_each_process_spent_its_time(finished: Finished) -> None:
    timers = json.loads((finished.run / "log" / "timers.json").read_text())
    roles = timers["roles"]
    assert {role: len(processes) for role, processes in roles.items() if role != "coordinator"} == {
        "learner": 1,
        "collector": 2,
        "evaluator": 1,
    }
    incarnations = {one.uuid: one.role for one in joined(finished.run / "log" / "coordinator_logger.txt")}
    for role in ("learner", "collector", "evaluator"):
        for uuid, tree in roles[role].items():
            assert incarnations[uuid] == role
            shares = sum(block["share"] for block in tree["blocks"].values())
            assert 0 < shares <= 1.001
    [learner] = roles["learner"].values()
    assert learner["blocks"]["update"]["count"] == index(finished.run)["checkpoints"][-1]["train_iter"]
    assert all("act" in tree["blocks"]["collect"]["blocks"] for tree in roles["collector"].values())
    said = (finished.run / "log" / "commander" / "commander_logger.txt").read_text()
    assert "Where the past" in said


def test_one_incarnation_of_each_worker(finished: Finished) -> None:
    incarnations = joined(finished.run / "log" / "coordinator_logger.txt")
    assert sorted(one.role for one in incarnations) == ["collector", "collector", "evaluator", "learner"]
    assert {one.incarnation for one in incarnations} == {1}
    assert len({one.uuid for one in incarnations}) == 4


@pytest.mark.parametrize("name", ["config.json", "total_config.py", "formatted_total_config.py"])
def test_the_config_files_load_as_what_the_user_gave(finished: Finished, name: str) -> None:
    assert load_config(finished.run / name).config == load_config(finished.user.config).config


def test_the_git_files_say_what_was_run(finished: Finished) -> None:
    assert "my horse" in (finished.run / "git_log.txt").read_text()
    assert "+# not committed" in (finished.run / "git_diff.txt").read_text()


def test_the_environment_is_described(finished: Finished) -> None:
    spec = json.loads((finished.run / "env_spec.json").read_text())
    assert (spec["make"], spec["num_envs"], spec["vectorization"]) == ("my_envs:make_env", 4, "sync")
    assert (spec["observation_space"]["shape"], spec["action_space"]["n"]) == ([3], 2)


def test_the_environment_comes_out_of_its_pickle(finished: Finished) -> None:
    play = "import pickle; env = pickle.load(open({!r}, 'rb'))['env']; print(env.reset(seed=1)[0].shape)"
    command = [sys.executable, "-c", play.format(str(finished.run / "vars.pkl"))]
    out = subprocess.run(command, cwd=finished.user.root, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert out.stdout == "(3,)\n"


def test_the_model_is_the_last_policy(finished: Finished) -> None:
    last = index(finished.run)["last"]
    info = json.loads((finished.run / "model" / "model_info.json").read_text())
    assert (info["train_iter"], info["algorithm"], info["env"]["make"]) == (last, "dqn", "my_envs:make_env")
    observations = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)
    values = np.load(_values_without_remuda(finished.run, observations))
    value = load_value(finished.run, last)
    np.testing.assert_allclose(values.max(1), [value(observation) for observation in observations], atol=1e-5)


def test_progress_has_one_header_and_a_row_per_interval(finished: Finished) -> None:
    lines = (finished.run / "progress.txt").read_text().splitlines()
    fixed = [f"{name}{kind}EpRet" for kind in ("", "Test") for name in ("Average", "Std", "Max", "Min")]
    expected = ["Epoch", *fixed, "EpLen", "TestEpLen", "TotalEnvInteracts"]
    expected += ["AverageQVals", "StdQVals", "MaxQVals", "MinQVals", "LossQ"]
    expected += ["MedianEpRet", "MedianTestEpRet", "TestEnvInteracts", "Time"]
    assert lines[0].split("\t") == expected
    assert sum(line.startswith("Epoch") for line in lines) == 1
    rows = progress(finished.run)
    steps = [int(row["TotalEnvInteracts"]) for row in rows]
    assert [int(row["Epoch"]) for row in rows] == list(range(len(rows)))
    assert steps == list(range(0, 3001, 500)), "none is lost, however long the first evaluation took"
    assert rows[0]["AverageTestEpRet"] != "nan"


def _values_without_remuda(run: Path, observations: np.ndarray) -> Path:
    """Let a process of its own, which knows torch alone, ask the model."""
    folder = run.parent / "asked"
    folder.mkdir(exist_ok=True)
    np.save(folder / "observations.npy", observations)
    ask = (
        "import numpy, torch, warnings; warnings.simplefilter('ignore');"
        f"model = torch.jit.load({str(run / 'model' / 'model.pt')!r});"
        "seen = torch.from_numpy(numpy.load('observations.npy'));"
        "numpy.save('values.npy', model(seen).detach().numpy())"
    )
    subprocess.run([sys.executable, "-c", ask], cwd=folder, check=True, timeout=HANG_S)
    return folder / "values.npy"
