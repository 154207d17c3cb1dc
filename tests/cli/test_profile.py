"""`--profile`: every process of a run leaves a page that says where its time went, in log/profile/ of the run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.tests.patience import HANG_S

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("forked")]

CONFIG = """
name: profiled
env: {id: CartPole-v1, num_envs: 2}
evaluator: {episodes: 1, interval_env_steps: 1000000}
buffer: {min_rows: 100, samples_per_insert: 32}
stop: {max_env_steps: 2000}
"""
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_000001"


def profiles(folder: Path, verb: str) -> Path:
    (folder / "config.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "remuda.cli", verb, "config.yaml", "--run-dir", "run", "--profile"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    kept = folder / "run" / "log" / "profile"
    assert f"profiles: {kept}" in done.stdout
    return kept


def test_serial_mode_is_one_process(tmp_path: Path) -> None:
    kept = profiles(tmp_path, "train")
    assert sorted(path.name for path in kept.iterdir()) == ["serial.folded", "serial.txt"]
    assert "runner/" in (kept / "serial.txt").read_text()


def test_every_role_of_a_launch_says_where_its_time_went(tmp_path: Path) -> None:
    kept = profiles(tmp_path, "launch")
    names = sorted(re.sub(UUID, "UUID", path.name) for path in kept.glob("*.txt"))
    assert names == [
        "collector_UUID.txt",
        "collector_UUID.txt",
        "coordinator.txt",
        "evaluator_UUID.txt",
        "learner_UUID.txt",
    ]
    assert len(list(kept.glob("*.folded"))) == len(names)
    for role, where in (("learner", "learner/loop.py"), ("collector", "collector/"), ("coordinator", "Service.run")):
        stacks = [page.read_text() for page in kept.glob(f"{role}*.folded")]  # the page has the longest alone
        assert any(where in page for page in stacks), role  # one collector may have done all the work
