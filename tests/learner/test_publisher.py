"""Publishing during training: the newest policy wins, versions count writes of the file, and failures are reported."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from remuda.learner.loop import DivergedError
from remuda.learner.publisher import RETRY_S, Publisher
from remuda.policy.files.policy_file import load, publish, read_ref
from remuda.tests.patience import HANG_S, until
from remuda.wire.messages import PolicyRef
from remuda.worker.serve import TakenOverError

State = Mapping[str, np.ndarray]


def state(value: float) -> State:
    return {"weight": np.full(3, value, np.float32)}


class Disk:
    """Writes files, but waits for permission, and fails when told to."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        """Released once with every attempt to write."""
        self.may_write = threading.Event()
        self.may_write.set()
        self.failures: list[Exception] = []

    def write(self, path: Path, state: State, policy: PolicyRef, *, warn: Callable[[str], None]) -> None:
        self.begun.release()
        assert self.may_write.wait(HANG_S)
        if self.failures:
            raise self.failures.pop(0)
        publish(path, state, policy, warn=warn)


class Publishing:
    """A publisher, its messages and its published versions."""

    def __init__(self, path: Path, epoch: int) -> None:
        self.path = path
        self.disk = Disk()
        self.published: list[PolicyRef] = []
        self.said: list[str] = []
        self.publisher = Publisher(
            path, epoch, published=self.published.append, say=self.said.append, write=self.disk.write
        )

    def offer(self, value: float, train_iter: int) -> None:
        self.publisher.offer(state(value), train_iter)

    def in_file(self) -> tuple[PolicyRef, float]:
        loaded = load(self.path)
        assert loaded is not None
        return loaded.ref, float(loaded.state["weight"][0])


@contextmanager
def publishing(path: Path, epoch: int = 2) -> Generator[Publishing, None, None]:
    opened = Publishing(path, epoch)
    try:
        yield opened
    finally:
        opened.disk.may_write.set()
        opened.publisher.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy_x_000000"


def test_versions_count_up_from_0_under_its_epoch(path: Path) -> None:
    with publishing(path, epoch=3) as one:
        for train_iter in (0, 10, 20):
            one.offer(train_iter, train_iter)
            assert one.publisher.flush(HANG_S)
        refs = [PolicyRef(3, 0, 0), PolicyRef(3, 1, 10), PolicyRef(3, 2, 20)]
        assert one.published == refs
        assert one.publisher.last == refs[-1]
        assert one.in_file() == (refs[-1], 20.0)
        assert one.said == []


def test_the_newest_offer_wins_and_offering_never_waits(path: Path) -> None:
    with publishing(path) as one:
        one.disk.may_write.clear()
        one.offer(0, 0)
        assert one.disk.begun.acquire(timeout=HANG_S)
        for train_iter in range(1, 50):
            one.offer(train_iter, train_iter)
        one.disk.may_write.set()
        assert one.publisher.flush(HANG_S)
        assert one.published == [PolicyRef(2, 0, 0), PolicyRef(2, 1, 49)]
        assert one.in_file() == (PolicyRef(2, 1, 49), 49.0)


def test_flush_gives_up_at_its_deadline(path: Path) -> None:
    with publishing(path) as one:
        assert one.publisher.flush(0.0)  # nothing waits
        one.disk.may_write.clear()
        one.offer(0, 0)
        assert not one.publisher.flush(0.01)
        one.disk.may_write.set()
        assert one.publisher.flush(HANG_S)


def test_it_is_ready_again_when_it_has_written_and_paid_for_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred seconds of processor time per policy: no test reaches the second."""
    processor_s = itertools.count(0.0, 100.0)
    monkeypatch.setattr(time, "thread_time", lambda: next(processor_s))
    ready: list[bool] = []
    with publishing(path) as one:
        ready.append(one.publisher.ready)
        one.disk.may_write.clear()
        one.offer(0, 0)
        ready.append(one.publisher.ready)  # it writes
        one.disk.may_write.set()
        assert one.publisher.flush(HANG_S)
        ready.append(one.publisher.ready)  # it has cost too much
        assert ready == [True, False, False]
        one.offer(1, 10)  # and is published all the same
        assert one.publisher.flush(HANG_S)
        assert one.in_file() == (PolicyRef(2, 1, 10), 1.0)


def test_what_costs_nothing_may_be_done_again_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 1.0)
    with publishing(path) as one:
        for value in range(5):
            one.offer(value, value)
            assert one.publisher.flush(HANG_S)
            assert one.publisher.ready


def test_it_is_ready_for_a_newer_policy_while_a_disk_refuses_the_older(path: Path) -> None:
    with publishing(path) as one:
        one.disk.failures = [OSError(28, "No space left on device")] * 1_000
        one.offer(0, 0)
        until(lambda: one.publisher.ready, "it is ready")
        assert one.publisher.last is None, "the older one is not in the file"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_stay_out_of_the_file_and_end_it(path: Path, bad: float) -> None:
    with publishing(path) as one:
        one.offer(1.0, 10)
        assert one.publisher.flush(HANG_S)
        one.offer(bad, 20)
        with pytest.raises(DivergedError, match="after update 20, weights are NaN or infinite: weight"):
            one.publisher.flush(HANG_S)
        assert one.in_file() == (PolicyRef(2, 0, 10), 1.0)
        assert one.publisher.last == PolicyRef(2, 0, 10)
        assert [text.partition(":")[0] for text in one.said] == ["policy of iteration 20 is not published"]
        with pytest.raises(DivergedError):
            one.offer(2.0, 40)


