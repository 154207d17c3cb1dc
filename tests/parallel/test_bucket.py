"""A run without a network file system: its machine is gone, and the run goes on elsewhere from a bucket alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from remuda.storage.bucket.address import read_mark
from remuda.tests.faults.herd import assert_exact_run
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.reading import joined
from remuda.tests.parallel.s3 import RUNS, environment_of, run_in, s3_server
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.ports import free_ports
from remuda.tests.warm.program import REMUDA

pytestmark = pytest.mark.processes

ADDRESS = f"{RUNS}/horse"


def shipped(cache: Path) -> int:
    """Generations that the machine with this cache has shipped."""
    mark = read_mark(run_in(cache, "horse"))
    return 0 if mark is None else mark.number


def test_a_run_goes_on_from_its_bucket_when_its_machine_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a server that is busy, tears uploads and lists late. The process that ships is killed, then every process
    of the run at once; a command with another home resumes from the bucket, and the counters are exact to the end."""
    (port,) = free_ports(1)
    user = UserFolder.make(tmp_path / "user", {"env": {"kwargs": {"pause_s": 0.002}}})
    with user.config.open("a") as config:
        config.write("storage: {ship_interval_s: 0.5}\n")
    homes = [tmp_path / "first", tmp_path / "second"]
    with s3_server("127.0.0.1", port, tmp_path / "server.log", rate=0.05):
        for name, value in environment_of("127.0.0.1", port, homes[0]).items():
            monkeypatch.setenv(name, value)
        first = Command(tmp_path / "1", user.root, "launch", user.config, "--run-dir", ADDRESS)
        try:
            until(lambda: (run_in(homes[0], "horse") / "ckpt" / "index.json").exists(), "something to continue from")
            begun = shipped(homes[0])
            until(lambda: shipped(homes[0]) >= begun + 2, "two generations")
            (shipper,) = [one for one in first.family() if "remuda.storage.bucket" in one.cmdline()]
            shipper.send_signal(signal.SIGKILL)
            before = shipped(homes[0])
            until(lambda: shipped(homes[0]) > before, "the process that ships is back")
        finally:
            first.kill_all()
        monkeypatch.setenv("XDG_CACHE_HOME", str(homes[1]))
        second = Command(tmp_path / "2", user.root, "launch", "--resume", "--run-dir", ADDRESS)
        try:
            ended = second.ended()
        finally:
            second.end()
        assert ended.code == 0, ended.err
        assert "restored generation 1/" in ended.err
        here = run_in(homes[1], "horse")
        assert assert_exact_run(here, alone=False) >= 3_000
        fetched = subprocess.run(
            [REMUDA, "fetch", ADDRESS, "copy"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert fetched.returncode == 0, fetched.stderr
        assert assert_exact_run(tmp_path / "copy", alone=False) == assert_exact_run(here, alone=False)
        index = json.loads((tmp_path / "copy" / "ckpt" / "index.json").read_text())
        assert index == json.loads((here / "ckpt" / "index.json").read_text())
        refused = subprocess.run(
            [REMUDA, "train", user.config, "--run-dir", ADDRESS],
            cwd=user.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 2
        assert "--resume" in refused.stderr


@pytest.mark.faults_long
@pytest.mark.parametrize("role", ["launch", "coordinator", "learner", "collector", "evaluator", "bucket"])
def test_a_run_in_a_bucket_is_exact_whoever_is_killed(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any moment. A run that ends by it goes on elsewhere; what was not copied is lost, and nothing counts twice."""
    (port,) = free_ports(1)
    user = UserFolder.make(tmp_path / "user", {"env": {"kwargs": {"pause_s": 0.01}}})
    with user.config.open("a") as config:
        config.write("storage: {ship_interval_s: 0.5}\n")
    chance = random.Random(role)
    with s3_server("127.0.0.1", port, tmp_path / "server.log", rate=0.05):
        for name, value in environment_of("127.0.0.1", port, tmp_path / "first").items():
            monkeypatch.setenv(name, value)
        command = Command(tmp_path / "1", user.root, "launch", user.config, "--run-dir", ADDRESS)
        try:
            here = run_in(tmp_path / "first", "horse")
            until(lambda: (here / "ckpt" / "index.json").exists(), "something to continue from")
            moment = shipped(tmp_path / "first") + 1 + chance.randrange(2)
            until(lambda: shipped(tmp_path / "first") >= moment, "the moment")
            os.kill(pid_of(role, command, here), signal.SIGKILL)
            code = command.process.wait(HANG_S)
            until(lambda: not command.family(), "the last copy")
        finally:
            command.kill_all()
        if code:
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))
            again = Command(tmp_path / "2", user.root, "launch", "--resume", "--run-dir", ADDRESS)
            try:
                ended = again.ended()
            finally:
                again.end()
            assert ended.code == 0, ended.err
        fetched = subprocess.run([REMUDA, "fetch", ADDRESS, "copy"], cwd=tmp_path, capture_output=True, check=False)
        assert fetched.returncode == 0, fetched.stderr
        env_step = assert_exact_run(tmp_path / "copy", alone=False)
        assert env_step >= 3_000
        print(f"killed {role} at generation {moment}: exit {code}, env_step {env_step}")


def pid_of(role: str, command: Command, run: Path) -> int:
    match role:
        case "launch":
            return command.process.pid
        case "coordinator":
            return command.coordinator_pid
        case "bucket":
            return next(one.pid for one in command.family() if "remuda.storage.bucket" in one.cmdline())
    return next(one.pid for one in joined(run / "log" / "coordinator_logger.txt") if one.role == role)
