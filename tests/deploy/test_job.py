"""What a job of an engine does with its processes: small ones, which note what they are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from remuda.deploy.job import EXIT_PREEMPTED
from remuda.tests.patience import HANG_S, until, until_gone
from remuda.tests.warm.popen import Popen

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
        self, noted: Path, *children: str, notice_s: float = HANG_S, delay_s: float = 0.0, companion_s: float = HANG_S
    ) -> None:
        self._noted = noted
        limits = map(str, (notice_s, delay_s, companion_s))
        command = [sys.executable, "-P", "-c", JOB, CHILD, str(noted), *limits, *children]
        self.process = Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until(lambda: sum(line.endswith("begun") for line in self.noted()) >= len(children), "all children")

    def noted(self) -> list[str]:
        return self._noted.read_text().splitlines() if self._noted.exists() else []

    def after_begin(self) -> list[str]:
        return [line for line in self.noted() if not line.endswith("begun")]

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=HANG_S)
        return self.process.returncode, out.decode().strip(), err.decode()


@pytest.fixture
def jobs() -> Generator[list[Running]]:
    started: list[Running] = []
    yield started
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize(("number", "said"), [(signal.SIGTERM, "not noticed"), (signal.SIGUSR1, "noticed")])
def test_processes_end_in_order(tmp_path: Path, jobs: list[Running], number: signal.Signals, said: str) -> None:
    jobs.append(job := Running(tmp_path / "noted", "coordinator=slowly", "learner=quickly"))
    job.tell(number)
    code, out, err = job.ended()
    assert (code, out) == (EXIT_PREEMPTED, said)
    assert job.after_begin() == ["coordinator told", "coordinator ended", "learner told", "learner ended"]
    assert f"{number.name}: handing in, then ending" in err


@pytest.mark.parametrize(
    ("ends", "notice_s", "said"),
    [
        ("never", 0.2, "the workers process did not end in time, and was killed"),
        ("killed", HANG_S, "the workers process ended with exit code -9"),  # as where memory runs out
    ],
)
def test_late_processes_are_killed(tmp_path: Path, jobs: list[Running], ends: str, notice_s: float, said: str) -> None:
    jobs.append(job := Running(tmp_path / "noted", f"workers={ends}", notice_s=notice_s))
    job.tell(signal.SIGUSR1)
    code, _, err = job.ended()
    assert code == EXIT_PREEMPTED
    assert said in err
    assert ("in time" in err) == (ends == "never")


@pytest.mark.parametrize(
    ("children", "code", "said", "told"),
    [
        (("coordinator=0", "learner=0"), 0, "", None),
        (("coordinator=3", "learner=quickly"), 3, "the coordinator process ended with exit code 3", "learner"),
        (("coordinator=quickly", "learner=once"), 1, "learner process ended with exit code -9", "coordinator"),
        (("coordinator=quickly", "learner=0"), 1, "has ended and coordinator has not", "coordinator"),
    ],
)
def test_one_that_ends_by_itself_ends_the_others_in_order(
    tmp_path: Path, jobs: list[Running], children: tuple[str, ...], code: int, said: str, told: str | None
) -> None:
    jobs.append(job := Running(tmp_path / "noted", *children, companion_s=0.5))
    found, _, err = job.ended()
    assert (found, job.after_begin()) == (code, [f"{told} told", f"{told} ended"] if told else [])
    assert said in err


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
