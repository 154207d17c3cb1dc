"""What holds for every test: Ctrl-C works as at a terminal, and nothing stays open behind it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings
from zmq.utils import garbage as zmq_garbage

from remuda.tests.leftovers import Held, collect, end_children, left_since

# A shell lets what it starts with `&` ignore SIGINT, and children inherit that: the tests send it to their own.
signal.signal(signal.SIGINT, signal.default_int_handler)

# 40 examples of each property, the same every time; `--hypothesis-profile=ci` tries 100, `default` looks for new ones.
settings.register_profile("short", settings.get_profile("ci"), max_examples=40)

os.environ.setdefault("REMUDA_PAGE", "0")  # a test that wants a page asks for it

_FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes come first: they are the longest, and the short ones then fill the end evenly."""
    items.sort(key=lambda item: item.get_closest_marker("processes") is None)


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
    end_children(before)
    assert not left, f"left behind: {left}"
