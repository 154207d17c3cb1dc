"""What is forked is a process like any other: its parent, what it is told, how it ends, what others see of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from remuda.tests.patience import HANG_S
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


def test_signals_reach_it_and_others_find_it_by_its_command_in_its_session() -> None:
    command = [sys.executable, "-P", "-c", "import time; time.sleep(600)", "a place"]
    process = Popen(command, start_new_session=True)
    seen = psutil.Process(process.pid)
    assert [part for part in seen.cmdline() if part] == command
    assert seen.environ() == dict(os.environ)
    assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGTERM)
    assert ended(process) == -signal.SIGTERM
