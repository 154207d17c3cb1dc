"""An evaluator's lease: exactly these episodes, with exactly this file."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.make import make_single
from remuda.environments.seeding import episode_seed
from remuda.evaluator import service
from remuda.evaluator.evaluate import Episode
from remuda.evaluator.play_policy import evaluate
from remuda.evaluator.service import EvaluatorWork
from remuda.learner import checkpoint
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.playable import TrainedPolicy, load_checkpoint_policy
from remuda.policy.spaces import ObservationSpec
from remuda.tests.environments.gifs import pictures_of
from remuda.tests.environments.painter import HEIGHT, LENGTH, WIDTH
from remuda.tests.policy.cases import OBSERVATION, dqn
from remuda.tests.worker.leases import assign_to, new_run, sha256_of, small_config, stores_of
from remuda.tests.worker.recording_link import WORKER, RecordingLink
from remuda.wire.messages import (
    Counters,
    Drain,
    Evaluate,
    EvaluationDone,
    EvaluationFilmed,
    PolicyRef,
    Task,
    WorkerMessage,
)
from remuda.worker.link import WorkerIdentity
from remuda.worker.serve import AskedToEndError
from remuda.worker.shutdown_guard import ShutdownGuard

FIRST_TASK, SECOND_TASK = Task(), Task(1, '{"sutton_barto_reward": true}')
"""In the second a step brings 0 and a fall -1, in place of 1 and 1."""


class Lease:
    """One evaluator's lease, and checkpoints for it to play."""

    def __init__(
        self, folder: Path, config: ExperimentConfig | None = None, observation: ObservationSpec = OBSERVATION
    ) -> None:
        self.config = config or small_config()
        self.observation = observation
        self.run = new_run(folder)
        self.link = RecordingLink()
        self.guard = ShutdownGuard()
        self.evaluation = 0
        self.work = EvaluatorWork.under(
            assign_to(self.run, self.config, lease=3),
            WorkerIdentity(WORKER, 2),
            self.link,
            self.guard,
            stores_of(self.run),
        )

    def saved(self, train_iter: int, seed: int) -> Path:
        path = self.run.checkpoint(train_iter)
        progress = checkpoint.Progress(Counters(train_iter=train_iter), PolicyRef(), {"epsilon": 1.0})
        assert isinstance(self.config.policy, DqnConfig)
        checkpoint.save(
            path, dqn(self.config.policy, observation=self.observation, seed=seed), progress, config=self.config
        )
        return path

    def ask(self, path: Path, first_episode: int, episodes: int, task: Task = FIRST_TASK) -> None:
        self.evaluation += 1
        file = path.name, sha256_of(path)
        self.work.handle(Evaluate(3, self.evaluation, *file, 20, 4_000, first_episode, episodes, task=task))

    def played_alone(self, path: Path, numbers: range) -> list[Episode]:
        """The same episodes, one after another in one environment, by nobody's help."""
        return evaluate(
            [make_single(self.config.env, source_dir=None)],
            load_checkpoint_policy(path).policy,
            seeds=[episode_seed(self.config.seed, number) for number in numbers],
            rng=np.random.default_rng(0),
        )


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[Lease]:
    opened = Lease(tmp_path)
    yield opened
    opened.work.close()


def test_it_plays_the_episodes_of_these_numbers_with_this_file(lease: Lease) -> None:
    """Shares put together are the whole; each step is progress."""
    path, other = lease.saved(20, seed=1), lease.saved(30, seed=2)
    for file, first_episode, episodes in ((path, 3, 6), (path, 3, 2), (other, 3, 6), (path, 5, 4)):
        lease.ask(file, first_episode, episodes)
    done, share, of_other, rest = lease.link.sent_of(EvaluationDone)
    expected = lease.played_alone(path, range(3, 9))
    assert (done.lease, done.evaluation, done.first_episode) == (3, 1, 3)
    assert done.returns == share.returns + rest.returns == [episode.return_ for episode in expected]
    assert done.lengths == [episode.length for episode in expected]
    assert of_other.returns == [episode.return_ for episode in lease.played_alone(other, range(3, 9))] != done.returns
    assert done.duration_s > 0
    assert len(set(done.returns)) > 1  # the seeds do differ
    assert sum(done.actions["action"].counts) == sum(done.lengths)
    assert lease.link.sent_of(EvaluationFilmed) == [], "nobody has asked for films"
    said = lease.link.progress_said
    assert said[-1] == sum(sum(each.lengths) for each in (done, share, of_other, rest))
    assert all(1 <= after - before <= 4 for before, after in zip([0, *said], said, strict=False))


