"""A child process that is waited for, and killed where it does not end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from remuda.wire.child_end import end_within

pytestmark = pytest.mark.processes

LONG_S = 60.0
DEAF = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


def test_one_that_ends_by_itself_tells_its_exit_code() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        assert end_within(process, LONG_S) == 3


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
