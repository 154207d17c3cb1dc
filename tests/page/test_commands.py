"""Commands that requests wait for end with the page, and with all that they have started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from remuda.page.commands import BrokenOffError, Commands
from remuda.tests.patience import HANG_S, until, until_gone

pytestmark = pytest.mark.processes

STARTS_ANOTHER = """
import os, pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1_000)"])
pathlib.Path("both.tmp").write_text(f"{os.getpid()} {child.pid}")
os.rename("both.tmp", "both")
child.wait()
"""


@pytest.fixture
def commands() -> Generator[Commands]:
    made = Commands()
    yield made
    made.close()


def run(commands: Commands, folder: Path, code: str, within_s: float = HANG_S) -> subprocess.CompletedProcess[str]:
    return commands.run([sys.executable, "-S", "-c", code], folder=folder, within_s=within_s)


def test_a_command_is_run_in_its_folder(commands: Commands, tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd()); sys.stderr.buffer.write(b'\\xff'); sys.exit(3)"
    ended = run(commands, tmp_path, code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, f"{os.path.realpath(tmp_path)}\n", "\ufffd")


def test_one_that_takes_too_long_is_killed(commands: Commands, tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(commands, tmp_path, "import time; time.sleep(1_000)", within_s=0.05)


def test_the_end_kills_it_with_all_that_it_has_started_and_lets_none_begin(commands: Commands, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(run, commands, tmp_path, STARTS_ANOTHER)
        until((tmp_path / "both").exists, "both processes")
        both = [psutil.Process(int(pid)) for pid in (tmp_path / "both").read_text().split()]
        commands.close()
        with pytest.raises(BrokenOffError, match="ended before"):
            asked.result(HANG_S)
    until_gone(both)
    with pytest.raises(BrokenOffError, match="was not started"):
        run(commands, tmp_path, "")


def test_one_that_was_over_before_the_end_has_its_outcome(commands: Commands, tmp_path: Path) -> None:
    assert run(commands, tmp_path, "print(1)").stdout == "1\n"
    commands.close()
    commands.close()