def test_a_disk_that_refuses_is_tried_again(path: Path) -> None:
    with publishing(path) as one:
        one.disk.failures = [OSError(28, "No space left on device"), OSError(5, "Input/output error")]
        one.offer(1, 10)
        assert one.publisher.flush(HANG_S)
        assert one.published == [PolicyRef(2, 0, 10)]
        assert [text.split("; ")[1] for text in one.said] == ["trying again", "trying again"]
        assert "No space left on device" in one.said[0]


def test_while_a_disk_refuses_a_newer_policy_takes_the_place_of_the_older(path: Path) -> None:
    with publishing(path) as one:
        one.disk.may_write.clear()
        one.disk.failures = [OSError(28, "No space left on device")]
        one.offer(1, 10)
        assert one.disk.begun.acquire(timeout=HANG_S)
        one.offer(2, 20)
        one.disk.may_write.set()
        assert one.publisher.flush(HANG_S)
        assert one.published == [PolicyRef(2, 0, 20)]


def test_pauses_grow_though_newer_policies_come_all_the_time(path: Path) -> None:
    with publishing(path) as one:
        one.disk.failures = [OSError(28, "No space left on device")] * 3
        begin_s, offered = time.monotonic(), 0
        while not one.published:
            one.offer(offered, offered)
            offered += 1
            time.sleep(0.001)
        assert time.monotonic() - begin_s >= sum(RETRY_S[:3])
        assert len(one.said) == 3
        assert one.published[0].train_iter > 0, "the newest, not the one that was refused"


def test_another_learner_has_taken_over(path: Path) -> None:
    publish(path, state(9), PolicyRef(3, 0, 0), warn=lambda text: None)
    with publishing(path, epoch=2) as one:
        one.offer(1, 10)
        with pytest.raises(TakenOverError, match=r"another learner has taken over: .* holds epoch 3 version 0"):
            one.publisher.flush(HANG_S)
        assert one.publisher.ready  # or nobody would ever offer one and get the error
        with pytest.raises(TakenOverError):
            one.offer(1, 20)
        assert one.published == []
        assert read_ref(path) == PolicyRef(3, 0, 0)
        [said] = one.said
        assert said.startswith("policy of iteration 10 is not published, and this learner stops: ")


def test_a_failure_of_whoever_hears_of_it_is_not_swallowed(path: Path) -> None:
    def broken(ref: PolicyRef) -> None:
        raise RuntimeError("the link is closed")

    publisher = Publisher(path, 1, published=broken, say=lambda text: None)
    publisher.offer(state(1), 0)
    with pytest.raises(RuntimeError, match="the link is closed"):
        publisher.flush(HANG_S)
    publisher.close()


def test_readers_are_told_before_the_policy_before_is_freed(path: Path) -> None:
    publish(path, state(0.0), PolicyRef(1, 0, 0), warn=lambda text: None)
    links: list[int] = []
    old = path.stat()

    def told(ref: PolicyRef) -> None:
        links.extend(file.st_nlink for file in _open_files() if os.path.samestat(file, old))

    publisher = Publisher(path, 2, published=told, say=print)
    publisher.offer(state(1.0), 1)
    assert publisher.flush(HANG_S)
    publisher.close()
    assert links == [0], "it was open, and had lost its name"
    assert not [file for file in _open_files() if os.path.samestat(file, old) and not file.st_nlink]


def _open_files() -> list[os.stat_result]:
    """Open files of this process."""
    found: list[os.stat_result] = []
    for descriptor in range(1024):
        with suppress(OSError):
            found.append(os.fstat(descriptor))
    return found


def test_what_waits_when_it_closes_is_not_published(path: Path) -> None:
    with publishing(path) as one:
        one.disk.may_write.clear()
        one.offer(0, 0)
        assert one.disk.begun.acquire(timeout=HANG_S)
        one.offer(1, 10)
        closing = threading.Thread(target=one.publisher.close)
        closing.start()
        one.disk.may_write.set()
        closing.join(HANG_S)
        assert not closing.is_alive()
    assert one.in_file()[1] in (0.0, 1.0)  # the first for sure; the second only if it was begun before the end came
    assert len(one.published) == one.in_file()[0].version + 1


def test_it_closes_while_a_disk_refuses(path: Path) -> None:
    with publishing(path) as one:
        one.disk.failures = [OSError(28, "No space left on device")] * 1_000
        one.offer(0, 0)
        for _ in range(3):
            assert one.disk.begun.acquire(timeout=HANG_S)
    assert one.published == []
    assert not path.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "remuda-publisher"]
