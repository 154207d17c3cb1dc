"""A run without a network file system: its machine is gone, and the run goes on elsewhere from a bucket alone."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.storage.bucket.address import read_mark
from remuda.tests.faults.herd import Herd, assert_exact_run
from remuda.tests.faults.sizes import BUCKET_KILLS
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.reading import joined, last_checkpoint, wait_for_learner
from remuda.tests.parallel.s3 import RUNS, environment_of, folder_in, run_in, s3_server
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.ports import free_ports
from remuda.tests.warm.program import REMUDA

pytestmark = pytest.mark.processes
shares_the_server = pytest.mark.xdist_group("an S3 server")

ADDRESS = f"{RUNS}/horse"
ENDLESS: dict[str, dict[str, object]] = {
    "env": {"kwargs": {"pause_s": 0.02}},
    "buffer": {"capacity": 500_000},
    "stop": {"max_env_steps": 1_000_000},
}
"""Until somebody ends the run; no chunk is evicted."""


def shipped(cache: Path) -> int:
    """Generations that the machine with this cache has shipped."""
    mark = read_mark(run_in(cache, "horse"))
    return 0 if mark is None else mark.number


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    """Port of a server that is busy, tears uploads and lists late; each test has names of its own in the bucket."""
    (port,) = free_ports(1)
    with s3_server("127.0.0.1", port, tmp_path_factory.mktemp("s3") / "server.log", rate=0.05):
        yield port


@shares_the_server
def test_a_run_goes_on_from_its_bucket_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """The process that ships is killed, then every process of the run at once; a command with another home resumes from
    the bucket, and the counters are exact to the end."""
    user = UserFolder.make(tmp_path / "user", {"env": {"kwargs": {"pause_s": 0.002}}})
    with user.config.open("a") as config:
        config.write("storage: {ship_interval_s: 0.5}\n")
    homes = [tmp_path / "first", tmp_path / "second"]
    for name, value in environment_of("127.0.0.1", port, homes[0]).items():
        monkeypatch.setenv(name, value)
    first = Command(tmp_path / "1", user.root, "launch", user.config, "--run-dir", ADDRESS)
    try:
        until(lambda: (run_in(homes[0], "horse") / "ckpt" / "index.json").exists(), "something to continue from")
        begun = shipped(homes[0])
        until(lambda: shipped(homes[0]) >= begun + 2, "two generations")
        (shipper,) = first.family_of("remuda.storage.bucket")
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
        [REMUDA, "train", user.config, "--run-dir", ADDRESS], cwd=user.root, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "--resume" in refused.stderr


LISTED_BEFORE = """
import sys, urllib.request as r
from remuda.storage.bucket.store import Retries, Store
address, url = sys.argv[1:]
store = Store.at(address, Retries())
store.write("epochs/owner.json", b"{}")
assert store.listed("epochs") == ["epochs/owner.json"]
r.urlopen(r.Request(url, b"content", {"Content-Type": "text/plain"}, method="PUT"), timeout=5)
assert store.read("epochs/1.json") == b"content"
assert store.size("epochs/1.json") == 7
"""


@shares_the_server
def test_an_object_that_was_written_after_a_list_is_there(tmp_path: Path, port: int) -> None:
    """A run whose first generation was not on a list yet must not count as no run."""
    url = f"http://127.0.0.1:{port}/herd/listed/epochs/1.json"
    asked = subprocess.run(
        [sys.executable, "-c", LISTED_BEFORE, "s3://herd/listed", url],
        env={**os.environ, **environment_of("127.0.0.1", port, tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr


def a_seed() -> int:
    """Of the moments at which somebody is killed; give the printed number again as REMUDA_SEED."""
    return int(os.environ.get("REMUDA_SEED") or secrets.randbelow(1_000_000))


ROLES = ["launch", "coordinator", "learner", "collector", "evaluator", "shipper", "server", "machine"]


@pytest.mark.faults_long
@pytest.mark.parametrize("role", ROLES)
def test_a_run_in_a_bucket_survives_any_kill(role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any moment. A run that ends by it goes on, here or on another machine; what was not copied is lost with a
    machine, and nothing counts twice. The bucket's server and the whole machine are killed as well."""
    seed = a_seed()
    print(f"{role}: seed {seed}")
    chance, machines = random.Random(seed), 1
    (port,) = free_ports(1)
    user = UserFolder.make(tmp_path / "user", ENDLESS)
    with user.config.open("a") as config:
        config.write("storage: {ship_interval_s: 0.5}\n")
    with s3_server("127.0.0.1", port, tmp_path / "server.log", rate=0.05) as server:
        for name, value in environment_of("127.0.0.1", port, tmp_path / "home1").items():
            monkeypatch.setenv(name, value)
        command = begun(tmp_path / "0", user, run_in(tmp_path / "home1", "horse"))
        try:
            for number in range(BUCKET_KILLS):
                time.sleep(chance.choice([0.0, chance.uniform(0.0, 12.0)]))  # the moment
                match role:
                    case "server":
                        server.start_again()
                    case "machine":
                        command.kill_all()
                    case _:
                        kill_one(role, command, run_in(tmp_path / f"home{machines}", "horse"))
                if role not in ("launch", "coordinator", "machine") and command.process.poll() is None:
                    continue
                code = code_of(command)
                print(f"kill {number + 1}: exit {code}, {shipped(tmp_path / f'home{machines}')} generations")
                if role == "machine" or chance.random() < 0.5:
                    machines += 1
                    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"home{machines}"))
                command = begun(tmp_path / f"{number + 1}", user, run_in(tmp_path / f"home{machines}", "horse"))
            here = run_in(tmp_path / f"home{machines}", "horse")
            until(lambda: (here / "ckpt" / "index.json").exists(), "the run goes on")
            wait_for_learner(here)
            until(lambda: shipped(tmp_path / f"home{machines}") >= 3, "it is copied")
            command.process.send_signal(signal.SIGINT)
            ended = command.ended()
        finally:
            command.end()
        assert ended.code == 0, ended.err
        fetched = subprocess.run([REMUDA, "fetch", ADDRESS, "copy"], cwd=tmp_path, capture_output=True, check=False)
        assert fetched.returncode == 0, fetched.stderr
        print(f"{role}: env_step {assert_exact_run(tmp_path / 'copy', alone=False)} after {BUCKET_KILLS} kills")


