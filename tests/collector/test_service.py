"""A collector's lease: no step beyond its credit, no chunk unannounced, no row lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.buffer.chunk import read_chunk, read_meta, write_chunk
from remuda.collector import environments as collector_environments
from remuda.collector.collected import Collected, CollectSummary
from remuda.collector.service import CHUNKS_IN_THE_AIR, CollectorWork
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import Copies
from remuda.policy.algorithms import make_policy
from remuda.policy.files.policy_file import publish
from remuda.policy.networks.tensors import DeviceError
from remuda.tests.environments import faulty
from remuda.tests.environments.stepping import copies_of
from remuda.tests.policy.cases import ACTION, OBSERVATION
from remuda.tests.worker.leases import EXPERIMENT, algorithm_of, assign_to, new_run, small_config, stores_of
from remuda.tests.worker.recording_link import WORKER, RecordingLink
from remuda.wire.messages import (
    ChunkAccepted,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    CollectorReport,
    Counters,
    Credit,
    MetricMean,
    PolicyAvailable,
    PolicyRef,
    Task,
)
from remuda.worker.link import WorkerIdentity
from remuda.worker.stores import ports

CHUNK = 16
NUM_ENVS = 4
FIRST = PolicyRef(1, 0, 0)
FIRST_TASK, SECOND_TASK = Task(), Task(3, '{"sutton_barto_reward": true}')
"""In the second a step brings 0 and a fall -1, in place of 1 and 1."""
GREEDY = {"epsilon": 0.0}


class Coordinator:
    """The other side of one collector's link: grants, acknowledges, publishes."""

    def __init__(self, folder: Path) -> None:
        self.config = small_config()
        self.run = new_run(folder)
        self.algorithm = algorithm_of(self.config)
        self.link = RecordingLink()
        self.identity = WorkerIdentity(WORKER, 1)
        self.newest = FIRST
        self.publish(FIRST)
        self.works: list[CollectorWork] = []
        self.answered = 0

    def publish(self, ref: PolicyRef) -> None:
        path = self.run.policy_file(EXPERIMENT, 0)
        publish(path, self.algorithm.acting_state(), ref, warn=lambda text: None)
        self.newest = ref

    def begin(self, lease: int = 1, index: int = 1, task: Task = FIRST_TASK) -> CollectorWork:
        assign = assign_to(self.run, self.config, lease=lease, index=index, task=task)
        work = CollectorWork(assign, self.identity, self.link, stores_of(self.run))
        self.works.append(work)
        return work

    @property
    def metas(self) -> list[ChunkMeta]:
        return [message.meta for message in self.link.sent_of(ChunkReady)]

    @property
    def env_steps(self) -> int:
        return sum(meta.env_steps for meta in self.metas)

    def grant(self, work: CollectorWork, env_steps: int, lease: int = 1) -> None:
        work.handle(Credit(lease, env_steps, self.newest, GREEDY))

    def acknowledge(self, work: CollectorWork, credit: int = 0) -> None:
        """Everything announced and not yet acknowledged."""
        metas = self.metas[self.answered :]
        self.answered += len(metas)
        for meta in metas:
            work.handle(ChunkAccepted(meta.chunk, credit, self.newest, GREEDY))

    def collect(self, work: CollectorWork, env_steps: int) -> None:
        """Let it use a credit of so many steps up."""
        self.grant(work, env_steps)
        while work.step():
            self.acknowledge(work)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    opened = Coordinator(tmp_path)
    yield opened
    for work in opened.works:
        work.close()


@pytest.mark.parametrize("credit", [1, CHUNK, CHUNK + 1, 5 * CHUNK])
def test_credit_is_used_up_and_never_exceeded_by_a_chunk(coordinator: Coordinator, credit: int) -> None:
    """Without credit nothing is done; an earlier lease's acknowledgement grants none."""
    work = coordinator.begin()
    work.handle(ChunkAccepted(ChunkId(WORKER, 1, 0), 10_000, FIRST, GREEDY))
    assert not work.step()
    coordinator.collect(work, credit)
    assert credit <= coordinator.env_steps < credit + CHUNK + NUM_ENVS
    assert coordinator.env_steps - coordinator.metas[-1].env_steps < credit  # the last chunk was begun within it
    assert all(CHUNK <= meta.env_steps < CHUNK + NUM_ENVS for meta in coordinator.metas)


def test_it_does_not_run_ahead_of_its_acknowledgements(coordinator: Coordinator) -> None:
    work = coordinator.begin()
    coordinator.grant(work, 100 * CHUNK)
    coordinator.grant(work, CHUNK)  # an older message that was overtaken: credit never falls
    assert [work.step() for _ in range(CHUNKS_IN_THE_AIR + 1)] == [True] * CHUNKS_IN_THE_AIR + [False]
    coordinator.acknowledge(work)
    assert work.step()


