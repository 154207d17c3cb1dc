"""Who is hit when, and when something counts as going on: with a herd that does what the test wants."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from remuda.benchmarks.kill_schedule import Kill
from remuda.benchmarks.training_kept import IsBack, Plan
from remuda.benchmarks.watching import DeliversAgain, WorksAgain, chosen, counts_again, newest_chunk, watch
from remuda.wire.messages import CoordinatorStatus, ExperimentStatus, Role, Status, WorkerStatus

UUID = "aaaaaaaa-0000-4000-8000-000000000001"


def worker(role: Role, incarnation: int = 1, *, busy: bool = True, pid: int = 7) -> WorkerStatus:
    return WorkerStatus(
        UUID, incarnation, role, "here", pid, "busy" if busy else "idle", None, 0.0, "", 0, 0.0, None, 1, 0
    )


def status(*workers: WorkerStatus, env_step: int = 0, train_iter: int = 0, state: str = "running") -> Status:
    run = msgspec.convert(
        {
            "id": UUID,
            "name": "run",
            "state": state,
            "reason": "for a test",
            "run_dir": "/runs/run",
            "env_step": env_step,
            "train_iter": train_iter,
            "episode": 0,
            "policy_version": 0,
            "wall_s": 0.0,
            "last_return": None,
            "best_return": None,
            "env_steps_per_s": 0.0,
            "train_iters_per_s": 0.0,
            "policy_lag": 0,
            "samples_per_insert": None,
            "waiting_for": None,
        },
        ExperimentStatus,
    )
    return Status(CoordinatorStatus(UUID, "tcp://127.0.0.1:1", 1, 0.0, 1), list(workers), [run])


def chunk(data: Path, number: int, incarnation: int = 1) -> None:
    (data / f"{UUID}_{incarnation:06d}_{number:09d}.safetensors").touch()


def test_a_collector_goes_on_once_its_next_process_has_written_a_chunk(tmp_path: Path) -> None:
    chunk(tmp_path, 3)
    back = WorksAgain(worker("collector"), tmp_path, 0)
    assert not back(status(worker("collector")))
    assert not back(status(worker("collector", 2, busy=False)))
    assert not back(status(worker("collector", 2)))
    chunk(tmp_path, 0, incarnation=2)
    assert back(status(worker("collector", 2)))


def test_an_evaluator_goes_on_once_it_is_at_the_service_of_the_run(tmp_path: Path) -> None:
    back = WorksAgain(worker("evaluator"), tmp_path, 0)
    assert not back(status(worker("evaluator", 2, busy=False)))
    assert back(status(worker("evaluator", 2)))


def test_a_learner_goes_on_once_it_has_updated_since_its_checkpoint(tmp_path: Path) -> None:
    back = WorksAgain(worker("learner"), tmp_path, 50)
    assert not back(status(worker("learner", 2), train_iter=50))
    assert not back(status(worker("learner", 2), train_iter=40)), "it has loaded its checkpoint"
    assert back(status(worker("learner", 2), train_iter=41))


def test_a_coordinator_goes_on_once_it_counts_more() -> None:
    back = counts_again(status(env_step=100))
    assert not back(status(env_step=100))
    assert back(status(env_step=101))


def test_a_worker_that_was_cut_off_goes_on_once_it_has_written_another_chunk(tmp_path: Path) -> None:
    chunk(tmp_path, 3)
    back = DeliversAgain(worker("collector"), tmp_path)
    assert not back(status(worker("collector")))
    assert not back(status(worker("collector")))
    chunk(tmp_path, 4)
    assert not back(status(worker("collector", busy=False)))
    assert back(status(worker("collector")))
    assert newest_chunk(tmp_path, worker("collector")) == 4


def test_one_of_those_who_are_there_is_chosen_by_its_share() -> None:
    three = [worker("collector", pid=pid) for pid in range(3)]
    assert [found and found.pid for found in (chosen(three, 0.0), chosen(three, 0.5), chosen(three, 0.99))] == [0, 1, 2]
    assert chosen([], 0.5) is None


@dataclass
class Herd:
    """Takes ten steps between two looks; its worker is there at every third look."""

    looks: int = 0
    hits: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Whom, and at which look."""
    state: str = "running"

    def serve(self) -> None:
        self.looks += 1

    def status(self) -> Status | None:
        if self.looks % 5 == 4:
            return None  # no coordinator answers
        return status(worker("collector"), env_step=20_000 + 10 * self.looks, state=self.state)

    def hit(self, role: str, choice: float, status: Status) -> IsBack | None:
        if self.looks % 3:
            return None
        self.hits.append((role, self.looks))
        return counts_again(status)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes at each pause, and no time otherwise."""
    now_s = [0.0]

    def pause(seconds: float) -> None:
        now_s[0] += 1.0

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", pause)


@pytest.mark.usefixtures("clock")
def test_whom_the_plan_names_is_hit_when_it_is_due_and_there() -> None:
    herd = Herd()
    kills = (Kill(4.0, "collector", 0.0), Kill(14.0, "learner", 0.0))
    seen = watch(herd, Plan(20.0, 10.0, kills))
    assert seen.at_s[-1] <= seen.plan.end_s == 30.0
    assert [role for role, _ in herd.hits] == ["collector", "learner"]
    assert all(look % 3 == 0 for _, look in herd.hits)
    assert 9.0 <= seen.losses[0].at_s <= 12.0
    assert [loss.back_s is not None and 0.0 < loss.back_s <= 2.0 for loss in seen.losses] == [True, True]
    assert seen.collector_pids == {7}
    assert [loss.lost_s for loss in seen.losses] == pytest.approx([0.0, 0.0], abs=2.0)


@pytest.mark.usefixtures("clock")
def test_a_run_that_ends_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="the run is failed: for a test"):
        watch(Herd(state="failed"), Plan(20.0, 10.0, ()))
