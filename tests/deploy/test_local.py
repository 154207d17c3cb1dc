"""The local launcher with a real coordinator and real workers: nothing that it started outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from remuda.client.client import Client
from remuda.deploy.launcher import LaunchError, LaunchRequest, WorkerCounts
from remuda.deploy.local import LocalLauncher
from remuda.tests.patience import HANG_S, until, until_gone

pytestmark = pytest.mark.processes

HERD = WorkerCounts(collectors=1, evaluators=1)

LAUNCHING = """
import sys, time
from pathlib import Path
from remuda.deploy.launcher import LaunchRequest, WorkerCounts
from remuda.deploy.local import LocalLauncher
with LocalLauncher(LaunchRequest(Path(sys.argv[1]))) as launcher:
    launcher.start(WorkerCounts(collectors=1, evaluators=1))
    print(launcher.connection_file, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for what the launcher makes, so that what it leaves is seen."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def using(folder: Path) -> list[psutil.Process]:
    """Every process whose temporary files go to this folder: coordinator, nanny, and the nanny's children. The one that
    runs the code LAUNCHING does not count."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder) and "-c" not in process.cmdline():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def all_registered(connection_file: Path, workers: int = 3) -> bool:
    with Client(connection_file) as client:
        return len(client.status().workers) == workers


def test_what_is_planned_is_what_is_started(tmp_path: Path, temporary_folder: Path) -> None:
    launcher = LocalLauncher(LaunchRequest(tmp_path / "my runs", limits=["stuck_after_s=600"]))
    lines = launcher.planned(WorkerCounts(collectors=3, evaluators=1, reanalyzers=2)).splitlines()
    assert lines == [
        f"{sys.executable} -P -m remuda.coordinator --runs-dir '{tmp_path}/my runs' --limit stuck_after_s=600",
        f"{sys.executable} -P -m remuda.deploy.nanny --give-up --collectors 3 --evaluators 1 --learners 1 "
        f"--reanalyzers 2 --inference 0 --coordinator-timeout 3600.0 --runs-dir '{tmp_path}/my runs'",
    ]
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.usefixtures("forked")
def test_after_a_shutdown_everything_ends_by_itself(tmp_path: Path, temporary_folder: Path) -> None:
    with LocalLauncher(LaunchRequest(tmp_path / "runs")) as launcher:
        launcher.start(HERD)
        until(lambda: all_registered(launcher.connection_file), "the herd")
        launcher.check()
        processes = using(temporary_folder)
        assert len(processes) == 5  # coordinator, nanny, three workers
        with Client(launcher.connection_file) as client:
            assert sorted(worker.role for worker in client.status().workers) == ["collector", "evaluator", "learner"]
            client.shutdown()
        assert launcher.wait(HANG_S)
        assert not any(process.is_running() for process in processes)
    assert list(temporary_folder.iterdir()) == []
    assert not (tmp_path / "runs").exists(), "nothing is written before there is a run"


def test_an_early_death_is_quoted(tmp_path: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text('#!/bin/sh\necho "no room at the inn" >&2\nexit 7\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    with LocalLauncher(LaunchRequest(tmp_path)) as launcher, pytest.raises(LaunchError) as caught:
        launcher.start(HERD)
    assert "process ended with exit code 7" in str(caught.value)
    assert "--- coordinator ---\nno room at the inn" in str(caught.value)
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", ["coordinator", "nanny"])
def test_one_that_dies_later_is_noticed_and_the_rest_ended(tmp_path: Path, temporary_folder: Path, name: str) -> None:
    with LocalLauncher(LaunchRequest(tmp_path)) as launcher:
        launcher.start(HERD)
        until(lambda: all_registered(launcher.connection_file), "the herd")
        processes = using(temporary_folder)
        [victim] = [
            p
            for p in processes
            if f"remuda.{'deploy.' * (name == 'nanny')}{name}" in p.cmdline() and p.ppid() == os.getpid()
        ]
        victim.kill()
        os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)  # all its threads: a zombie may have some left
        with pytest.raises(LaunchError, match="process ended with exit code -9"):
            launcher.check()
    until_gone(processes)
    assert list(temporary_folder.iterdir()) == []


def test_killed_itself_it_leaves_no_process(tmp_path: Path, temporary_folder: Path) -> None:
    launching = subprocess.Popen(
        [sys.executable, "-P", "-c", LAUNCHING, str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True
    )
    processes: list[psutil.Process] = []
    try:
        assert launching.stdout is not None
        connection_file = Path(launching.stdout.readline().strip())
        until(lambda: all_registered(connection_file), "the herd")
        processes = using(temporary_folder)
        assert len(processes) == 5
        launching.send_signal(signal.SIGKILL)
        until_gone(processes)
        assert not connection_file.exists()  # the coordinator ended in order
    finally:
        launching.kill()
        launching.communicate()
        for process in processes:
            if process.is_running():
                process.kill()
