"""What `remuda launch` starts before it knows its config: nothing of it is left, however the command ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from remuda.cli.__main__ import prestarted_nanny
from remuda.tests.patience import HANG_S, until

pytestmark = pytest.mark.processes

SLOW = """
import pathlib, time

def make(**settings):
    pathlib.Path("building").touch()
    time.sleep(600)
"""


GOOD = "name: mine\nenv: {id: CartPole-v1}\nstop: {max_env_steps: 1000}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a config whose environment takes long to build, which happens before the launch is known to be possible."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "slow.yaml").write_text("name: slow\nenv: {make: 'slow:make'}\n")
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    commands: list[subprocess.Popen[str]] = []
    yield commands
    for command in commands:
        command.kill()
        command.communicate()


def launch(folder: Path, config: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "remuda.cli", "launch", config, *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_imports_meanwhile_and_ctrl_c_ends_both(folder: Path, started: list[subprocess.Popen[str]]) -> None:
    command = launch(folder, "slow.yaml")
    started.append(command)
    until((folder / "building").exists, "the check of the environment")
    [nanny] = psutil.Process(command.pid).children()
    assert "remuda.deploy.nanny" in nanny.cmdline()
    command.send_signal(signal.SIGINT)
    out, said = command.communicate(timeout=HANG_S)
    assert (command.returncode, out, said) == (130, "", "")
    assert not nanny.is_running()
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("arguments", [["train", "a.yaml"], ["launch", "--help"], ["launch", "a.yaml", "--dry-run"]])
def test_only_a_launch_starts_one(arguments: list[str]) -> None:
    with prestarted_nanny(arguments) as nanny:
        assert nanny is None
