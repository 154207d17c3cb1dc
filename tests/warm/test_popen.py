"""What is forked is a process like any other: its parent, what it is told, how it ends, what others see of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from remuda.tests.faults.herd import customized
from remuda.tests.patience import HANG_S, until, until_gone
from remuda.tests.warm.forking import NAME
from remuda.tests.warm.popen import Popen
from remuda.tests.warm.program import REMUDA, Program

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux alone")]

TELLS = """
import json, os, sys, tempfile
print(json.dumps({
    "warm": "torch" in sys.modules, "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(),
    "cwd": os.getcwd(), "environment": dict(os.environ), "arguments": sys.argv, "first": sys.path[0],
    "temporary": tempfile.gettempdir(), "name": __name__, "input": sys.stdin.read(),
}))
print("and an error", file=sys.stderr)
sys.exit(3)
"""


def ended(process: subprocess.Popen[bytes]) -> int:
    with process:
        return process.wait(HANG_S)


def test_it_is_told_what_it_is_started_with(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path / "own"), "GREETING": "hello, äöü"}
    env |= {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
    (tmp_path / "own").mkdir()
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", TELLS, "one", "two words"]
    with Popen(command, cwd=tmp_path, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        out, err = process.communicate(b"some input", timeout=HANG_S)
    told = json.loads(out)
    assert told.pop("environment") == env
    assert told == {
        "warm": True,
        "pid": process.pid,
        "parent": os.getpid(),
        "group": os.getpgrp(),
        "cwd": str(tmp_path),
        "arguments": ["-c", "one", "two words"],
        "first": "",
        "temporary": str(tmp_path / "own"),
        "name": "__main__",
        "input": "some input",
    }
    assert (err, process.returncode) == (b"and an error\n", 3)
    assert tempfile.gettempdir() != str(tmp_path / "own"), "nothing of it is left here"


def test_descriptors_keep_their_numbers_and_no_others_are_passed() -> None:
    pipes = [os.pipe() for _ in range(4)]
    given, kept = [writing for _, writing in pipes[:2]], [number for pipe in pipes[2:] for number in pipe]
    program = (
        "import os, sys\n"
        "for number in sys.argv[1].split(): os.write(int(number), number.encode())\n"
        "held = [number for number in sys.argv[2].split() if os.path.exists(f'/proc/self/fd/{number}')]\n"
        "sys.exit(len(held))"
    )
    numbers = [" ".join(map(str, some)) for some in (given, kept)]
    assert ended(Popen([sys.executable, "-c", program, *numbers], pass_fds=given)) == 0
    assert [os.read(reading, 100) for reading, _ in pipes[:2]] == [str(number).encode() for number in given]
    for number in (number for pipe in pipes for number in pipe):
        os.close(number)


def test_the_remuda_command_runs_as_its_script_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path, and by its name."""
    monkeypatch.setenv("PATH", str(REMUDA.parent), prepend=os.pathsep)
    said: set[bytes] = set()
    for start, command in ((Popen, REMUDA), (Popen, "remuda"), (subprocess.Popen, REMUDA)):
        with start([command, "--version"], stdout=subprocess.PIPE) as process:
            said.add(process.communicate(timeout=HANG_S)[0])
    assert Program.of(["remuda"]) == Program.of([str(REMUDA)]) is not None
    assert len(said) == 1
    assert b"" not in said


def test_what_a_launch_starts_is_forked_too_and_is_its_own(tmp_path: Path) -> None:
    """Its forker is its child, which ends with it."""
    (tmp_path / "config.yaml").write_text("name: idle\nenv: {id: CartPole-v1}\nstop: {max_env_steps: 100000000}\n")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = Popen(
        [REMUDA, "launch", "config.yaml", "--run-dir", "run"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    mine = psutil.Process(process.pid)
    parts = (NAME, "remuda.coordinator", "remuda.deploy.nanny")
    until(lambda: all(child_with(mine, part) for part in parts), "its forker, a coordinator and a nanny")
    forker, coordinator = child_with(mine, NAME), child_with(mine, "remuda.coordinator")
    assert coordinator is not None
    assert os.getsid(coordinator.pid) == coordinator.pid
    everybody = mine.children(recursive=True)
    assert forker in everybody
    process.kill()
    process.wait()
    until_gone(everybody)


def child_with(process: psutil.Process, part: str) -> psutil.Process | None:
    """The child that has this part in its command line; others come and go meanwhile."""
    for child in process.children():
        with suppress(psutil.NoSuchProcess):
            if part in child.cmdline():
                return child
    return None


IS_FORKED = "import sys; sys.exit('torch' in sys.modules)"


@pytest.mark.parametrize(
    ("options", "forked"),
    [
        ({}, True),
        ({"umask": 0o077}, False),
        ({"close_fds": False}, False),
        ({"env": {**os.environ, "PYTHONPATH": "/nowhere"}}, False),
    ],
)
def test_what_the_forker_cannot_do_is_done_by_the_real_command(options: dict[str, Any], forked: bool) -> None:
    assert ended(Popen([sys.executable, "-c", IS_FORKED], **options)) == forked


def test_modules_are_looked_for_as_asked_and_a_sitecustomize_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So Remuda starts the processes of environments and ranks, and tests change what a process does."""
    (tmp_path / "its_own.py").write_text("number = 7")
    site = customized(tmp_path / "site", "import os; os.environ['SITE'] = 'run'")
    program = "import os, sys; sys.exit(os.environ.get('SITE') == 'run' and 'torch' in sys.modules)"
    assert ended(Popen([sys.executable, "-c", program], env={**os.environ, **site})) == 1
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in sys.path if place)}
    program = "import sys, its_own; sys.exit(its_own.number if 'torch' in sys.modules else 0)"
    assert ended(Popen([sys.executable, "-c", program], env=env)) == 7


def test_signals_reach_it_and_others_find_it_by_its_command_in_its_session() -> None:
    command = [sys.executable, "-P", "-c", "import time; time.sleep(600)", "a place"]
    process = Popen(command, start_new_session=True)
    seen = psutil.Process(process.pid)
    assert [part for part in seen.cmdline() if part] == command
    assert seen.environ() == dict(os.environ)
    assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGTERM)
    assert ended(process) == -signal.SIGTERM
