"""What holds for every test: Ctrl-C works as at a terminal, and nothing stays open behind it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from zmq.utils import garbage as zmq_garbage

from remuda.tests.faults.sizes import LONG
from remuda.tests.leftovers import Held, collect, end_children, left_since
from remuda.tests.warm.popen import Popen, warm
from remuda.worker.process import gc_frozen

# A shell lets what it starts with `&` ignore SIGINT, and children inherit that: the tests send it to their own.
signal.signal(signal.SIGINT, signal.default_int_handler)

# 40 examples of each property, the same every time; `--hypothesis-profile=ci` tries 100, `default` looks for new ones.
settings.register_profile("short", settings.get_profile("ci"), max_examples=40)

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests that open ONNX files themselves leave nothing at home
os.environ.setdefault("REMUDA_PAGE", "0")  # a test that wants a page asks for it

_CHECKOUT = Path(__file__).parents[1].name
_FAILED = pytest.StashKey[bool]()
_LONG_FORMS = ("cluster", "learning", "faults_long")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting imports and makes stays until the end: Python need not look for garbage in it, neither meanwhile
    nor whenever a test leaves something to be collected."""
    with gc_frozen():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes come first: they are the longest, and the short ones then fill the end evenly."""
    items.sort(key=lambda item: item.get_closest_marker("processes") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Chance and the number of threads are the same for a test whichever others came before it."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)
        torch.set_num_threads(1)  # some commands do that for their process; and others need the cores


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup() -> None:
    """pytest knows the checkout's folder as a module: what a test writes under that name would be taken for it."""
    if _CHECKOUT != "remuda":
        sys.modules.pop(_CHECKOUT, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether the test has failed."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(autouse=True, scope="session")
def _what_libraries_keep() -> None:
    """pyzmq frees what it sent without a copy on a thread of its own, which the first such message starts."""
    zmq_garbage.gc.start()


@pytest.fixture(autouse=True, scope="session")
def _own_temporary_folder() -> Generator[None]:
    """Of each process that runs tests beside others: what two of them name alike is not the same folder."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    own = tempfile.TemporaryDirectory(prefix="remuda-", ignore_cleanup_errors=True)
    with pytest.MonkeyPatch.context() as patch, own as folder:
        os.chmod(folder, 0o755)  # others may enter it, as they may /tmp
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(autouse=True, scope="session")
def _what_forks(request: pytest.FixtureRequest, _own_temporary_folder: None) -> Generator[None]:
    """Where tests start processes, they may fork them: see tests/warm. The long forms start the real commands."""
    marks = {mark.name for item in request.session.items for mark in item.iter_markers()}
    short = "processes" in marks and not LONG and not marks.intersection(_LONG_FORMS)
    with warm() if short else nullcontext():
        yield


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of Remuda's that the test starts, wherever in its process, are forked."""
    monkeypatch.setattr(subprocess, "Popen", Popen)


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Generator[None]:
    """No thread, no child process, no open file: or the next tests would fail for what this one did."""
    before = Held.now()
    yield
    if request.node.stash.get(_FAILED, False):
        # It was not to reach its end, and its traceback holds all it had: one failure is enough.
        for name in ("last_exc", "last_value", "last_traceback"):
            setattr(sys, name, None)
        collect()
        end_children(before)
        return
    left = left_since(before)
    if left:
        end_children(before)
    assert not left, f"left behind: {left}"
