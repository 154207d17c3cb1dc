"""The end of a child process is noticed, and so is the end of the time for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from remuda.deploy.ended import ended
from remuda.tests.patience import HANG_S

pytestmark = pytest.mark.processes


@pytest.fixture(params=["pidfd", "none"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has descriptors for processes, and one that has not."""
    if request.param == "none":
        monkeypatch.delattr(os, "pidfd_open", raising=False)


@pytest.mark.usefixtures("system")
def test_it_waits_until_the_end_or_as_long_as_it_may() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
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