def test_it_plays_at_the_task_that_it_is_asked_for(lease: Lease) -> None:
    path = lease.saved(20, seed=1)
    for task in (FIRST_TASK, SECOND_TASK, FIRST_TASK):
        lease.ask(path, 0, 4, task)
    first, second, again = lease.link.sent_of(EvaluationDone)
    assert second.returns == [-1.0] * 4
    assert (again.returns, again.lengths) == (first.returns, first.lengths)
    assert second.lengths == first.lengths, "the same episodes"


def test_it_plays_on_the_environment_of_evaluations(tmp_path: Path) -> None:
    """Which is over the task."""
    own = {"kwargs": {"sutton_barto_reward": True}, "max_episode_steps": 6}
    config = small_config(evaluator={"episodes": 5, "env": own})
    lease = Lease(tmp_path, config)
    for task in (FIRST_TASK, Task(1, '{"sutton_barto_reward": false}')):
        lease.ask(lease.saved(20, seed=1), 0, 4, task)
    for done in lease.link.sent_of(EvaluationDone):
        assert set(done.returns) == {0.0}
        assert done.lengths == [6] * 4
    lease.work.close()


def test_its_log_has_every_episode_and_the_table(lease: Lease) -> None:
    path = lease.saved(20, seed=1)
    lease.ask(path, 0, 5)
    [done] = lease.link.sent_of(EvaluationDone)
    log = lease.run.worker_log("evaluator", WORKER, 2).read_text()
    finished = re.findall(r"\[EVALUATOR\] env (\d+) finished episode, final reward: (\S+), current episode: (\d+)", log)
    assert [int(episode) for _, _, episode in finished] == [1, 2, 3, 4, 5]
    assert {int(env) for env, _, _ in finished} == {0, 1, 2, 3}
    assert sorted(float(reward) for _, reward, _ in finished) == sorted(done.returns)
    assert "iteration_20.pth.tar" in log
    assert "reward_mean" in log


