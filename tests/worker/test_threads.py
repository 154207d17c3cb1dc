"""One thread per process, unless somebody said otherwise; and who may use more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from remuda.worker.process import FOLLOWS, ONE_THREAD, bound_threads, child_environment, may_choose_threads


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Without any of the variables; all are as before afterwards."""
    before = dict(os.environ)
    for name in (*ONE_THREAD, FOLLOWS):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_threads_are_bounded_unless_somebody_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    bound_threads()
    assert [os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")] == [
        "4",
        "1",
        "1",
    ]
    assert not may_choose_threads()
    assert "torch" not in sys.modules


def test_where_remuda_chose_it_may_choose_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not may_choose_threads()
    bound_threads()
    assert {name: os.environ[name] for name in ONE_THREAD} == ONE_THREAD
    assert may_choose_threads()
    bound_threads()
    assert may_choose_threads()


def test_children_know_who_chose() -> None:
    assert child_environment({"HOME": "/"}) == {"HOME": "/", **ONE_THREAD, FOLLOWS: "1"}
    assert child_environment(child_environment({})) == child_environment({})
    assert FOLLOWS not in child_environment({"MKL_NUM_THREADS": "2"})
    assert child_environment({"MKL_NUM_THREADS": "2"})["MKL_NUM_THREADS"] == "2"
