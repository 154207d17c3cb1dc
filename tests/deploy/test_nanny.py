"""The nanny with real processes: tiny ones in place of workers, killed, stubborn, failing or left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil
import pytest

from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.popen import Popen

pytestmark = pytest.mark.processes

PROGRAM = """
import os, signal, sys, time
from remuda.deploy.nanny import Nanny
from remuda.deploy.supervision import SupervisedWorker

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece, whoever else writes

def be_worker(worker):
    if {ignores_term}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(worker.role, worker.uuid, worker.incarnation, os.getpid())
    {body}
    while True:
        time.sleep(60)

{before}
workers = [{workers}]
code = Nanny(workers, be_worker, lifeline={lifeline}, grace_s={grace_s}, gives_up={gives_up}).run()
say("nanny", "ends", code, os.getpid())
sys.exit(code)
"""
TWO = "SupervisedWorker('collector', 'c1'), SupervisedWorker('evaluator', 'e1')"


@dataclass(frozen=True)
class Said:
    role: str
    uuid: str
    number: int
    pid: int


@dataclass
class Running:
    process: subprocess.Popen[bytes]

    def hear(self) -> Said:
        assert self.process.stdout is not None
        role, uuid, number, pid = self.process.stdout.readline().decode().split()
        return Said(role, uuid, int(number), int(pid))

    def end(self) -> tuple[int, str]:
        """Exit code, and what it wrote to standard error."""
        _, errors = self.process.communicate(timeout=HANG_S)
        return self.process.returncode, errors.decode()

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def nanny(
    workers: str = TWO,
    body: str = "",
    *,
    before: str = "",
    lifeline: int | None = None,
    grace_s: float = HANG_S,
    ignores_term: bool = False,
    gives_up: bool = False,
) -> Generator[Running, None, None]:
    code = PROGRAM.format(
        workers=workers,
        body=body,
        before=before,
        lifeline=lifeline,
        grace_s=grace_s,
        ignores_term=ignores_term,
        gives_up=gives_up,
    )
    process = Popen(
        [sys.executable, "-P", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=() if lifeline is None else (lifeline,),
        start_new_session=True,
    )
    try:
        yield Running(process)
    finally:
        with suppress(ProcessLookupError):  # as it should be
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


NO_ROOM_AT_FIRST = """
real_fork, refusals = os.fork, iter([True, False, True])
def fork():
    if next(refusals, False):
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return real_fork()
os.fork = fork
"""


def test_a_machine_that_has_no_room_for_a_process_is_asked_again() -> None:
    with nanny(before=NO_ROOM_AT_FIRST) as running:
        assert {running.hear().uuid, running.hear().uuid} == {"c1", "e1"}
        running.process.send_signal(signal.SIGTERM)
        code, errors = running.end()
    assert code == 0
    assert errors.count("could not be started: ") == 2
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("number", "ignores_term"), [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGTERM, True)]
)
def test_told_to_stop_it_ends_every_child(number: signal.Signals, ignores_term: bool) -> None:
    """Children that ignore the request are killed after the grace period."""
    with nanny(ignores_term=ignores_term, grace_s=0.2 if ignores_term else HANG_S) as running:
        assert {running.hear().uuid, running.hear().uuid} == {"c1", "e1"}
        children = running.children
        assert len(children) == 2
        running.process.send_signal(number)
        assert running.end() == (0, "")
        assert not any(child.is_running() for child in children)


def test_a_broken_lifeline_ends_it_and_every_child() -> None:
    reading, writing = os.pipe()
    try:
        with nanny(lifeline=reading) as running:
            heard = {running.hear().uuid, running.hear().uuid}
            assert heard == {"c1", "e1"}
            children = running.children
            os.close(writing)
            assert running.end() == (0, "")
            assert not any(child.is_running() for child in children)
    finally:
        os.close(reading)


@pytest.mark.parametrize("body", ["raise ValueError('broken')", "raise KeyboardInterrupt"])
def test_a_child_that_fails_is_started_again_and_never_becomes_a_second_nanny(body: str) -> None:
    with nanny("SupervisedWorker('collector', 'c1')", f"if worker.incarnation == 1: {body}") as running:
        assert running.hear().number == 1
        second = running.hear()
        assert second.number == 2
        assert [child.pid for child in running.children] == [second.pid]
        running.process.send_signal(signal.SIGTERM)
        end = running.hear()
        assert (end.role, end.pid) == ("nanny", running.process.pid)
        code, errors = running.end()
        assert code == 0
        assert "collector c1 ended with exit code 1; starting it again in 1 s" in errors
        assert "Traceback" in errors


def test_where_a_role_keeps_dying_a_nanny_for_one_run_gives_up() -> None:
    """A learner that the system kills at once, every time, says nothing to the coordinator: its nanny has to."""
    workers = "SupervisedWorker('learner', 'l1', early_deaths=7), SupervisedWorker('collector', 'c1')"
    body = "if worker.role == 'learner': os.read(told, 1); os.kill(os.getpid(), 9)\n    os.write(tells, b'.')"
    with nanny(workers, body, before="told, tells = os.pipe()", gives_up=True) as running:
        assert {running.hear().role, running.hear().role} == {"learner", "collector"}
        end = running.hear()
        assert (end.role, end.number) == ("nanny", 1)
        code, errors = running.end()
        assert code == 1
        assert "learner l1 ended with signal 9 (SIGKILL) (8 short runs in a row)" in errors


def test_a_nanny_for_many_runs_goes_on_whoever_keeps_dying() -> None:
    workers = "SupervisedWorker('learner', 'l1', early_deaths=7), SupervisedWorker('learner', 'l2')"
    with nanny(workers, "if worker.uuid == 'l1' or worker.incarnation == 1: return 1") as running:
        heard = [(said.uuid, said.number) for said in (running.hear(), running.hear(), running.hear())]
        assert set(heard[:2]) == {("l1", 1), ("l2", 1)}
        assert heard[2] == ("l2", 2), "started again, while the other one has its longest pause"
        running.process.send_signal(signal.SIGTERM)
        assert running.hear().number == 0
        assert (
            "learner l1 ended with exit code 1 (8 short runs in a row); starting it again in 32 s" in running.end()[1]
        )


FOSTER_PARENT = """
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: it inherits orphans, as PID 1 does
"""
LEAVES_AN_ORPHAN = """
    if worker.incarnation == 1:
        reading, writing = os.pipe()
        orphan = os.fork()
        if orphan == 0:
            os.close(writing)
            os.read(reading, 1)  # until its parent is gone
            os._exit(0)
        say("orphan", "o", 1, orphan)
        return 1
"""


def test_a_stranger_that_it_inherits_stays_no_zombie() -> None:
    with nanny("SupervisedWorker('collector', 'c1')", LEAVES_AN_ORPHAN.strip(), before=FOSTER_PARENT) as running:
        running.hear()
        orphan = running.hear()
        assert running.hear().number == 2
        until(lambda: not psutil.pid_exists(orphan.pid), "the end of the orphan")
