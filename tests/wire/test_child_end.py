"""A child process that is waited for, and killed where it does not end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from remuda.tests.patience import HANG_S
from remuda.wire.child_end import end_within, ended

pytestmark = pytest.mark.processes

DEAF = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture(params=["pidfd", "none"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has descriptors for processes, and one that has not."""
    if request.param == "none":
        monkeypatch.delattr(os, "pidfd_open", raising=False)


@pytest.mark.usefixtures("system")
def test_it_waits_until_the_end_or_as_long_as_it_may() -> None:
    """Also where another thread waits for the same process."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    waiting = [threading.Thread(target=process.wait) for _ in range(1)]
    try:
        for each in waiting:
            each.start()
        assert not ended(process, 0.0)
        assert not ended(process, 0.01)
        assert process.stdin is not None
        process.stdin.close()
        assert ended(process, HANG_S)
        assert process.returncode == 1
        assert ended(process, 0.0), "and it stays so"
    finally:
        process.kill()
        process.wait()
        for each in waiting:
            each.join()


def test_one_that_does_not_end_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert end_within(process, 0.0) == -signal.SIGKILL


class Stuck(subprocess.Popen[bytes]):
    """SIGKILL does not end it, as in a disk operation that hangs."""

    def kill(self) -> None:
        pass


def test_one_that_even_sigkill_does_not_end_is_waited_for_no_longer() -> None:
    with Stuck([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as process:
        try:
            assert end_within(process, 0.0, killed_s=0.0) is None
        finally:
            process.send_signal(signal.SIGKILL)