@pytest.mark.parametrize("heard", ["acknowledgement", "credit"])
def test_it_goes_on_at_a_new_task_and_loses_no_step(coordinator: Coordinator, heard: str) -> None:
    """The episodes under way are left; those that end after it began in it. A lease may begin at a task."""
    coordinator.collect(coordinator.begin(task=SECOND_TASK), 6 * CHUNK)
    assert {value for meta in coordinator.metas for value in meta.episode_returns} == {-1.0}
    coordinator.link.sent.clear()
    work = coordinator.begin()
    coordinator.answered = 0
    coordinator.collect(work, 4 * CHUNK)
    before = len(coordinator.metas)
    if heard == "credit":
        work.handle(Credit(1, 12 * CHUNK, FIRST, GREEDY, task=SECOND_TASK))
    else:
        coordinator.grant(work, 12 * CHUNK)
        assert work.step()
        before += 1
        meta = coordinator.metas[-1]
        coordinator.answered += 1
        work.handle(ChunkAccepted(meta.chunk, 12 * CHUNK, FIRST, GREEDY, task=SECOND_TASK))
    work.handle(Credit(1, 12 * CHUNK, FIRST, GREEDY))  # an older message that was overtaken
    coordinator.collect(work, 12 * CHUNK)
    first, second = coordinator.metas[:before], coordinator.metas[before:]
    assert {meta.task for meta in first} == {0}
    assert {meta.task for meta in second} == {3}
    assert {value > 0 for meta in first for value in meta.episode_returns} == {True}
    assert {value for meta in second for value in meta.episode_returns} == {-1.0}
    work.drain()
    assert sum(meta.rows for meta in coordinator.metas) == coordinator.env_steps
    assert coordinator.metas[-1].task == 3, "what is handed in at the end, too"


def test_it_acts_with_the_published_policy_and_writes_what_it_announces(coordinator: Coordinator) -> None:
    coordinator.collect(coordinator.begin(), 4 * CHUNK)
    actor = make_policy(coordinator.config, OBSERVATION, ACTION)
    actor.load_state(coordinator.algorithm.acting_state())
    assert sorted(path.name for path in coordinator.run.data.iterdir()) == [meta.file for meta in coordinator.metas]
    for meta in coordinator.metas:
        path = coordinator.run.data / meta.file
        columns = read_chunk(path, meta)  # raises unless size, header and checksum are as announced
        assert (read_meta(path), len(columns["reward"])) == (meta, meta.rows)
        greedy = actor.act(columns["obs"], {}, np.random.default_rng(0), deterministic=True)
        assert columns["action"].tolist() == greedy.tolist()


def test_chunks_are_numbered_without_holes_across_leases(coordinator: Coordinator) -> None:
    for lease in (1, 2, 3):
        work = coordinator.begin(lease)
        coordinator.collect(work, 3 * CHUNK)
        work.drain()
        coordinator.acknowledge(work)
        assert work.drained
    assert [meta.chunk for meta in coordinator.metas] == [
        ChunkId(WORKER, 1, sequence) for sequence in range(len(coordinator.metas))
    ]
    leases = [message.lease for message in coordinator.link.sent_of(ChunkReady)]
    assert leases == sorted(leases)
    assert set(leases) == {1, 2, 3}


def test_a_policy_is_read_once_per_version(coordinator: Coordinator) -> None:
    work = coordinator.begin()
    file = coordinator.run.policy_file(EXPERIMENT, 0)
    coordinator.collect(work, CHUNK)
    file.unlink()
    work.handle(PolicyAvailable(1, PolicyRef(0, 99, 990)))  # a former learner's: no news
    coordinator.collect(work, 4 * CHUNK)  # nobody looks at the file
    second = PolicyRef(1, 1, 10)
    coordinator.publish(second)
    work.handle(PolicyAvailable(1, second))
    before = len(coordinator.metas)
    coordinator.grant(work, 20 * CHUNK)
    for _ in range(4):
        assert work.step()
        coordinator.acknowledge(work)
    assert {meta.policy for meta in coordinator.metas[:before]} == {FIRST}
    # The first rows of the first chunk after the change were still acted by the former policy.
    assert [meta.policy for meta in coordinator.metas[before:]] == [FIRST, second, second, second]


def is_drained(work: CollectorWork) -> bool:
    return work.drained


@pytest.mark.parametrize("credit", [CHUNK, 20 * CHUNK])
def test_draining_hands_in_every_row(coordinator: Coordinator, credit: int) -> None:
    work = coordinator.begin()
    coordinator.collect(work, credit)
    assert sum(meta.rows for meta in coordinator.metas) < coordinator.env_steps  # some wait for later steps
    before = coordinator.env_steps
    work.drain()
    said = list(coordinator.link.sent)
    work.drain()  # its process is asked to end, too
    assert coordinator.link.sent == said
    assert not is_drained(work)  # the last chunk is not acknowledged yet
    assert not work.step()
    coordinator.acknowledge(work)
    assert is_drained(work)
    assert coordinator.env_steps == before
    assert sum(meta.rows for meta in coordinator.metas) == coordinator.env_steps


