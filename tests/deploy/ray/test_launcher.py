"""`--on ray` without Ray: what is planned, what is missing, and what the user is told."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from remuda.client.client import Client
from remuda.config.launching import LaunchConfig
from remuda.deploy.launcher import LaunchError, LaunchRequest, WorkerCounts, make_launcher
from remuda.deploy.ray.launcher import RayLauncher
from remuda.tests.patience import HANG_S, until
from remuda.tests.worker.leases import small_config
from remuda.wire import connection_file

WITHOUT_RAY = """#!/bin/sh
case "$*" in
*remuda.deploy.ray.herd*)
    while [ "$1" != --node-file ]; do shift; done
    printf 127.0.0.1 > "$2.new" && mv "$2.new" "$2"
    exec sleep 600 ;;
*) exec {python} "$@" ;;
esac
"""
"""An interpreter that joins no cluster, and has no workers placed."""


@pytest.fixture
def _ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.deploy.ray.launcher.find_spec", lambda name: object())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def request(folder: Path, **ray: object) -> LaunchRequest:
    return LaunchRequest(folder / "runs", "horse", LaunchConfig.model_validate({"on": "ray", "ray": ray}))


def test_a_missing_ray_is_told_with_its_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.deploy.ray.launcher.find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"pip install 'remuda\[ray\]'"):
        make_launcher(request(tmp_path), source_dir=None)


@pytest.mark.usefixtures("_ray")
def test_a_dry_run_shows_what_each_role_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = request(tmp_path, learner={"num_gpus": 1}, collector={"num_cpus": 0.5, "custom": {"paddock": 1}})
    launcher = make_launcher(given, source_dir=None)
    assert isinstance(launcher, RayLauncher)
    coordinator, *actors = launcher.planned(WorkerCounts(collectors=2, evaluators=1)).splitlines()
    assert coordinator.endswith(f"-m remuda.coordinator --runs-dir {tmp_path}/runs --persistent --bind NODE_IP:0")
    assert actors == [
        "actors of Ray at local:",
        "2 collector: num_cpus 0.5, paddock 1",
        "1 evaluator: num_cpus 1",
        "1 learner: num_cpus 1, num_gpus 1",
    ]
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert "actors of Ray at head:6379:" in launcher.planned(WorkerCounts(collectors=2, evaluators=1))


# --- its coordinator ---
class Launched:
    """A launch whose coordinator runs, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        settings = LaunchConfig.model_validate({"on": "ray"})
        self.launcher = RayLauncher(LaunchRequest(folder / "runs", "horse", settings, say=self.said.append))
        self.launcher.start(WorkerCounts(collectors=1, evaluators=0))

    @property
    def coordinator(self) -> psutil.Process:
        """The process that the connection file names."""
        return psutil.Process(connection_file.read(self.launcher.connection_file).pid)

    def check(self) -> bool:
        """Never true. Raises LaunchError once one of both processes has ended."""
        self.launcher.check()
        return False

    def end_coordinator(self, number: signal.Signals) -> None:
        """Returns once it is gone."""
        coordinator = self.coordinator
        coordinator.send_signal(number)
        until(lambda: coordinator.status() == psutil.STATUS_ZOMBIE, "its end")


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Generator[Launched]:
    request.getfixturevalue("_ray")
    interpreter = tmp_path / "python"
    interpreter.write_text(WITHOUT_RAY.format(python=sys.executable))
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    launched = Launched(tmp_path)
    try:
        yield launched
    finally:
        launched.launcher.stop()
        assert list(temporary.iterdir()) == []


@pytest.mark.processes
def test_a_killed_coordinator_is_started_again_at_its_address(launched: Launched) -> None:
    """As by `launch`, which asks for the run's status all the time. One that ends by itself ends the launch."""
    before = connection_file.read(launched.launcher.connection_file)
    with Client(launched.launcher.connection_file, answer_deadline_s=HANG_S) as client:
        submitted = client.submit(small_config())
        launched.end_coordinator(signal.SIGKILL)
        ended = client.follow(
            submitted.experiment, lambda status: None, check=launched.launcher.check, stop=lambda: True
        )
    assert ended.state == "stopped", "and without patience: the question has not come to its deadline"
    after = connection_file.read(launched.launcher.connection_file)
    assert (after.address, after.server_key) == (before.address, before.server_key)
    assert after.pid != before.pid
    assert launched.said[0] == "the coordinator ended with signal 9 (SIGKILL); starting it again in 1 s"
    launched.end_coordinator(signal.SIGTERM)
    with pytest.raises(LaunchError, match="the coordinator process ended with exit code 0"):
        until(lambda: launched.check(), "the end of all its threads")


@pytest.mark.processes
def test_a_coordinator_that_keeps_dying_ends_the_launch(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.deploy.supervision.DEATHS_IN_A_ROW", 1)
    launched.end_coordinator(signal.SIGKILL)
    with pytest.raises(LaunchError, match="the coordinator process ended with exit code -9"):
        until(lambda: launched.check(), "the end of all its threads")
