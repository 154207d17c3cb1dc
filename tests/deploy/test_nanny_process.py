"""A nanny that is started before it is known what it has to do: it waits for that, and never outlives its parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from remuda.deploy.nanny_process import NannyProcess
from remuda.tests.patience import HANG_S, until, until_gone
from remuda.wire.child_end import ended

pytestmark = pytest.mark.processes

WAITING = """
import time
from remuda.deploy.nanny_process import NannyProcess
with NannyProcess() as nanny:
    print(nanny.process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.usefixtures("forked")
def test_told_nothing_it_ends_with_its_lifeline() -> None:
    with NannyProcess() as nanny:
        nanny.break_lifeline()
        assert ended(nanny.process, HANG_S)
        assert (nanny.process.returncode, nanny.said()) == (0, "")


@pytest.mark.usefixtures("forked")
def test_arguments_may_be_longer_than_the_pipe() -> None:
    with NannyProcess() as nanny:
        nanny.tell(["--collectors", "7" * 200_000 + "x", "--connection-file", "connection.json"])
        assert ended(nanny.process, HANG_S)
        assert nanny.process.returncode == 2


@pytest.mark.usefixtures("forked")
def test_one_that_has_died_can_be_told_and_ended() -> None:
    with NannyProcess() as nanny:
        nanny.process.kill()
        nanny.process.wait()
        nanny.tell(["--collectors", "1"])
    nanny.end()
    assert nanny.process.returncode == -9


def test_ended_before_it_has_imported_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "importing"
    (tmp_path / "torch.py").write_text(
        f"import pathlib, time\npathlib.Path({str(marker)!r}).touch()\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with NannyProcess() as nanny:
        until(marker.exists, "it imports")
    assert nanny.process.returncode == -9


def test_it_ends_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-P", "-c", WAITING], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        nanny = psutil.Process(int(parent.stdout.readline()))
    finally:
        parent.kill()
        parent.communicate()
    until_gone([nanny])
