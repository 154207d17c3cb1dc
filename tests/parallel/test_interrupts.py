"""Runs that somebody ends: by a signal, by two, and by killing the command itself."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from remuda.tests.parallel.command import Command, wait_until
from remuda.tests.parallel.conftest import Launcher
from remuda.tests.parallel.reading import index, pids, progress, sha256, texts
from remuda.tests.parallel.user_folder import HELD, UserFolder

pytestmark = [pytest.mark.processes, pytest.mark.timeout(100)]

ENDLESS = {"stop": {"max_env_steps": 10_000_000}}


def in_the_midst_of_it(command: Command, run: Path) -> None:
    """Wait until a run trains."""
    log = run / "log" / "learner" / "learner_logger.txt"
    wait_until(
        lambda: command.process.poll() is not None or (log.exists() and texts(log, "=== Training")), 60, "it trains"
    )
    assert command.process.poll() is None


def test_a_signal_ends_it_cleanly(tmp_path: Path, launched: Launcher) -> None:
    user, run = UserFolder.make(tmp_path / "user", ENDLESS), tmp_path / "run"
    command = launched(user.root, "launch", user.config, "--run-dir", run)
    in_the_midst_of_it(command, run)
    command.process.terminate()
    ended = command.ended(30)
    assert ended.code == 0, ended.err
    assert "horse stopped; best return " in ended.out
    last = index(run)["checkpoints"][-1]
    assert index(run)["last"] == last["train_iter"] > 0
    assert sha256(run / "ckpt" / "ckpt_interrupt.pth.tar") == last["sha256"] == sha256(run / "ckpt" / last["file"])
    said = texts(run / "log" / "commander" / "commander_logger.txt")
    assert said[-1].startswith("the run is over after")
    assert ": stopped; " in said[-1]
    assert int(progress(run)[-1]["TotalEnvInteracts"]) == last["env_step"]
    assert sum(map(user.steps, pids(run, "collector"))) == last["env_step"], "every step taken was counted"
    assert command.family() == []
    assert command.leftovers() == []
    assert not (run / "git_log.txt").exists()


def test_a_second_signal_ends_it_at_once(tmp_path: Path, launched: Launcher) -> None:
    user, run = UserFolder.make(tmp_path / "user", HELD), tmp_path / "run"
    user.hold()
    command = launched(user.root, "launch", user.config, "--run-dir", run)
    in_the_midst_of_it(command, run)
    wait_until(lambda: user.held(pids(run, "collector")), 30, "its collectors hang in their environments")
    command.process.send_signal(signal.SIGINT)
    commander = run / "log" / "commander" / "commander_logger.txt"
    wait_until(lambda: texts(commander, "the run ends"), 10, "the first signal has come through")
    time.sleep(0.6)  # nearer together they would be one request
    command.process.send_signal(signal.SIGINT)
    second_s = time.monotonic()
    assert command.ended(5).code == 130
    wait_until(lambda: not command.family(), 5 - (time.monotonic() - second_s), "everybody is gone")


def test_nobody_outlives_the_command(tmp_path: Path, launched: Launcher) -> None:
    user, run = UserFolder.make(tmp_path / "user", ENDLESS), tmp_path / "run"
    command = launched(user.root, "launch", user.config, "--run-dir", run)
    in_the_midst_of_it(command, run)
    assert len(command.family()) == 1 + 1 + 4, "coordinator, nanny and four workers"
    command.process.kill()
    command.process.wait()
    wait_until(lambda: not command.family(), 15, "everybody is gone")
