"""An algorithm and a launcher from the user's folder, and rows that are what some collector really did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from remuda.storage.run_folder import RUNS_LIST
from remuda.tests.parallel.conftest import Launcher
from remuda.tests.parallel.reading import index, texts

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ("--set", "buffer.min_rows=100", "--set", "evaluator.episodes=1", "--set", "collector.count=1")


def test_user_code_is_launched_and_resumed(tmp_path: Path, launched: Launcher) -> None:
    user, run = tmp_path / "user", tmp_path / "run"
    user.mkdir()
    for name in ("custom_algorithm.py", "custom_algorithm.yaml", "custom_launcher.py"):
        shutil.copy(EXAMPLES / name, user / name)
    on = ("--on", "custom_launcher:Commands")
    launch = ("launch", user / "custom_algorithm.yaml", *SHORT, "--run-dir", run)
    refused = launched(tmp_path, *launch, *on, "--profile").ended()
    assert refused.code == 2, refused.err
    assert "custom_launcher:Commands: cannot be made: ValueError: this launcher makes no profiles" in refused.err
    assert not run.exists()

    command = launched(tmp_path, *launch, *on, "--set", "stop.max_env_steps=600")
    first = command.ended()
    assert first.code == 0, first.err
    assert texts(run / "log" / "commander" / "commander_logger.txt")[-1].startswith("the run is over after")
    assert command.family() == []
    assert command.leftovers() == [], "the launcher has removed its folder"
    assert not (tmp_path / RUNS_LIST).exists(), "no coordinator keeps the run, which a launch may resume after a crash"
    before = index(run)["last"]
    again = launched(tmp_path, *launch, "--set", "stop.max_env_steps=1000", "--resume").ended()
    assert again.code == 0, again.err
    assert index(run)["last"] > before > 0
    assert json.loads((run / "config.json").read_text())["policy"]["hidden"] == 128
