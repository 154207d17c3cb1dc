"""A process that ends at once has done all that it would have done at the usual end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from remuda.tests.imports import THIS_CHECKOUT
from remuda.tests.patience import HANG_S
from remuda.worker.quick_exit import EXIT_NOT_FLUSHED, exit_code

PROGRAM = """
import atexit, sys, threading, time
from remuda.worker.quick_exit import exit_now

class Freed:
    def __del__(self):
        print("freed")

kept = Freed()
atexit.register(print, "registered")
def last():
    threading.main_thread().join()  # only returns while the process ends
    print("the thread")
threading.Thread(target=last).start()
print("standard output", end="")
print("standard error", end="", file=sys.stderr)
exit_now(3)
"""


def ended(program: str, *, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={"PATH": "", **THIS_CHECKOUT},
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.processes
def test_threads_end_what_is_registered_is_called_and_nothing_printed_is_lost() -> None:
    done = ended(PROGRAM)
    assert done.returncode == 3
    assert done.stdout == "standard outputthe thread\nregistered\n"
    assert done.stderr == "standard error"


@pytest.mark.processes
def test_output_that_cannot_be_written_is_a_failure() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = ended("from remuda.worker.quick_exit import exit_now; print('much'); exit_now(0)", stdout=full.fileno())
    assert done.returncode == EXIT_NOT_FLUSHED


@pytest.mark.parametrize(("code", "means"), [(None, 0), (0, 0), (2, 2), ("it failed", 1)])
def test_what_an_exception_says_of_the_exit_code(code: object, means: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(SystemExit(code)) == means
    assert capsys.readouterr().err == ("it failed\n" if code == "it failed" else "")
