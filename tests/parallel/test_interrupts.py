"""Runs that somebody ends: by a signal, by two, and by killing the command itself."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from remuda.tests.parallel.command import Command
from remuda.tests.parallel.conftest import Launcher, wait_until_held
from remuda.tests.parallel.reading import index, pids, progress, sha256, texts
from remuda.tests.parallel.user_folder import ENDLESS, HELD, UserFolder
from remuda.tests.patience import until, until_ended

pytestmark = pytest.mark.processes


def in_the_midst_of_it(command: Command, run: Path) -> None:
    """Wait until a run trains."""
    log = run / "log" / "learner" / "learner_logger.txt"
    until(lambda: command.process.poll() is not None or (log.exists() and texts(log, "=== Training")), "it trains")
    assert command.process.poll() is None


def test_a_signal_ends_it_cleanly(tmp_path: Path, launched: Launcher) -> None:
    env = {**ENDLESS["env"], "kwargs": {"pause_s": 0.001, "says": "a horse is here"}}
    user, run = UserFolder.make(tmp_path / "user", {**ENDLESS, "env": env}), tmp_path / "run"
    command = launched(user.root, "launch", user.config, "--run-dir", run)
    in_the_midst_of_it(command, run)
    command.process.terminate()
    ended = command.ended()
    assert ended.code == 0, ended.err
    assert "horse stopped; best return " in ended.out
    last = index(run)["checkpoints"][-1]
    assert index(run)["last"] == last["train_iter"] > 0
    assert sha256(run / "ckpt" / "ckpt_interrupt.pth.tar") == last["sha256"] == sha256(run / "ckpt" / last["file"])
    said = texts(run / "log" / "commander" / "commander_logger.txt")
    assert said[-1].startswith("the run is over after")
    assert ": stopped; " in said[-1]
    shown = int(progress(run)[-1]["TotalEnvInteracts"])
    assert shown in (last["env_step"], last["env_step"] // 500 * 500), "a boundary, where it was just reached"
    assert sum(map(user.steps, pids(run, "collector"))) == last["env_step"], "every step taken was counted"
    assert command.family() == []
    assert command.leftovers() == []
    assert not (run / "git_log.txt").exists()
    for log in (run / "log").glob("*or/*_*_logger.txt"):
        assert texts(log, "a horse is here"), f"what its environment has printed is in {log}"


def test_a_second_signal_ends_it_at_once(tmp_path: Path, really_launched: Launcher) -> None:
    user, run = UserFolder.make(tmp_path / "user", HELD), tmp_path / "run"
    user.hold()
    command = really_launched(user.root, "launch", user.config, "--run-dir", run)
    in_the_midst_of_it(command, run)
    wait_until_held(command, run, user)
    command.process.send_signal(signal.SIGINT)
    commander = run / "log" / "commander" / "commander_logger.txt"
    until(lambda: texts(commander, "the run ends"), "the first signal has come through")
    assert until_ended(command.process, signal.SIGINT) == 130
    until(lambda: not command.family(), "everybody is gone")
