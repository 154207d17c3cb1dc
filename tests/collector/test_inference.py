"""Inference workers and a collector over real sockets: versions, a lost worker, and who is let in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from remuda.collector import asking
from remuda.collector.inference import InferenceWork
from remuda.collector.service import CollectorWork
from remuda.policy.files.policy_file import publish
from remuda.tests.patience import until
from remuda.tests.worker.leases import EXPERIMENT, algorithm_of, assign_to, new_run, small_config, stores_of
from remuda.tests.worker.recording_link import COORDINATOR, WORKER, RecordingLink
from remuda.wire.inference import Ask, InferenceDealer, forms
from remuda.wire.keys.pair import new_pair
from remuda.wire.messages import (
    ChunkReady,
    Credit,
    Drain,
    InferenceCallers,
    InferenceJoined,
    InferenceServer,
    InferenceServers,
    PolicyRef,
    Registered,
)
from remuda.worker.link import WorkerIdentity

OTHER = "bbbbbbbb-0000-4000-8000-000000000002"
FIRST, SECOND, THIRD = (PolicyRef(1, version, 10 * version) for version in range(3))
GREEDY = {"epsilon": 0.0}


class Run:
    """A run folder with a learner's policy file."""

    def __init__(self, folder: Path) -> None:
        self.config = small_config(inference={"count": 2})
        self.folder = new_run(folder)
        self.publish(FIRST)

    def publish(self, ref: PolicyRef) -> None:
        """The values of the version's actions are known: all weights are 0 but the last biases."""
        state = {name: np.zeros_like(array) for name, array in algorithm_of(self.config).acting_state().items()}
        last = max(name for name in state if name.endswith("bias") and len(state[name]) == 2)
        state[last] = np.array([ref.version, -ref.version], np.float32)
        publish(self.folder.policy_file(EXPERIMENT, 0), state, ref, warn=pytest.fail)

    def inference(self, lease: int) -> tuple[InferenceWork, InferenceServer]:
        link = RecordingLink()
        assign = assign_to(self.folder, self.config, lease=lease)
        work = InferenceWork(assign, WorkerIdentity(OTHER, lease), link, stores_of(self.folder))
        [joined] = link.sent_of(InferenceJoined)
        assert joined.server is not None
        return work, joined.server


@contextmanager
def served(work: InferenceWork) -> Iterator[None]:
    """In a thread, as a process would."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            work.step()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10.0)
        work.close()


def asked(work: InferenceWork, dealer: InferenceDealer, number: int, policy: PolicyRef) -> tuple[PolicyRef, float]:
    """The version of the answer, and the value of the first action."""
    arrays = {"inputs": np.zeros((3, 4), np.float32)}
    dealer.say(Ask(number, 0, 0, "values", policy, forms(arrays)), arrays)
    found: list[tuple[PolicyRef, float]] = []

    def answered() -> bool:
        work.step()
        dealer.wait(0.0)
        answer = dealer.take(number)
        if answer is not None:
            found.append((answer[0].policy, float(answer[1]["outputs"][2, 0])))
        return bool(found)

    until(answered, "an answer")
    return found[0]


def test_each_answer_is_by_the_version_that_was_asked_for_or_a_newer_one_and_says_which(tmp_path: Path) -> None:
    run = Run(tmp_path)
    work, server = run.inference(1)
    keys = new_pair("collector")
    work.handle(InferenceCallers(1, [keys.public]))
    dealer = InferenceDealer(server, keys)
    try:
        assert asked(work, dealer, 1, FIRST) == (FIRST, 0.0)
        run.publish(SECOND)
        assert asked(work, dealer, 2, FIRST) == (FIRST, 0.0)
        assert asked(work, dealer, 3, SECOND) == (SECOND, 1.0)
        assert asked(work, dealer, 4, FIRST) == (FIRST, 0.0), "a collector finishes its chunk with it"
        run.publish(THIRD)
        assert asked(work, dealer, 5, THIRD) == (THIRD, 2.0)
        assert asked(work, dealer, 6, FIRST) == (THIRD, 2.0), "it is gone"
    finally:
        dealer.close()
        work.close()


@pytest.mark.parametrize("gone", [False, True])
def test_only_collectors_of_the_run_are_let_in(tmp_path: Path, gone: bool) -> None:
    work, server = Run(tmp_path).inference(1)
    keys = new_pair("stranger")
    work.handle(InferenceCallers(1, [new_pair("collector").public, *([keys.public] if gone else [])], whole=True))
    work.handle(InferenceCallers(1, [], [keys.public]))
    stranger = InferenceDealer(server, keys)
    refusals: list[str] = []

    def refused() -> bool:
        work.step()
        stranger.wait(0.0)
        refusals.extend([reason] if (reason := stranger.refusal()) else [])
        return bool(refusals)

    try:
        until(refused, "a refusal")
        assert refusals == ["unknown key"]
    finally:
        stranger.close()
        work.close()


class Collector:
    """A collector's lease in such a run."""

    def __init__(self, run: Run) -> None:
        self.link = RecordingLink()
        assign = assign_to(run.folder, run.config, lease=9, index=0)
        self.work = CollectorWork(assign, WorkerIdentity(WORKER, 1), self.link, stores_of(run.folder))
        self.work.handle(Credit(9, 10_000, FIRST, GREEDY))

    @property
    def key(self) -> str:
        return self.link.sent_of(InferenceJoined)[0].key

    @property
    def env_steps(self) -> int:
        return sum(message.meta.env_steps for message in self.link.sent_of(ChunkReady))


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[tuple[Run, Collector]]:
    run = Run(tmp_path)
    made = Collector(run)
    yield run, made
    made.work.close()


