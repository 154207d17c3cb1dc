"""How a worker's process ends: in order when it can, at once when told twice, in any case in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from remuda.tests.patience import HANG_S
from remuda.worker.shutdown_guard import EXIT_AT_ONCE, EXIT_NOT_IN_TIME, SAME_REQUEST_S, ShutdownGuard

PROGRAM = """
import os, sys, time, signal
from remuda.worker.shutdown_guard import ShutdownGuard
with ShutdownGuard(lifeline={lifeline}, grace_s={grace_s}) as guard:
    print("ready", flush=True)
    {body}
    print("ended:", guard.reason, flush=True)
"""
WAIT = "while not guard.ending: time.sleep(0.01)"


@contextmanager
def child(
    body: str, *, lifeline: int | None = None, grace_s: float = HANG_S
) -> Generator[subprocess.Popen[str], None, None]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM.format(body=body, lifeline=lifeline, grace_s=grace_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=() if lifeline is None else (lifeline,),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_end_in_order(number: signal.Signals) -> None:
    """Another one prints its stacks."""
    with child(WAIT) as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGUSR1)
        assert "most recent call first" in process.stderr.readline()
        process.send_signal(number)
        output, _ = process.communicate(timeout=HANG_S)
        assert (process.returncode, output) == (0, f"ended: asked to by {number.name}\n")


def test_signals_at_the_same_time_are_one_request() -> None:
    """Ctrl-C reaches the whole group, and the parent passes it on: that must not cut the drain short."""
    with child(WAIT) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):  # the last one delivers the first two
            process.send_signal(number)
        process.communicate(timeout=HANG_S)
        assert process.returncode == 0


def test_a_second_signal_ends_it_at_once() -> None:
    told = f"{WAIT}\n    time.sleep({SAME_REQUEST_S}); print('ending', flush=True); time.sleep(600)"
    with child(told) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "ending\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == EXIT_AT_ONCE


def test_a_forced_exit_comes_with_a_last_act() -> None:
    act = "guard.on_forced_exit(lambda: print('the last act', flush=True))\n    "
    with child(f"{act}{WAIT}\n    time.sleep(600)", grace_s=0.2) as process:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=HANG_S)
        assert (process.returncode, output) == (EXIT_NOT_IN_TIME, "the last act\n")


def test_one_that_is_stuck_in_c_code_is_ended_too() -> None:
    """No signal handler in Python would ever run there: the join never returns to the interpreter's loop."""
    stuck = "import ctypes; ctypes.CDLL(None).pause(); ctypes.CDLL(None).sleep(600)"
    with child(stuck, grace_s=0.2) as process:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == EXIT_NOT_IN_TIME
        assert "did not end within 0.2 s (asked to by SIGTERM)" in errors
        assert 'File "<string>", line 6 in <module>' in errors
        assert "stacks:" in errors


def test_the_end_of_the_lifeline_ends_it() -> None:
    reading, writing = os.pipe()
    with child(WAIT, lifeline=reading) as process:
        os.close(reading)
        os.write(writing, b"still here")
        os.close(writing)
        output, _ = process.communicate(timeout=HANG_S)
        assert (process.returncode, output) == (0, "ended: its parent process is gone\n")


def test_a_crash_prints_the_stack_that_led_to_it() -> None:
    """Of an environment in the same process, for instance, which nothing else would name."""
    crash = "def step(): import ctypes; ctypes.string_at(0)\n    step()"
    with child(crash) as process:
        _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == -signal.SIGSEGV
        assert "Segmentation fault" in errors
        assert 'File "<string>", line 6 in step' in errors


def test_a_forked_child_has_its_own_signals() -> None:
    """An environment's process, ended with SIGTERM, must really end and must not end its worker."""
    body = """pid = os.fork()
    if pid == 0: time.sleep(600)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    time.sleep(0.1)
    assert not guard.ending"""
    with child(body) as process:
        output, errors = process.communicate(timeout=HANG_S)
        assert (process.returncode, output, errors) == (0, "ended: \n", "")


def test_everything_is_put_back() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    threads = set(threading.enumerate())
    descriptors = len(os.listdir("/dev/fd"))
    with ShutdownGuard() as guard:
        assert not guard.ending
        assert signal.getsignal(signal.SIGTERM) not in handlers
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert set(threading.enumerate()) == threads
    assert len(os.listdir("/dev/fd")) == descriptors


def test_whoever_waits_is_woken_once_and_the_first_reason_counts() -> None:
    woken: list[str] = []
    with ShutdownGuard() as guard:
        guard.on_end(lambda: woken.append("early"))
        guard.end("lost its coordinator")
        guard.end("something else")
        guard.on_end(lambda: woken.append("late"))
        assert (guard.ending, guard.reason) == (True, "lost its coordinator")
    assert woken == ["early", "late"]
    guard.end("long over")
