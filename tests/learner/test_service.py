"""A learner's lease: it trains on received rows, publishes, saves on request, and can be continued."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from remuda.buffer.chunk import write_chunk
from remuda.config.schema import ExperimentConfig
from remuda.learner import checkpoint, role, service
from remuda.learner.loop import DivergedError
from remuda.learner.outputs import LearnerOutputs
from remuda.learner.service import LearnerWork
from remuda.policy.files.policy_file import LoadedPolicy, load, publish
from remuda.policy.ranks import RankLostError
from remuda.policy.row_plan import row_plan
from remuda.storage.fence import Fence
from remuda.tests.buffer.chunks import meta_of
from remuda.tests.patience import until
from remuda.tests.policy.cases import batch
from remuda.tests.worker.leases import EXPERIMENT, assign_to, new_run, small_config, stores_of
from remuda.tests.worker.recording_link import RecordingLink
from remuda.wire.messages import (
    Batches,
    BatchRequest,
    CheckpointFile,
    CheckpointReason,
    CheckpointRecord,
    CheckpointSaved,
    Counters,
    IndexedChunk,
    PolicyPublished,
    PolicyRef,
    SaveCheckpoint,
    StopTraining,
)
from remuda.worker.serve import TakenOverError
from remuda.worker.session import Activity

ROWS = 32
BATCHES, BATCH_SIZE = 2, 8
COUNTERS = Counters(env_step=640, train_iter=99, episode=12, policy_version=3, wall_s=4.5)


class Coordinator:
    """The other side of a learner's link: sends chunks and draws rows from them."""

    def __init__(self, folder: Path, config: ExperimentConfig | None = None) -> None:
        self.config = config or small_config()
        self.run = new_run(folder)
        self.link = RecordingLink()
        self.rng = np.random.default_rng(0)
        self.chunks: list[IndexedChunk] = []
        self.told = 0
        self.answered = 0
        self.drawn: list[list[int]] = []
        self.works: list[LearnerWork] = []

    def begin(self, **changes: Any) -> LearnerWork:
        self.answered = len(self.link.sent_of(BatchRequest))
        lease = len(self.works) + 1
        work = LearnerWork(assign_to(self.run, self.config, lease=lease, **changes), self.link, stores_of(self.run))
        self.works.append(work)
        return work

    def collect(self) -> None:
        """A chunk of random experience lies in data/."""
        columns = batch(self.rng, ROWS)
        del columns["weights"]
        number = len(self.chunks)
        meta = write_chunk(self.run.data, meta_of(number, ROWS), columns)
        self.chunks.append(IndexedChunk(number * ROWS, meta))

    def answer(self, work: LearnerWork, lease: int = 1) -> None:
        """Every request not yet answered."""
        requests = self.link.sent_of(BatchRequest)[self.answered :]
        self.answered += len(requests)
        for request in requests:
            rows = self.rng.integers(0, ROWS * len(self.chunks), (request.batches, request.batch_size))
            self.drawn += rows.tolist()
            new, self.told = self.chunks[self.told :], len(self.chunks)
            weights = np.ones(rows.shape, np.float32)
            work.handle(Batches(lease, request.request, rows, weights, new, 0, Counters(env_step=ROWS * self.told)))

    def train(self, work: LearnerWork, updates: int, lease: int = 1) -> None:
        """Train for exactly `updates` updates."""
        done = 0
        while done < updates:
            if work.step():
                done += 1
            else:
                self.answer(work, lease)

    def save(self, work: LearnerWork, reason: CheckpointReason, request: int = 1) -> CheckpointSaved:
        work.handle(SaveCheckpoint(1, request, reason, COUNTERS, best_reward=17.5))
        return self.link.sent_of(CheckpointSaved)[-1]

    @property
    def published(self) -> list[PolicyRef]:
        return [message.policy for message in self.link.sent_of(PolicyPublished)]

    def in_file(self) -> LoadedPolicy:
        loaded = load(self.run.policy_file(EXPERIMENT, 0))
        assert loaded is not None
        return loaded


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    opened = Coordinator(tmp_path)
    opened.collect()
    yield opened
    for work in opened.works:
        work.close()


