"""`launch --on` with the launcher of examples/: a whole run, from its start until nothing of it is left."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from remuda.tests.parallel.command import Command
from remuda.tests.parallel.conftest import Launcher
from remuda.tests.parallel.reading import index, texts
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.test_house import ROOT

pytestmark = pytest.mark.processes


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserFolder:
    """With the example beside the config, and the `remuda` of this Python on the path."""
    user = UserFolder.make(tmp_path / "user")
    shutil.copy(ROOT / "examples" / "custom_launcher.py", user.root)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return user


def launch(user: UserFolder, run: Path, launched: Launcher, *options: str) -> Command:
    on = ("--on", "custom_launcher:Commands")
    return launched(user.root, "launch", user.config, "--run-dir", run, *on, *options)


def test_a_run_goes_from_start_to_end_and_nothing_is_left(user: UserFolder, tmp_path: Path, launched: Launcher) -> None:
    command = launch(user, tmp_path / "run", launched)
    ended = command.ended()
    assert ended.code == 0, ended.err
    assert "horse finished: max_env_steps; best return " in ended.out
    assert index(tmp_path / "run")["best"] is not None
    said = texts(tmp_path / "run" / "log" / "commander" / "commander_logger.txt")
    assert said[-1].startswith("the run is over after")
    assert command.family() == []
    assert command.leftovers() == [], "the launcher has removed its folder"


def test_what_the_launcher_refuses_is_said_before_anything_is_started(
    user: UserFolder, tmp_path: Path, launched: Launcher
) -> None:
    ended = launch(user, tmp_path / "run", launched, "--profile").ended()
    assert ended.code == 2, ended.err
    assert "custom_launcher:Commands: cannot be made: ValueError: this launcher makes no profiles" in ended.err
    assert not (tmp_path / "run").exists()
