"""Publishing during training: the newest policy wins, versions count writes of the file, and failures are reported."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.learner.loop import DivergedError
from remuda.learner.publisher import RETRY_S, Pace, Publisher, TargetPublisher
from remuda.policy.files.policy_file import load, publish, read_ref
from remuda.tests.patience import HANG_S, until
from remuda.tests.policy.algorithms.muzero.cases import batch, changed, muzero
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


def test_the_newest_offer_wins_and_offering_never_waits(path: Path) -> None:
    with publishing(path) as one:
        one.disk.may_write.clear()
        one.offer(0, 0)
        assert one.disk.begun.acquire(timeout=HANG_S)
        for train_iter in range(1, 50):
            one.offer(train_iter, train_iter)
        one.disk.may_write.set()
        assert one.publisher.flush(HANG_S)
        assert one.published == [PolicyRef(2, 0, 0), PolicyRef(2, 1, 49)], "versions count up from 0 under its epoch"
        assert one.in_file() == (PolicyRef(2, 1, 49), 49.0)


def test_weights_that_are_not_finite_stay_out_of_the_file_and_end_it(path: Path) -> None:
    with publishing(path) as one:
        one.offer(1.0, 10)
        assert one.publisher.flush(HANG_S)
        one.offer(np.inf, 20)
        with pytest.raises(DivergedError, match="after update 20, weights are NaN or infinite: weight"):
            one.publisher.flush(HANG_S)
        assert one.in_file() == (PolicyRef(2, 0, 10), 1.0)
        assert one.publisher.last == PolicyRef(2, 0, 10)
        assert [text.partition(":")[0] for text in one.said] == ["policy of iteration 20 is not published"]
        with pytest.raises(DivergedError):
            one.offer(2.0, 40)


def test_while_a_disk_refuses_a_newer_policy_takes_the_place_of_the_older(path: Path) -> None:
    with publishing(path) as one:
        one.disk.may_write.clear()
        one.disk.failures = [OSError(28, "No space left on device")]
        one.offer(1, 10)
        assert one.disk.begun.acquire(timeout=HANG_S)
        one.offer(2, 20)
        assert not one.publisher.flush(0.01), "it gives up at its deadline"
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


def test_it_closes_while_a_disk_refuses(path: Path) -> None:
    with publishing(path) as one:
        one.disk.failures = [OSError(28, "No space left on device")] * 1_000
        one.offer(0, 0)
        for _ in range(3):
            assert one.disk.begun.acquire(timeout=HANG_S)
        until(lambda: one.publisher.ready, "it is ready for a newer one")
        assert one.publisher.last is None, "the older one is not in the file"
        assert "No space left on device" in one.said[0]
    assert one.published == []
    assert not path.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "remuda-publisher"]


@given(
    share=st.floats(0.01, 1.0),
    ahead_s=st.floats(0.0, 5.0),
    turns=st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(1e-6, 2.0)), min_size=1, max_size=80),
)
def test_at_most_what_was_earned_is_spent(share: float, ahead_s: float, turns: list[tuple[float, float]]) -> None:
    """Except the cost of the last turn, which was unknown before it."""
    pace, now_s, costs_s = Pace(share, ahead_s=ahead_s), 0.0, [0.0]
    for pause_s, cost_s in turns:
        now_s += pause_s
        if pace.allows(now_s):
            pace.spent(cost_s, now_s)
            costs_s.append(cost_s)
            assert sum(costs_s) <= share * now_s + ahead_s + cost_s + 1e-9


def test_it_is_published_whenever_it_has_changed(tmp_path: Path) -> None:
    said, path = list[PolicyRef](), tmp_path / "target_1"
    policy = changed(target_update_iters=2, reanalyze_ratio=1.0)
    algorithm = muzero(policy)
    with closing(Publisher(path, 1, published=said.append, say=pytest.fail)) as files:
        publisher = TargetPublisher(algorithm, files)
        for update in range(5):
            if update % 2 == 0:
                until(lambda: publisher.is_due, "the target network is due")
                publisher.offer()
                until(lambda: len(said) > update // 2, "it is published")  # noqa: B023  (called at once)
                assert read_ref(path) == PolicyRef(1, update // 2, update)
                loaded = load(path)
                assert loaded is not None
                for name, array in algorithm.target_state().items():
                    np.testing.assert_array_equal(loaded.state[name], array)
            assert not publisher.is_due
            algorithm.learn(batch(np.random.default_rng(update)))
        until(lambda: len(said) == 3, "each was said")
    assert said == [PolicyRef(1, version, 2 * version) for version in range(3)]
    assert algorithm._reanalyze_ratio == 0.0, "workers do it"
