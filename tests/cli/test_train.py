"""`remuda train`: what it says, how it ends, and that wrong input starts nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.cli.terminal import Terminal
from remuda.tests.patience import HANG_S, until
from remuda.tests.runner.runs import GAVE_WAY, write_user_folder

SHORT = ("--set", "stop.max_env_steps=60", "--set", "env.num_envs=1")
FAILS = ("--set", "env.kwargs={fails_at: 30}", "--set", "env.restarts_per_hour=0")
"""The environment raises an error in its 30th step, and is not made again."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_user_folder(tmp_path / "user")


def test_a_run_ends_with_its_results_and_what_to_type_next(terminal: Terminal, config: Path, tmp_path: Path) -> None:
    ended = terminal.remuda("train", config, "--runs-dir", tmp_path / "runs", "--run-id", "first", *SHORT)
    root = tmp_path / "runs" / "first"
    assert ended.code == 0, ended.err
    assert ended.out.startswith("tiny finished: max_env_steps: env_step 60 has reached max_env_steps 60; best return ")
    assert f"run folder: {root}\n" in ended.out
    assert f"remuda evaluate {root} -i best -n 20 -d\n" in ended.out
    assert f"tensorboard --logdir {root}/log\n" in ended.out
    best = CheckpointIndex(root / "ckpt").best
    assert best is not None
    assert f"; best return {best.reward:.2f}\n" in ended.out
    assert "tiny: finished | env_step 60" in ended.err


def test_an_algorithm_and_an_environment_are_enough(terminal: Terminal, tmp_path: Path) -> None:
    """With settings that are stored, and with sensible ones; both say so, and both runs can be resumed."""
    short = ("--set", "stop.max_env_steps=64", "--set", "evaluator.episodes=0", "--set", "policy.horizon_steps=8")
    stored = terminal.remuda("train", "ppo", "--env", "CartPole-v1", "--run-dir", tmp_path / "stored", *short)
    assert stored.code == 0, stored.err
    assert "ppo on CartPole-v1: settings of cartpole_ppo.yaml\n" in stored.err
    config = json.loads((tmp_path / "stored" / "config.json").read_text())
    assert (config["policy"]["gae_lambda"], config["policy"]["horizon_steps"]) == (0.8, 8)
    sensible = terminal.remuda("train", "ppo", "--env", "MountainCar-v0", "--run-dir", tmp_path / "sensible", *short)
    assert sensible.code == 0, sensible.err
    assert "no settings are stored, so those for Discrete actions are taken" in sensible.err
    again = terminal.remuda(
        "train", tmp_path / "sensible" / "config.json", "--run-dir", tmp_path / "sensible", "--resume"
    )
    assert again.code == 0, again.err


def test_what_an_environment_prints_is_no_part_of_the_json(terminal: Terminal, config: Path, tmp_path: Path) -> None:
    walk = config.with_name("walk.py")
    walk.write_text(walk.read_text().replace("self.steps += 1\n", "self.steps += 1; print('a step')\n"))
    ended = terminal.remuda("train", config, "--run-dir", tmp_path / "run", *SHORT, "--json", "--profile")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    best = CheckpointIndex(tmp_path / "run" / "ckpt").best
    assert best is not None
    assert (told["name"], told["state"], told["reason"]) == ("tiny", "finished", "max_env_steps")
    assert (told["env_step"], told["best_return"], told["run_dir"]) == (60, best.reward, str(tmp_path / "run"))
    assert ended.err.count("a step\n") > 60
    played = terminal.remuda("evaluate", tmp_path / "run", "-n", "1", "-nr", "--json")
    assert played.code == 0, played.err
    assert len(json.loads(played.out)["each"]) == 1
    assert "a step\n" in played.err


def test_a_failed_end_as_json_is_told_and_is_exit_code_1(terminal: Terminal, config: Path, tmp_path: Path) -> None:
    fails = (*FAILS, "--json")
    ended = terminal.remuda("train", config, "--run-dir", tmp_path / "run", *fails)
    assert ended.code == 1
    told = json.loads(ended.out)
    assert told["state"] == "failed"
    assert re.fullmatch(GAVE_WAY, told["reason"])
    assert re.search(f"tiny failed: {GAVE_WAY}", ended.err)
    assert f"type: remuda train --resume --run-dir {tmp_path / 'run'}" in ended.err
    log = tmp_path / "run" / "log" / "evaluator" / "evaluator_logger.txt"
    assert str(log) in ended.err
    assert "the floor gave way" in log.read_text()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("env={id: CartPole-v7}", "env.id = 'CartPole-v7' is not a known environment: did you mean"),
        ("learner.device=gpu", "learner.device = 'gpu' cannot be used"),
        ("env={id: Pendulum-v1}", "action space Box"),
        ("learner.bath_size=3", "batch_size"),
    ],
)
def test_wrong_input_starts_nothing(terminal: Terminal, config: Path, tmp_path: Path, override: str, said: str) -> None:
    ended = terminal.remuda("train", config, "--runs-dir", tmp_path / "runs", "--set", override)
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert not (tmp_path / "runs").exists()