def plan_on_policy(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch per update, and a policy after each."""
    sizes: dict[str, Any] = {"batches_per_request": 1, "requests_in_flight": 1, "publish_interval_iters": 1}
    plan = replace(row_plan(coordinator.config), on_policy=True, **sizes)
    monkeypatch.setattr(service, "row_plan", lambda config: plan)


def log_of(coordinator: Coordinator) -> str:
    return coordinator.run.learner_log.read_text()


def test_priorities_of_every_row_trained_on_come_back_in_order(coordinator: Coordinator) -> None:
    work = coordinator.begin()
    coordinator.train(work, 10)
    work.step()
    given = np.concatenate([request.priority_rows for request in coordinator.link.sent_of(BatchRequest)])
    errors = np.concatenate([request.priorities for request in coordinator.link.sent_of(BatchRequest)])
    trained = np.concatenate(coordinator.drawn)
    assert len(given) >= 8 * BATCH_SIZE
    assert given.tolist() == trained[: len(given)].tolist()
    assert (errors >= 0).all()


def test_it_publishes_what_it_has_learned(coordinator: Coordinator) -> None:
    work = coordinator.begin(epoch=4)
    assert coordinator.published == [PolicyRef(4, 0, 0)], "before it is ready"
    first = coordinator.in_file()
    assert first.ref == PolicyRef(4, 0, 0)
    coordinator.train(work, 10)
    assert coordinator.link.progress_said == [*range(1, 11)], "every update is progress"
    work.drain()
    assert coordinator.published[-1].train_iter == 10  # not a multiple of the interval: the end publishes too
    versions = [ref.version for ref in coordinator.published]
    assert versions == list(range(len(versions)))
    last = coordinator.in_file()
    assert last.ref == coordinator.published[-1]
    assert any((first.state[name] != last.state[name]).any() for name in first.state)
    assert work.drained


@pytest.mark.parametrize("lag", [0, 1])
def test_on_policy_it_stays_within_the_lag(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, lag: int) -> None:
    """The disk may fail for longer than one wait. The learner requests the next batch meanwhile: collectors wait for
    the policy. Each policy is published, in order."""
    buffer = coordinator.config.buffer.model_copy(update={"max_policy_lag": lag})
    coordinator.config = coordinator.config.model_copy(update={"buffer": buffer})
    plan_on_policy(coordinator, monkeypatch)
    work, folder = coordinator.begin(), coordinator.run.policy
    coordinator.collect()
    away = folder.rename(folder.with_name("refused"))
    with monkeypatch.context() as hasty:
        hasty.setattr(role, "PUBLISH_DEADLINE_S", 0.01)
        coordinator.train(work, 1 + lag)
        assert [work.step() for _ in range(3)] == [False] * 3
        assert [request.train_iter for request in coordinator.link.sent_of(BatchRequest)] == [0, 1]
        assert [policy.train_iter for policy in coordinator.published] == [0]
        assert coordinator.link.doing == Activity("saving", "publishing the policy"), "and is not stuck in training"
        assert "policy of iteration 1 cannot be written: " in log_of(coordinator), "it says why"
    away.rename(folder)
    coordinator.train(work, 2)
    work.drain()
    assert [policy.train_iter for policy in coordinator.published] == [*range(4 + lag)]


def test_it_saves_what_it_is_asked_to(coordinator: Coordinator) -> None:
    work = coordinator.begin()
    coordinator.train(work, 5)
    saved = coordinator.save(work, "evaluation", request=8)
    path = coordinator.run.checkpoint(5)
    assert (saved.lease, saved.request, saved.reason) == (1, 8, "evaluation")
    assert (saved.record.file, saved.record.train_iter, saved.record.env_step) == (path.name, 5, COUNTERS.env_step)
    assert saved.record.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    state = checkpoint.load(path)
    assert state.progress.counters == Counters(env_step=640, train_iter=5, episode=12, policy_version=3, wall_s=4.5)
    assert state.progress.best_reward == 17.5
    assert state.progress.policy.epoch == 1
    assert f"saved checkpoint {path}" in log_of(coordinator)


def test_its_beats_name_its_phase(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each phase may take as long as its run allows; waiting has no limit."""
    save, seen = LearnerOutputs.save, list[str]()

    def noted(*args: Any, **kwargs: Any) -> CheckpointRecord:
        seen.append(coordinator.link.doing.phase)
        return save(*args, **kwargs)

    monkeypatch.setattr(LearnerOutputs, "save", noted)
    coordinator.link.activity("preparing", "preparing to work")
    work = coordinator.begin()
    seen.append(coordinator.link.doing.phase)
    coordinator.train(work, 2)
    seen.append(coordinator.link.doing.phase)
    coordinator.save(work, "evaluation")
    seen.append(coordinator.link.doing.phase)
    assert seen == ["preparing", "working", "saving", "working"]


@pytest.mark.parametrize("reason", ["final", "preemption"])
def test_told_to_stop_it_trains_no_further_but_still_saves(coordinator: Coordinator, reason: CheckpointReason) -> None:
    """In a preemption the request to save tells it."""
    work = coordinator.begin()
    coordinator.train(work, 3)
    work.step()
    coordinator.answer(work)  # batches are there
    done = coordinator.link.progressed
    if reason == "final":
        work.handle(StopTraining(1))
        assert not work.step()
    assert coordinator.save(work, reason).record.train_iter == done
    assert not work.step()
    assert not work.drained


def test_a_continued_learner_learns_as_the_first_would_have(coordinator: Coordinator) -> None:
    """The same batches after a restart give the same weights: optimizer and target network came back too."""

    def weights_after(work: LearnerWork, lease: int) -> dict[str, np.ndarray]:
        coordinator.rng = np.random.default_rng(42)
        coordinator.train(work, 4, lease)
        work.drain()
        return coordinator.in_file().state

    first = coordinator.begin()
    coordinator.train(first, 4)  # two whole answers
    record = coordinator.save(first, "interval").record
    path, start = coordinator.run.ckpt / record.file, CheckpointFile(record.file, record.sha256)
    expected = weights_after(first, 1)
    progress = coordinator.link.progressed
    second = coordinator.begin(epoch=2, checkpoint=start, replay=coordinator.chunks)
    assert coordinator.link.progressed == progress + len(coordinator.chunks), "each file that is loaded is progress"
    assert coordinator.published[-1] == coordinator.in_file().ref == PolicyRef(2, 0, 4), "under its new epoch"
    assert f"loaded checkpoint {path}" in log_of(coordinator)
    got = weights_after(second, 2)
    assert all((got[name] == expected[name]).all() for name in expected)
    request = coordinator.link.sent_of(BatchRequest)[-1]
    assert (request.lease, request.loaded_row) == (2, ROWS)


def test_a_learner_that_was_replaced_lets_go_and_says_so_in_one_line(coordinator: Coordinator) -> None:
    """It seemed dead and continues later: it does not publish, save or train."""
    work = coordinator.begin(epoch=1)
    coordinator.train(work, 3)
    Fence((coordinator.run.policy, coordinator.run.ckpt, coordinator.run.model), 2)
    publish(
        coordinator.run.policy_file(EXPERIMENT, 0),
        {"w": np.zeros(1, np.float32)},
        PolicyRef(2, 0, 0),
        warn=lambda text: None,
    )
    with pytest.raises(TakenOverError):
        coordinator.save(work, "evaluation")
    assert list(coordinator.run.ckpt.glob("iteration_*")) == []
    assert coordinator.link.sent_of(CheckpointSaved) == []
    with pytest.raises(TakenOverError):
        coordinator.train(work, 10_000)  # until it publishes again
    work.close()
    assert coordinator.in_file().ref == PolicyRef(2, 0, 0)
    lines = [line for line in log_of(coordinator).splitlines() if "this learner stops" in line]
    assert len(lines) == 1
    assert "Traceback" not in log_of(coordinator)


@pytest.mark.parametrize("due", ["publish", "save"])
def test_what_has_diverged_is_neither_published_nor_saved(coordinator: Coordinator, due: str) -> None:
    learner = coordinator.config.learner.model_copy(update={"learning_rate": 1e30, "publish_interval_iters": 1_000})
    if due == "publish":
        learner = learner.model_copy(update={"publish_interval_iters": 5})
    coordinator.config = coordinator.config.model_copy(update={"learner": learner})
    coordinator.collect()
    work = coordinator.begin()
    first = coordinator.published

    def go_on() -> None:
        coordinator.train(work, 50)
        if due == "save":
            coordinator.save(work, "final")
        work.drain()

    with pytest.raises(DivergedError, match=r"training has diverged: .* the checkpoints and the model"):
        go_on()
    work.close()
    assert coordinator.published == first
    assert list(coordinator.run.ckpt.glob("iteration_*")) == []


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_two_ranks_publish_what_one_would(coordinator: Coordinator, tmp_path_factory: pytest.TempPathFactory) -> None:
    learner = {**coordinator.config.learner.model_dump(), "ranks": 2}
    two = Coordinator(tmp_path_factory.mktemp("two"), small_config(learner=learner))
    two.collect()
    alone, work = coordinator.begin(), two.begin()
    try:
        log = log_of(two)
        assert "world_size 2: each batch is split between this process, rank 0, and rank 1: pid " in log
        for one, works in ((coordinator, alone), (two, work)):
            one.train(works, 6)
            works.drain()
        assert [policy.train_iter for policy in two.published][-1] == 6
        for name, values in two.in_file().state.items():
            np.testing.assert_allclose(values, coordinator.in_file().state[name], rtol=1e-4, atol=1e-5)
        psutil.Process(int(log.split("rank 1: pid ")[1].split()[0])).kill()
        until(lambda: lost(work), "the dead rank is noticed, with no batch as well")
    finally:
        work.close()


def lost(work: LearnerWork) -> bool:
    try:
        work.step()
    except RankLostError as error:
        return str(error).endswith("ended by SIGKILL")
    return False