def test_a_lost_question_is_asked_elsewhere(collector: tuple[Run, Collector], monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that never answers is given up; news of another are taken in while an answer is awaited."""
    monkeypatch.setattr(asking, "ASK_AGAIN_S", 0.2)
    run, one = collector
    (mute, silent), (first, first_server) = run.inference(1), run.inference(2)
    first.handle(InferenceCallers(2, [one.key]))
    one.work.handle(InferenceServers(9, [silent, first_server]))
    with served(first):
        assert one.work.step()
    mute.close()
    assert one.env_steps >= 16
    second, second_server = run.inference(3)
    one.link.inbox.append(InferenceServers(9, [second_server]))
    with served(second):
        threading.Timer(0.3, second.handle, [InferenceCallers(3, [one.key])]).start()  # it refuses the collector before
        assert one.work.step()
    assert one.env_steps >= 32


def test_a_collector_that_waits_joins_a_restarted_coordinator(collector: tuple[Run, Collector]) -> None:
    """Inference workers are told its key only then, and answer."""
    run, one = collector
    work, server = run.inference(1)
    one.work.handle(InferenceServers(9, [server]))
    one.link.inbox.append(Registered(COORDINATOR, 1.0, lease=9, goes_on=True))

    def restart() -> None:
        until(lambda: len(one.link.sent_of(InferenceJoined)) == 2, "it joins again")
        work.handle(InferenceCallers(1, [one.key]))

    thread = threading.Thread(target=restart)
    with served(work):
        thread.start()
        assert one.work.step()
    thread.join(10.0)
    assert one.env_steps >= 16


@pytest.mark.parametrize("why", ["drain", "the process ends", "the lease is over"])
def test_without_inference_workers_a_collector_waits_visibly(collector: tuple[Run, Collector], why: str) -> None:
    """The chunk under way is given up; what was collected before stays as it is."""
    run, one = collector
    phases: list[str] = []
    ending = threading.Event()
    one.work.close()
    assign = assign_to(run.folder, run.config, lease=9, index=0)
    stores, identity = stores_of(run.folder), WorkerIdentity(WORKER, 2)
    one.work = CollectorWork(assign, identity, one.link, stores, ending=ending.is_set)
    one.work.handle(Credit(9, 10_000, FIRST, GREEDY))

    def end() -> None:
        until(lambda: one.link.doing.text == asking.WAITING, "it waits")
        phases.append(one.link.doing.phase)
        if why == "drain":
            one.link.inbox.append(Drain(9, "the run ends"))
        elif why == "the lease is over":
            one.link.inbox.append(Registered(COORDINATOR, 1.0, lease=9))
        else:
            ending.set()

    thread = threading.Thread(target=end)
    thread.start()
    assert not one.work.step()
    thread.join(10.0)
    assert phases == ["waiting"]
    one.work.drain()
    assert one.work.drained
    assert one.env_steps == 0