def test_progress_grows_with_every_step_of_the_vector(coordinator: Coordinator) -> None:
    """So that a chunk of a slow environment is not taken for a stuck one; and it goes on over leases."""
    for lease in (1, 2):
        work = coordinator.begin(lease)
        coordinator.collect(work, 4 * CHUNK)
        work.drain()
        coordinator.acknowledge(work)
    said = coordinator.link.progress_said
    assert said[-1] == coordinator.link.progressed == coordinator.env_steps
    steps = [after - before for before, after in zip([0, *said], said, strict=False)]
    assert all(0 <= step <= NUM_ENVS for step in steps)
    assert len(said) >= coordinator.env_steps / NUM_ENVS


def test_reports_cover_every_step_and_episode_once(coordinator: Coordinator) -> None:
    work = coordinator.begin()
    coordinator.collect(work, 30 * CHUNK)
    coordinator.publish(PolicyRef(1, 1, 10))  # ten updates later, more than the interval of four
    coordinator.collect(work, 60 * CHUNK)
    work.drain()
    coordinator.acknowledge(work)
    reports = coordinator.link.sent_of(CollectorReport)
    assert [report.train_iter for report in reports] == [0, 10, 10]  # the last one with the end
    assert sum(report.step_count for report in reports) == coordinator.env_steps
    returns = [value for meta in coordinator.metas for value in meta.episode_returns]
    assert sum(report.episode_count for report in reports) == len(returns)
    total = sum(report.reward_mean * report.episode_count for report in reports if report.episode_count)
    assert total == pytest.approx(sum(returns))


