"""Wrong input to `remuda launch`: one clear message, exit code 2, nothing written, no process started."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

from remuda.tests.cli.terminal import Terminal
from remuda.tests.imports import imported_by
from remuda.tests.patience import HANG_S

GOOD = "name: mine\nenv: {id: CartPole-v1}\nstop: {max_env_steps: 1000}\n"
MODULE = """
import gymnasium
import remuda
class Misspelt(remuda.Callback):
    def on_evaluate(self, event, run):
        run.stop("never")
class Continuous(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (2,))
def continuous():
    return Continuous()
def broken():
    raise RuntimeError("no display")
"""
LAUNCHER = """
from remuda.deploy.launcher import LaunchError, Launcher
class Stuck(Launcher):
    def __init__(self, request):
        self.request = request
    def start(self, workers, *, given_up):
        raise LaunchError("no room")
    def stop(self):
        raise OSError("the queue is closed")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is typed. Starting a process or making a temporary file fails the test."""

    def no(*arguments: object, **options: object) -> NoReturn:
        raise AssertionError(f"something was started or written: {arguments}")

    platform.processor()  # the import of h5py asks `uname` once
    monkeypatch.setattr(subprocess, "Popen", no)
    monkeypatch.setattr(tempfile, "mkdtemp", no)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMUDA_RUNS_DIR", raising=False)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "launch_test_env.py").write_text(MODULE)
    return tmp_path


def listing(folder: Path) -> list[str]:
    """Compiled modules apart, which Python writes."""
    return sorted(str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GOOD.replace("CartPole-v1", "CartPol-v1"), "CartPole"),
        (GOOD.replace("id: CartPole-v1", "make: 'launch_test_env:broken'"), "no display"),
        (GOOD.replace("id: CartPole-v1", "make: 'launch_test_env:continuous'"), "action space"),
        (GOOD + "colector: {count: 3}\n", "config.yaml:4: colector: no such setting; did you mean collector?"),
    ],
)
def test_a_wrong_config(terminal: Terminal, folder: Path, config: str, message: str) -> None:
    (folder / "config.yaml").write_text(config)
    before = listing(folder)
    ended = terminal.remuda("launch", "config.yaml")
    assert ended.code == 2
    assert ended.out == ""
    assert "config.yaml" in ended.err
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert listing(folder) == before


@pytest.mark.parametrize("command", ["launch", "submit"])
def test_a_misspelt_method_of_a_callback(terminal: Terminal, folder: Path, command: str) -> None:
    """The learner found it, after processes were started."""
    ended = terminal.remuda(command, "good.yaml", "--set", "callbacks=['launch_test_env:Misspelt']")
    assert ended.code == 2
    assert "did you mean on_evaluation?" in ended.err


@pytest.mark.parametrize("setting", ["learner.device", "collector.device"])
def test_a_device_that_this_machine_lacks_starts_nothing(terminal: Terminal, folder: Path, setting: str) -> None:
    before = listing(folder)
    ended = terminal.remuda("launch", "good.yaml", "--set", f"{setting}=cuda:77")
    assert ended.code == 2
    assert f"{setting} = 'cuda:77' cannot be used: " in ended.err
    assert listing(folder) == before


@pytest.mark.parametrize("on", [(), ("--on", "local")])
def test_a_dry_run_prints_the_commands_alone(terminal: Terminal, folder: Path, on: tuple[str, ...]) -> None:
    before = listing(folder)
    ended = terminal.remuda("launch", "good.yaml", "--dry-run", "--collectors", "3", *on)
    assert (ended.code, ended.err) == (0, "")
    coordinator, workers = ended.out.splitlines()
    assert coordinator.endswith(f"-m remuda.coordinator --runs-dir {folder / 'runs'}")
    assert "-m remuda.deploy.nanny --give-up --collectors 3 --evaluators 1" in workers
    assert listing(folder) == before


@pytest.mark.parametrize("given", [("good.yaml",), ("--resume",)])
def test_an_engine_is_refused_at_an_address(terminal: Terminal, folder: Path, given: tuple[str, ...]) -> None:
    before = listing(folder)
    ended = terminal.remuda("launch", *given, "--run-dir", f"file://{folder}/bucket/x", "--on", "slurm")
    assert ended.code == 2
    assert "launch.on is slurm" in ended.err
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("submit",), "the workers may be on other machines"),
        (("launch", "--on", "slurm", "--dry-run"), "launch.on is slurm"),
        (("sweep", "--dry-run"), "the runs of a sweep share the machine"),
    ],
)
def test_auto_is_refused_where_unmeasured(terminal: Terminal, folder: Path, command: tuple[str, ...], why: str) -> None:
    (folder / "grid.yaml").write_text("name: sizes\nconfig: good.yaml\ngrid: {learner.batch_size: [8]}\n")
    verb, *options = command
    file = "grid.yaml" if verb == "sweep" else "good.yaml"
    ended = terminal.remuda(verb, file, *options, "--set", "env.num_envs=auto")
    assert ended.code == 2
    assert "env.num_envs: cannot be auto here" in ended.err
    assert why in ended.err


@pytest.mark.parametrize("command", ["train", "launch", "submit"])
@pytest.mark.parametrize("setting", ["buffer.demonstrations", "learner.initialize_from_demonstrations"])
def test_demonstrations_that_cannot_be_read_start_nothing(
    terminal: Terminal, folder: Path, command: str, setting: str
) -> None:
    pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
    pytest.importorskip("h5py", reason="needs pip install 'remuda[datasets]'")
    before = listing(folder)
    ended = terminal.remuda(command, "good.yaml", "--set", "policy.type=dqn", "--set", f"{setting}=nowhere-v0")
    assert ended.code == 2
    assert f"{folder / 'nowhere-v0'} cannot be read as a Minari dataset" in ended.err
    assert listing(folder) == before


@pytest.mark.processes
@pytest.mark.parametrize("verb", ["train", "launch"])
def test_a_constructor_that_hangs_ends_the_command(tmp_path: Path, verb: str) -> None:
    (tmp_path / "hanging.py").write_text(f"import time\ndef make():\n    time.sleep({10 * HANG_S})\n")
    (tmp_path / "hangs.yaml").write_text(GOOD.replace("id: CartPole-v1", "make: 'hanging:make', build_timeout_s: 0.1"))
    command = [sys.executable, "-P", "-m", "remuda.cli", verb, "hangs.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert ended.returncode == 1
    assert "hanging:make could not be built: it hung for 0.25 s (env.build_timeout_s); stacks:" in ended.stderr
    assert f'"{tmp_path / "hanging.py"}", line 3 in make' in ended.stderr
    assert not (tmp_path / "runs").exists()


def test_an_error_while_a_launcher_stops_hides_no_error_before(terminal: Terminal, folder: Path) -> None:
    (folder / "launch_test_launcher.py").write_text(LAUNCHER)
    ended = terminal.remuda("launch", "good.yaml", "--on", "launch_test_launcher:Stuck")
    assert ended.code == 1
    assert "no room\nthen the launcher could not be stopped: OSError: the queue is closed\n" in ended.err


def test_a_full_disk(terminal: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ended = terminal.remuda("launch", "good.yaml")
    assert ended.code == 2
    assert f"No space left on device (in {folder})" in ended.err


def test_nobody_waits_for_torch_before_a_run_with_new_weights_starts(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    program = (
        "from pathlib import Path; from remuda.cli.options import RunOptions; from remuda.client import checking;"
        "run = RunOptions(config=Path('good.yaml')).resolved();"
        "checking.check_launch(run.loaded, run.run_dir, run.on_exists)"
    )
    brought = imported_by(program, cwd=tmp_path)
    assert "gymnasium" in brought, "the environment was built"
    assert "torch" not in brought
