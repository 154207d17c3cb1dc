"""What a test has left is found, and what is over is not."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from remuda.tests import leftovers
from remuda.tests.leftovers import Held
from remuda.tests.patience import until

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("lists_children", [True, False])
def test_a_child_that_has_ended_is_not_left(lists_children: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has waited for it yet: it is a zombie. On systems with and without a list of children in /proc."""
    if not lists_children:
        monkeypatch.setattr(leftovers, "_PROC", f"{leftovers._PROC}/none")  # pyright: ignore[reportPrivateUsage]
    before = Held.now()
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        child = psutil.Process(process.pid)
        assert Held.now().children - before.children == {child}
        assert process.stdin is not None
        process.stdin.close()
        until(lambda: child.status() == psutil.STATUS_ZOMBIE, "it has ended")
        assert Held.now().children == before.children