def test_a_failed_beginning_leaves_no_environment(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker serves on: environments may be processes."""
    closed: list[Copies] = []

    def make(env: EnvConfig, assigned: Any, **settings: Any) -> Copies:
        copies = copies_of(env, **settings)
        monkeypatch.setattr(copies, "close", lambda: closed.append(copies))
        return copies

    monkeypatch.setattr(collector_environments, "make_copies", make)
    env = {"id": "CartPole-v1", "num_envs": 4, "vectorization": "sync"}
    coordinator.config = small_config(env=env, collector={"device": "cuda:77"})
    with pytest.raises(DeviceError):
        coordinator.begin()
    assert len(closed) == 1


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """While it holds anything, payloads are refused with the error in it."""
    refusing = list[int]()

    def write(*args: Any, **settings: Any) -> ChunkMeta:
        if refusing:
            raise OSError(refusing[0], os.strerror(refusing[0]))
        written: ChunkMeta = write_chunk(*args, **settings)
        return written

    monkeypatch.setattr(ports, "write_chunk", write)
    return refusing


def test_a_chunk_waits_at_hand_for_room_on_the_disk(coordinator: Coordinator, full_disk: list[int]) -> None:
    work = coordinator.begin()
    coordinator.collect(work, CHUNK)
    full_disk.append(errno.EDQUOT)
    coordinator.grant(work, 10 * CHUNK)
    assert [work.step() for _ in range(5)] == [False] * 5  # it neither collects more nor gives up
    assert coordinator.link.doing[:2] == ("waiting", "waiting for room on the disk")
    assert 0 < coordinator.link.doing.lacks_bytes <= coordinator.metas[0].payload_bytes, "for the run's line"
    assert len(coordinator.metas) == 1
    work.drain()
    work.step()
    assert not is_drained(work), "not before the disk has taken all"
    full_disk.clear()
    work.step()
    assert [meta.chunk.sequence for meta in coordinator.metas][:2] == [0, 1]
    coordinator.acknowledge(work)
    assert is_drained(work)
    assert sum(meta.rows for meta in coordinator.metas) == coordinator.env_steps
    log = next(coordinator.run.log.glob("collector/*_logger.txt")).read_text()
    assert log.count("chunk 1 waits for room on the disk") == 1


def test_an_environment_that_breaks_is_named_counted_and_costs_no_other_step(coordinator: Coordinator) -> None:
    env = {"make": f"{faulty.MODULE}:make_faulty", "kwargs": {"troubles": {"*": "raise"}}, "num_envs": NUM_ENVS}
    coordinator.config = small_config(env={**env, "vectorization": "sync"})
    coordinator.algorithm = algorithm_of(coordinator.config)
    coordinator.publish(PolicyRef(1, 1, 0))
    work = coordinator.begin(index=0)
    coordinator.collect(work, 8 * CHUNK)  # each of the four breaks in its ninth step
    work.drain()
    log = coordinator.run.worker_log("collector", WORKER, 1).read_text()
    restarts = log.count(": RuntimeError: the simulator broke; it is made again")
    assert restarts >= NUM_ENVS
    for index in range(NUM_ENVS):
        assert f"[WARNING] environment {index} ({faulty.MODULE}:make_faulty, seed " in log
    reports = coordinator.link.sent_of(CollectorReport)
    assert sum(report.statistics.get("env_restart_count", 0) for report in reports) == restarts
    assert f"total_env_restart_count: {restarts}\n" in log
    assert sum(report.step_count for report in reports) == coordinator.env_steps >= 8 * CHUNK
    assert sum(meta.rows for meta in coordinator.metas) == coordinator.env_steps
    lengths = [length for meta in coordinator.metas for length in meta.episode_lengths]
    assert lengths
    assert set(lengths) <= {3, 4, 5, 6}, "none of an episode that broke"


def chunk(*returns: float, env_steps: int = 10, rows: int = 9) -> Collected:
    columns = {"reward": np.zeros(rows, np.float32)}
    return Collected(columns, env_steps, PolicyRef(), list(returns), [5] * len(returns), 0.25)


def test_reports_lie_at_least_the_interval_apart_and_need_an_episode() -> None:
    summary = CollectSummary(100)
    reported: list[int] = []
    for train_iter in range(0, 500, 30):
        summary.add(chunk(*([1.0] if train_iter not in (120, 150) else [])))
        if summary.due(train_iter=train_iter, env_step=0) is not None:
            reported.append(train_iter)
    assert reported == [0, 120, 240, 360, 480]


def test_at_the_end_the_rest_is_reported_once_due_or_not() -> None:
    summary = CollectSummary(100)
    summary.add(chunk(3.0))
    assert summary.due(train_iter=0, env_step=10) is not None
    assert summary.due(train_iter=0, env_step=10, last=True) is None, "nothing has come since"
    summary.add(chunk())
    assert summary.due(train_iter=1, env_step=20) is None
    report = summary.due(train_iter=1, env_step=20, last=True)
    assert report is not None
    assert (report.window.env_steps, report.window.episode_returns) == (10, [])
    assert summary.due(train_iter=1, env_step=20, last=True) is None


@pytest.mark.parametrize(("inference", "at"), [(True, [40, 140, 240]), (False, [40])])
def test_a_config_says_by_what_reports_are_counted(inference: bool, at: list[int]) -> None:
    raw = {"name": "x", "env": {"id": "CartPole-v1"}, "learner": {"inference": inference}}
    log = {"interval_train_iters": 10, "progress_interval_env_steps": 100}
    summary = CollectSummary.of(ExperimentConfig.model_validate({**raw, "log": log}))
    reported: list[int] = []
    for taken in range(20, 300, 20):
        summary.add(chunk(*([] if taken == 20 else [1.0]), env_steps=20))
        if summary.due(train_iter=0, env_step=taken) is not None:
            reported.append(taken)
    assert reported == at


def test_a_resumed_run_s_totals_go_on() -> None:
    summary = CollectSummary(0, before=Counters(env_step=1_000, episode=20))
    summary.add(chunk())
    assert summary.due(train_iter=0, env_step=10) is None, "no episode has ended"
    summary.add(chunk(3.0, 5.0))
    first = summary.due(train_iter=0, env_step=20)
    assert first is not None
    fields = first.fields()
    assert (fields["episode_count"], fields["envstep_count"], fields["train_sample_count"]) == (2, 20, 18)
    assert (fields["reward_mean"], fields["collect_time"]) == (4.0, 0.5)
    summary.add(chunk(1.0))
    report = summary.due(train_iter=0, env_step=0, last=True)
    assert report is not None
    totals = report.totals
    assert (totals.env_steps, totals.train_samples, totals.episodes, totals.duration_s) == (1_030, 1_027, 23, 0.75)


def test_metrics_are_means_over_all_steps_since_the_last_report() -> None:
    summary = CollectSummary(0)
    for metrics in ({"speed": MetricMean(1.0, 10)}, {"speed": MetricMean(4.0, 5), "height": MetricMean(7.0, 2)}, {}):
        summary.add(replace(chunk(1.0), metrics=metrics))
    report = summary.due(train_iter=0, env_step=30)
    assert report is not None
    assert report.window.metrics == {"speed": pytest.approx((1.0 * 10 + 4.0 * 5) / 15), "height": 7.0}
    summary.add(replace(chunk(1.0), metrics={"speed": MetricMean(9.0, 10)}))
    report = summary.due(train_iter=1, env_step=40)
    assert report is not None
    assert report.window.metrics == {"speed": 9.0}
    assert report.fields()["speed"] == 9.0