ENDLESS = ("--set", "stop.max_env_steps=1000000000", "--set", "learner.learning_rate=0.002", "--seed", "7")


def endless(root: Path, *words: object, past_env_step: int = -1) -> subprocess.Popen[str]:
    """A run that goes on until it is stopped, in a process of its own, with a best checkpoint and a later one."""
    command = [sys.executable, "-m", "remuda.cli", *words]
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )

    def is_past() -> bool:
        return (root / "ckpt" / "ckpt_best.pth.tar").exists() and newest_env_step(root) > past_env_step

    until(lambda: process.poll() is not None or is_past(), "it has evaluated")
    assert process.poll() is None, process.communicate()
    return process


def newest_env_step(root: Path) -> int:
    last = CheckpointIndex(root / "ckpt").last
    return -1 if last is None else last.env_step


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_a_first_signal_saves_and_the_printed_line_continues_exactly_that_run(config: Path, tmp_path: Path) -> None:
    """Seed and settings are those that were typed, although the file of the config has others, and is gone."""
    root = tmp_path / "my run"
    words: Sequence[object] = ["train", config, "--run-dir", tmp_path / "my run", *ENDLESS]
    settings, env_step = "", -1
    for number in (signal.SIGTERM, signal.SIGINT):
        process = endless(root, *words, past_env_step=env_step)
        process.send_signal(number)
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, err
        assert f"stopped: interrupted: asked to by {number.name}; best return " in out
        index = CheckpointIndex(root / "ckpt")
        assert index.last is not None
        assert (root / "ckpt" / "ckpt_interrupt.pth.tar").read_bytes() == (root / "ckpt" / index.last.file).read_bytes()
        assert all((root / "ckpt" / record.file).exists() for record in index.records)
        assert index.last.env_step > env_step
        assert settings in ("", (root / "config.json").read_text())
        settings, env_step = (root / "config.json").read_text(), index.last.env_step
        words = shlex.split(out.splitlines()[-1].removeprefix("  remuda "))
        config.unlink(missing_ok=True)
    known = json.loads(settings)
    assert (known["seed"], known["learner"]["learning_rate"]) == (7, 0.002)


def test_without_a_config_a_run_continues(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words, why in (
        ((), "name a CONFIG, or continue a run with its own settings: --resume --run-dir RUN"),
        (("--resume",), "name a CONFIG, or continue a run with its own settings: --resume --run-dir RUN"),
        (("--resume", "--run-dir", "nothing"), "nothing is not a run folder: it has no config.json"),
        (("--env", "CartPole-v1"), "name an algorithm before it, as in: ppo --env CartPole-v1"),
    ):
        for verb in ("train", "launch", "submit"):
            ended = terminal.remuda(verb, *words)
            assert (ended.code, why in ended.err) == (2, True), ended.err
    assert list(tmp_path.iterdir()) == []


PROFILED = """
name: profiled
env: {id: CartPole-v1, num_envs: 2}
evaluator: {episodes: 1, interval_env_steps: 1000000}
buffer: {min_rows: 100, samples_per_insert: 32}
stop: {max_env_steps: 2000}
"""


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_every_role_of_a_launch_says_where_its_time_went(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(PROFILED)
    command = [sys.executable, "-m", "remuda.cli", "launch", "config.yaml", "--run-dir", "run", "--profile"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    kept = tmp_path / "run" / "log" / "profile"
    assert f"profiles: {kept}" in done.stdout
    names = sorted(re.sub(r"_[-0-9a-f]{36}_000001", "", path.name) for path in kept.glob("*.txt"))
    assert names == ["collector.txt", "collector.txt", "coordinator.txt", "evaluator.txt", "learner.txt"]
    assert len(list(kept.glob("*.folded"))) == len(names)
    for role, where in (("learner", "learner/loop.py"), ("collector", "collector/"), ("coordinator", "Service.run")):
        stacks = [page.read_text() for page in kept.glob(f"{role}*.folded")]  # the page has the longest alone
        assert any(where in page for page in stacks), role  # one collector may have done all the work


def test_weights_that_are_not_there(terminal: Terminal, config: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source, why in ((tmp_path / "nothing", "neither a run folder nor"), (tmp_path / "empty", "no checkpoint is")):
        ended = terminal.remuda("train", config, "--run-dir", tmp_path / "run", "--initialize-from", source)
        assert ended.code == 2
        assert why in ended.err
    assert not (tmp_path / "run").exists()