def begun(scratch: Path, user: UserFolder, here: Path) -> Command:
    """The run continues, in the folder `here`; it begins if the former command was killed before there was something to
    continue."""
    command = Command(scratch, user.root, "launch", "--resume", "--run-dir", ADDRESS)

    def continues() -> bool:
        has_checkpoint = (here / "ckpt" / "index.json").exists() and last_checkpoint(here) >= 0
        return has_checkpoint and bool(command.family_of("remuda.coordinator"))

    until(lambda: command.process.poll() is not None or continues(), "the command begins")
    if command.process.poll() in (2, 3):
        assert any(why in command.said() for why in ("holds no run", "no checkpoint", "no config.json")), command.said()
        return Command(Path(f"{scratch}b"), user.root, "launch", user.config, "--force", "--run-dir", ADDRESS)
    return command


def code_of(command: Command) -> int:
    """How it ends, and everything that it has started."""
    code = command.process.wait(HANG_S)
    until(lambda: not command.family(), "the last copy")
    return code


def kill_one(role: str, command: Command, run: Path) -> None:
    """Kill a process of the run, as soon as there is one with this role; none if earlier kills, one quickly after the
    other, have ended the run."""
    many = f"the process of {ADDRESS} ended with -9\n" if role == "shipper" else f"deaths of {role}s in a row"

    def killed() -> bool:
        if command.process.poll() is not None:
            assert many in command.said(), command.said()
            return True
        match role:
            case "launch":
                found = [command.process.pid]
            case "coordinator":
                found = [one.pid for one in command.family_of("remuda.coordinator")]
            case "shipper":
                found = [one.pid for one in command.family_of("remuda.storage.bucket")]
            case _:
                log = run / "log" / "coordinator_logger.txt"
                living = {one.pid for one in command.family()}
                found = (
                    [one.pid for one in joined(log) if one.role == role and one.pid in living] if log.exists() else []
                )
        for pid in found[:1]:
            os.kill(pid, signal.SIGKILL)
        return bool(found)

    until(killed, f"a {role} to kill")


@shares_the_server
def test_the_runs_of_a_coordinator_go_on_on_another_machine(tmp_path: Path, port: int) -> None:
    """Each time that its machine is lost, at any moment: a run and a sweep, one of which has to wait, come to their end
    when the same commands are typed again, and are exact."""
    seed = a_seed()
    print(f"coordinator: seed {seed}")
    chance, runs = random.Random(seed), "s3://herd/ranch"
    user = UserFolder.make(tmp_path / "user", {"env": {"kwargs": {"pause_s": 0.005}}})
    with user.config.open("a") as config:
        config.write("storage: {ship_interval_s: 0.5}\n")
    (user.root / "grid.yaml").write_text("{name: pair, config: horse.yaml, grid: {learner.batch_size: [16]}}")

    def machine(number: int) -> tuple[Herd, subprocess.Popen[bytes]]:
        home = tmp_path / f"home{number}"
        herd = Herd(home, options=("--runs-dir", runs), env=environment_of("127.0.0.1", port, home))
        herd.runs = folder_in(home, runs)
        herd.coordinator()
        if number == 0:
            herd.submit(user, "horse")
        grid = (user.root / "grid.yaml", "--runs-dir", runs, "--connection-file", herd.connection_file)
        return herd, herd.start("sweep", REMUDA, "sweep", *grid)

    herd, sweep = machine(0)
    try:
        until(lambda: fetched(herd, f"{runs}/pair", herd.root / "seen"), "run and sweep are in the bucket")
        for number in range(BUCKET_KILLS):
            herd.workers()
            herd.wait_members(4)
            time.sleep(chance.uniform(0.0, 10.0))  # the moment
            herd.kill_all()
            herd, sweep = machine(number + 1)
        herd.workers()
        herd.wait_over("horse")
        assert sweep.wait(HANG_S) == 0, herd.said()
        herd.shut_down()
        assert "restored generation" in herd.said()
        (run,) = json.loads((herd.runs / "pair" / "sweep.json").read_text())["runs"]
    finally:
        herd.end()
    for name in ("horse", f"pair/{run['run_dir']}"):
        there = tmp_path / "copies" / name
        assert fetched(herd, f"{runs}/{name}", there)
        assert assert_exact_run(there, alone=False) >= 3_000


def fetched(herd: Herd, address: str, target: Path) -> bool:
    """Whether the newest generation of a machine's runs has this run, or this folder of runs: copy it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [str(REMUDA), "fetch", address, str(target)]
    return subprocess.run(command, capture_output=True, check=False, env={**os.environ, **herd.env}).returncode == 0
