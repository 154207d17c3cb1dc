"""Commands and evaluations are bounded in number, time and output, and end with the page."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from remuda.page import commands as module
from remuda.page.commands import BrokenOffError, CommandError, Commands, Evaluations, RequestedEvaluation
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


def test_what_it_prints_is_followed_until_the_reader_leaves_or_the_time_is_over(commands: Commands) -> None:
    code = "import os, time; print(os.getpid(), flush=True); print('half', end='', flush=True); time.sleep(1_000)"
    following = commands.follow([sys.executable, "-S", "-c", code], within_s=HANG_S)
    process = psutil.Process(int(next(filter(None, following))))
    following.close()
    until_gone([process])
    with pytest.raises(CommandError, match="it took longer than 0 s"):
        list(commands.follow([sys.executable, "-S", "-c", code], within_s=0))
    with pytest.raises(CommandError, match="three"):
        list(commands.follow([sys.executable, "-S", "-c", "import sys; sys.exit('three')"], within_s=HANG_S))


@pytest.fixture
def evaluations() -> Generator[Evaluations]:
    made = Evaluations()
    yield made
    made.close()


def begin(evaluations: Evaluations, code: str) -> RequestedEvaluation | None:
    return evaluations.begin("a", "best", 1, True, [sys.executable, "-S", "-c", code])


def ended(evaluations: Evaluations) -> RequestedEvaluation:
    until(lambda: evaluations.all[0].state != "running", "its end")
    return evaluations.all[0]


def test_what_it_prints_is_its_result(evaluations: Evaluations) -> None:
    begin(evaluations, "print('{\"reward_mean\": 2.5}')")
    assert (ended(evaluations).state, ended(evaluations).return_mean) == ("done", 2.5)


def test_why_it_failed_is_the_end_of_what_it_says(evaluations: Evaluations) -> None:
    begin(evaluations, "import sys; sys.stderr.write('x' * 100_000 + '\\n\\xff\\none\\ntwo\\nthree'); sys.exit(2)")
    assert (ended(evaluations).state, ended(evaluations).message) == ("failed", "one\ntwo\nthree")


def test_one_that_prints_too_much_has_failed(evaluations: Evaluations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OUTPUT_BYTES", 1 << 20)
    begin(evaluations, "print(' ' * (1 << 20) + '{}')")
    assert (ended(evaluations).state, ended(evaluations).message) == ("failed", "the command printed more than 1 MiB")


def test_one_that_takes_too_long_is_ended(evaluations: Evaluations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_S", 0.05)
    begin(evaluations, "import time; time.sleep(1_000)")
    assert ended(evaluations).message == "it took longer than 0.05 s"


def test_at_the_end_all_end_and_none_begins(evaluations: Evaluations) -> None:
    for _ in range(module.AT_ONCE):
        assert begin(evaluations, "import time; time.sleep(1_000)") is not None
    assert begin(evaluations, "") is None, "so many go on at once"
    evaluations.close()
    assert [each.state for each in evaluations.all] == ["failed"] * module.AT_ONCE
    assert begin(evaluations, "") is None
