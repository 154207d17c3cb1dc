"""What a job of an engine does with its processes: small ones, which note what they are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from remuda.deploy.job import EXIT_PREEMPTED
from remuda.tests.patience import HANG_S, until, until_gone

pytestmark = pytest.mark.processes

CHILD = """
import os, signal, sys, time
name, ends, noted, others = sys.argv[1:5]
def note(text):
    with open(noted, "a") as file:
        file.write(f"{name} {text}\\n")
def on_term(number, frame):
    note("told")
    if ends == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if ends == "slowly":
        time.sleep(0.3)
    if ends != "never":
        note("ended")
        os._exit(0)
signal.signal(signal.SIGTERM, on_term)
note("begun")
if ends == "once" or ends.isdecimal():
    while open(noted).read().count("begun") < int(others):
        time.sleep(0.01)
if ends == "once" and open(noted).read().count(f"{name} begun") == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if ends.isdecimal():
    sys.exit(int(ends))
while True:
    time.sleep(0.01)
"""
JOB = """
import sys
from remuda.deploy import job
child, noted, notice_s, delay_s, companion_s = sys.argv[1:6]
job.COMPANION_S = float(companion_s)
commands = {name: [sys.executable, "-c", child, name, ends, noted, str(len(sys.argv) - 6)]
            for name, ends in (each.split("=") for each in sys.argv[6:])}
one = job.Job(commands, notice_s=float(notice_s), delay_s=float(delay_s))
code = one.run()
print("noticed" if one.noticed else "not noticed", flush=True)
sys.exit(code)
"""


class Running:
    """A job that runs, and what its processes have noted."""

    def __init__(
        self,
        noted: Path,
        *children: str,
        notice_s: float = HANG_S,
        delay_s: float = 0.0,
        companion_s: float = HANG_S,
    ) -> None:
        self._noted = noted
        limits = map(str, (notice_s, delay_s, companion_s))
        command = [sys.executable, "-P", "-c", JOB, CHILD, str(noted), *limits, *children]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: sum(line.endswith("begun") for line in self.noted()) >= len(children), "all children")

    def noted(self) -> list[str]:
        return self._noted.read_text().splitlines() if self._noted.exists() else []

    def after_begin(self) -> list[str]:
        return [line for line in self.noted() if not line.endswith("begun")]

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=HANG_S)
        return self.process.returncode, out.strip(), err

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


@pytest.fixture
def jobs() -> Generator[list[Running]]:
    started: list[Running] = []
    yield started
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize(("number", "said"), [(signal.SIGTERM, "not noticed"), (signal.SIGUSR1, "noticed")])
def test_processes_end_one_after_the_other(
    tmp_path: Path, jobs: list[Running], number: signal.Signals, said: str
) -> None:
    jobs.append(job := Running(tmp_path / "noted", "coordinator=slowly", "learner=quickly"))
    job.tell(number)
    code, out, err = job.ended()
    assert (code, out) == (EXIT_PREEMPTED, said)
    assert job.after_begin() == ["coordinator told", "coordinator ended", "learner told", "learner ended"]
    assert f"{number.name}: handing in, then ending" in err


def test_after_a_notice_the_coordinator_waits_for_workers_that_hand_in(tmp_path: Path, jobs: list[Running]) -> None:
    jobs.append(job := Running(tmp_path / "noted", "coordinator=quickly", delay_s=0.5))
    begun_s = time.monotonic()
    job.tell(signal.SIGUSR1)
    assert job.ended()[0] == EXIT_PREEMPTED
    assert time.monotonic() - begun_s >= 0.5


def test_what_does_not_end_in_time_is_killed(tmp_path: Path, jobs: list[Running]) -> None:
    jobs.append(job := Running(tmp_path / "noted", "workers=never", notice_s=0.2))
    job.tell(signal.SIGUSR1)
    code, _, err = job.ended()
    assert code == EXIT_PREEMPTED
    assert "the workers process did not end in time, and was killed" in err


def test_what_the_kernel_kills_within_its_time_was_not_late(tmp_path: Path, jobs: list[Running]) -> None:
    """As where memory runs out while it hands in."""
    jobs.append(job := Running(tmp_path / "noted", "workers=killed"))
    job.tell(signal.SIGUSR1)
    code, _, err = job.ended()
    assert code == EXIT_PREEMPTED
    assert "the workers process ended with exit code -9" in err
    assert "in time" not in err


def test_when_all_end_in_order_so_does_the_job(tmp_path: Path, jobs: list[Running]) -> None:
    jobs.append(job := Running(tmp_path / "noted", "coordinator=0", "learner=0"))
    assert job.ended()[0] == 0


def test_one_that_fails_ends_the_others_in_order(tmp_path: Path, jobs: list[Running]) -> None:
    jobs.append(job := Running(tmp_path / "noted", "coordinator=3", "learner=quickly"))
    code, _, err = job.ended()
    assert code == 3
    assert "the coordinator process ended with exit code 3" in err
    assert job.after_begin() == ["learner told", "learner ended"]


def test_one_that_stays_when_the_other_has_ended_is_told_to_end(tmp_path: Path, jobs: list[Running]) -> None:
    jobs.append(job := Running(tmp_path / "noted", "coordinator=quickly", "learner=0", companion_s=0.5))
    code, _, err = job.ended()
    assert code == 1
    assert "the learner process has ended and coordinator has not" in err
    assert job.after_begin() == ["coordinator told", "coordinator ended"]


def test_a_coordinator_that_is_killed_is_started_again(tmp_path: Path, jobs: list[Running]) -> None:
    """The learner beside it is not, since it goes on with the next one."""
    noted = tmp_path / "noted"
    jobs.append(job := Running(noted, "coordinator=once", "learner=quickly"))
    until(lambda: job.noted().count("coordinator begun") == 2, "the next one")
    job.tell(signal.SIGTERM)
    code, _, err = job.ended()
    assert code == EXIT_PREEMPTED
    assert "the coordinator ended with signal 9 (SIGKILL); starting it again in 1 s" in err
    assert job.noted().count("learner begun") == 1
    assert job.after_begin() == ["coordinator told", "coordinator ended", "learner told", "learner ended"]


def test_others_that_are_killed_end_the_job(tmp_path: Path, jobs: list[Running]) -> None:
    jobs.append(job := Running(tmp_path / "noted", "coordinator=quickly", "learner=once"))
    code, _, err = job.ended()
    assert code == 1
    assert "the learner process ended with exit code -9" in err
    assert job.after_begin() == ["coordinator told", "coordinator ended"]


def test_real_processes_end_with_the_job_even_by_sigkill(tmp_path: Path) -> None:
    own, runs = tmp_path / "own", tmp_path / "runs"
    runs.mkdir()
    command = [sys.executable, "-P", "-m", "remuda.deploy.job", "head", "--own-dir", own, "--runs-dir", runs]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [*map(str, command), "--bind", "tcp://127.0.0.1:0"], stdout=out, stderr=out, env={**os.environ}
        )
    try:
        until(lambda: (own / "connection.json").exists() or process.poll() is not None, "the coordinator")
        assert process.poll() is None, (tmp_path / "out").read_text()
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.kill()
        until_gone(children)
        assert (own / "connection.json").exists(), "workers wait for the next start"
    finally:
        process.kill()
        process.wait()