def test_its_beats_say_when_it_loads_and_when_it_plays(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large checkpoint on a slow disk is no progress for minutes."""
    seen: list[str] = []

    def noted(path: Path, *, config: object) -> TrainedPolicy:
        seen.append(lease.link.doing.phase)
        return load_checkpoint_policy(path)

    monkeypatch.setattr(service, "load_checkpoint_policy", noted)
    monkeypatch.setattr(lease.link, "progress", lambda done: seen.append(lease.link.doing.phase))
    lease.ask(lease.saved(20, seed=1), 0, 5)
    assert (seen[0], set(seen[1:])) == ("preparing", {"working"})
    assert lease.link.doing.phase == "waiting"


def test_a_process_that_is_to_end_gives_the_evaluation_up(lease: Lease) -> None:
    path = lease.saved(20, seed=1)
    with pytest.raises(CheckpointError, match=r"iteration_77\.pth\.tar"):
        lease.ask(lease.run.checkpoint(77), 0, 5)
    lease.guard.end("asked to by SIGTERM")
    with pytest.raises(AskedToEndError):
        lease.ask(path, 0, 5)
    assert lease.link.sent == []


def test_a_lease_that_is_to_end_gives_the_evaluation_up(lease: Lease) -> None:
    """`stop --now` during the last evaluation; a drain of another lease is none of its business."""
    path = lease.saved(20, seed=1)
    lease.link.inbox.append(Drain(2, "of another lease"))
    lease.ask(path, 0, 5)
    assert len(lease.link.sent_of(EvaluationDone)) == 1
    lease.link.inbox.append(Drain(3, "the run is over"))
    with pytest.raises(AskedToEndError):
        lease.ask(path, 0, 5)
    assert len(lease.link.sent_of(EvaluationDone)) == 1


def test_it_builds_no_more_environments_than_its_share_needs(tmp_path: Path) -> None:
    config = small_config(evaluator={"episodes": 5, "count": 3})
    run = new_run(tmp_path)
    work = EvaluatorWork.under(
        assign_to(run, config), WorkerIdentity(WORKER, 1), RecordingLink(), ShutdownGuard(), stores_of(run)
    )
    work.close()
    assert "of small: 2 environments" in run.worker_log("evaluator", WORKER, 1).read_text()


@contextmanager
def painting(folder: Path, env: str = "painter:WidePainter", **log: object) -> Generator[Lease]:
    """A lease whose evaluations are filmed."""
    made = {"make": f"remuda.tests.environments.{env}", "num_envs": 4}
    config = small_config(env=made, log={"film_interval_env_steps": 1_000, **log})
    opened = Lease(folder, config, observation=ObservationSpec((2,), "float32", -20.0, 20.0))
    try:
        yield opened
    finally:
        opened.work.close()


def test_the_film_comes_after_the_result_and_counts_in_no_figure(tmp_path: Path) -> None:
    with painting(tmp_path) as lease:
        path = lease.saved(20, seed=1)
        lease.ask(path, 0, 3)
        lease.ask(path, 3, 2)
        first, filmed, second = lease.link.sent
        blocks = lease.work.timers.flat()
        said = lease.link.progress_said
    assert isinstance(first, EvaluationDone)
    assert isinstance(filmed, EvaluationFilmed)
    assert isinstance(second, EvaluationDone)
    assert (filmed.lease, filmed.train_iter, filmed.env_step) == (3, 20, 4_000)
    assert len(pictures_of(filmed.film.gif, height=HEIGHT, width=WIDTH)) == LENGTH + 1
    assert sum(first.actions["action"].counts) == sum(first.lengths) == 3 * LENGTH
    assert said[-1] == 6 * LENGTH, "a film is progress, too"
    assert blocks["evaluate/film"][0] == 1
    assert first.duration_s + second.duration_s <= blocks["evaluate"][1] - blocks["evaluate/film"][1]


def test_the_last_evaluation_is_filmed_though_the_lease_is_to_end(tmp_path: Path) -> None:
    """But not in a process that is to end."""
    with painting(tmp_path, film_interval_env_steps=1) as lease:
        path, link, send = lease.saved(20, seed=1), lease.link, lease.link.send

        def send_and_hear_of_the_end(message: WorkerMessage) -> None:
            send(message)
            link.inbox.append(Drain(3, "the run is over"))

        def send_and_be_told_to_end(message: WorkerMessage) -> None:
            send(message)
            lease.guard.end("asked to by SIGTERM")

        link.send = send_and_hear_of_the_end  # type: ignore[method-assign]
        lease.ask(path, 0, 3)
        assert len(link.sent_of(EvaluationFilmed)) == 1
        link.inbox.clear()
        link.send = send_and_be_told_to_end  # type: ignore[method-assign]
        lease.evaluation += 1
        lease.work.handle(Evaluate(3, lease.evaluation, path.name, sha256_of(path), 20, 5_000, 0, 3))
        assert len(link.sent_of(EvaluationDone)) == 2
        assert len(link.sent_of(EvaluationFilmed)) == 1


def test_a_film_that_fails_costs_a_warning_and_no_result(tmp_path: Path) -> None:
    with painting(tmp_path / "blind", "unfilmable:Blind") as lease:
        said = "evaluations are not filmed: RuntimeError: no display"
        assert list(lease.work.warnings) == [said], "the commander is told, too"
        assert f"[WARNING] {said}" in lease.run.worker_log("evaluator", WORKER, 2).read_text()
    with painting(tmp_path / "later", "unfilmable:BlindLater", histograms=False) as lease:
        assert list(lease.work.warnings) == []
        path = lease.saved(20, seed=1)
        for _ in range(2):
            lease.ask(path, 0, 3)
        first, second = lease.link.sent
        log = lease.run.worker_log("evaluator", WORKER, 2).read_text()
    assert isinstance(first, EvaluationDone)
    assert isinstance(second, EvaluationDone)
    assert first.returns == second.returns == [float(LENGTH)] * 3
    assert first.actions == {}
    assert log.count("[WARNING] evaluations are not filmed: RuntimeError: the renderer is gone") == 1
