"""The state machine as a whole: an experiment from submission to end, with everything the world can do to it."""

from __future__ import annotations

from itertools import groupby

import pytest

from remuda.logbook.episode_reports import EvaluationReport, WorkerReport
from remuda.logbook.reports import BufferThroughputReport
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import STEP_S, EvaluatorWork, Faults, Worker, World
from remuda.tests.faults.sizes import LONG
from remuda.wire.messages import ExperimentStatus, Rejected, Status, StopExperiment, Submitted


def finished(world: World, *, position: int = 0) -> ExperimentStatus:
    """Run to the end and check what must hold at the end of any run."""
    world.run(3_000)
    status = world.experiment(position)
    assert status.state == "finished", status.reason
    assert status.env_step == world.unique_env_steps()
    assert all(worker.lease == 0 for worker in world.workers.values() if worker.alive)
    assert world.disk >= world.closed[position].keep, "a payload the index refers to was deleted"
    return status


@pytest.mark.parametrize("per_insert", [0.5, 4.0])
def test_all_that_a_run_shows_agrees_with_its_budget_and_its_boundaries(per_insert: float) -> None:
    world = World(config(buffer={"capacity": 1_000, "min_rows": 200, "samples_per_insert": per_insert}))
    world.warnings = ["its checkpoint is of another torch"]
    status = finished(world.started())
    assert isinstance(world.replies[0], Submitted)
    assert [text for id, text in world.said if id and text in world.warnings] == world.warnings
    assert status.reason == "max_env_steps"
    assert 3_000 <= status.env_step < 3_000 + 3 * 80, "at most the chunks in the works beyond the budget"
    rows = sum(meta.rows for chunk, meta in world.written.items() if chunk in world.accepted)
    asked = int(per_insert * (rows - 200) // 16)
    assert asked <= status.train_iter <= asked + 16, "no update is owed"
    assert world.logged("were done, and buffer.samples_per_insert") == []
    assert {0, status.train_iter} <= set(world.rewards) <= set(world.records)
    assert status.best_return == max(reward for reward, _ in world.rewards.values())
    evaluations = [report.env_step for report in world.reports if isinstance(report, EvaluationReport)]
    assert [step // 500 for step in evaluations[:-1]] == [0, 1, 2, 3, 4, 5]
    played = [
        report.worker for report in world.reports if isinstance(report, WorkerReport) and report.role == "evaluator"
    ]
    assert set(played) == {worker.uuid for worker in world.of("evaluator")}
    assert [(row.epoch, row.env_step) for row in world.progress] == list(enumerate(range(0, 3_001, 300)))
    assert sum(len(row.returns) for row in world.progress) == world.progress[-1].episode == status.episode
    assert world.progress[-1].test_returns, "how the last checkpoint was evaluated"
    tables = [report for report in world.reports if isinstance(report, BufferThroughputReport)]
    assert sum(table.pushed_in for table in tables) == rows
    assert sum(table.past_s for table in tables) == pytest.approx(status.wall_s, abs=1.0)


@pytest.mark.parametrize(("reason", "bound"), [("stop_value", 150.0), ("max_train_iters", 123), ("max_wall_s", 7.0)])
def test_a_run_ends_at_each_of_its_other_bounds(reason: str, bound: float) -> None:
    world = World(config(stop={"max_env_steps": 10**9, reason: bound}))
    status = finished(world.started())
    assert status.reason == reason
    assert reason != "max_train_iters" or status.train_iter == bound
    best = [train_iter for train_iter, (_, is_best) in world.rewards.items() if is_best]
    assert world.rewards[best[-1]][0] == status.best_return
    assert reason != "stop_value" or (status.best_return or 0.0) >= bound


def test_workers_of_all_roles_that_die_or_leave_lose_no_step_that_was_counted() -> None:
    """Only a collector that is killed may have lost steps, and the log says so."""
    world = World(config(collector={"count": 3, "chunk_env_steps": 64}, stop={"max_env_steps": 6_000}))
    world.started(collectors=3, evaluators=2, learners=2).until_env_step(1_000)
    killed, lost, leaving = world.of("collector")
    learner = next(worker for worker in world.of("learner") if worker.lease)
    evaluator = next(worker for worker in world.of("evaluator") if worker.lease)
    world.restart(killed)
    for worker in (lost, learner, evaluator):
        world.kill(worker)
    leaving.leave()
    finished(world)
    [other] = [worker for worker in world.of("learner") if worker is not learner]
    assert len(other.assignments) == 1
    for worker, steps_lost in ((killed, True), (lost, True), (leaving, False), (learner, False)):
        [text] = world.logged(f"{worker.uuid} is gone: ")
        assert text.endswith("how many is not known") is steps_lost


def test_a_queued_run_shows_its_wait_reports_nothing_and_can_be_stopped() -> None:
    world = World(config(log={"buffer_interval_s": 1.0})).started(learners=0)
    world.steps(100)
    status = world.experiment()
    assert status.state == "queued"
    assert (status.waiting_for or "").startswith("waits for 1 learner (0 free); it begins")
    assert "`remuda worker learner`" in (status.waiting_for or "")
    for name in ("nonsense", ""):  # "": a variable of a shell that is not set, say
        world.ask(StopExperiment(name))
        world.steps(5)
        assert isinstance(refusal := world.replies[-1], Rejected)
        assert refusal.reason.startswith(f"no experiment is called {name!r}; known are: x (")
    world.ask(StopExperiment("x"))
    world.run(10)
    assert (world.experiment().state, world.reports) == ("stopped", [])


@pytest.mark.parametrize("seed", range(25 if LONG else 2))
def test_lost_repeated_and_reordered_messages_change_no_counter(seed: int) -> None:
    world = World(
        config(stop={"max_env_steps": 1_200}), seed=seed, faults=Faults(loss=0.1, repeat=0.2, delay_s=0.4)
    ).started(collectors=3, evaluators=2)
    status = finished(world)
    assert status.episode == len(world.accepted), "one ended in each chunk"
    assert status.train_iter == max(world.records), "the last checkpoint is of the last update"
    assert min(world.mishaps[what] for what in ("lost", "repeated", "overtaken")) > 10


def test_stop_now_skips_a_last_evaluation_that_is_going_on() -> None:
    """It is not waited for, nothing comes of it, and everybody is let go."""
    world = World(config(stop={"max_env_steps": 10**9})).started()
    world.steps(60)
    evaluator = world.of("evaluator")[0]
    assert isinstance(evaluator.work, EvaluatorWork)
    evaluator.work.plays_on = True
    world.ask(StopExperiment("x"))
    world.steps(100)
    assert world.experiment().state == "stopping"
    evaluated = dict(world.rewards)
    world.ask(StopExperiment("x", now=True))
    world.run(10)
    status = world.experiment()
    assert (status.state, status.reason) == ("stopped", "stopped")
    assert max(world.records) == status.train_iter
    assert world.rewards == evaluated
    assert any("the evaluation of iteration_" in text and "given up" in text for _, text in world.said)
    assert all(worker.alive and not worker.lease for worker in world.workers.values())


def test_a_name_means_the_experiment_that_goes_on_else_the_newest_that_had_it() -> None:
    world = World(config())
    world.herd(collectors=2)
    for _ in range(2):
        world.submit()
        world.run()
    first, second = world.status().experiments
    status = world.coordinator.client_requests.status("x", world.now_s)
    assert isinstance(status, Status)
    assert [experiment.id for experiment in status.experiments] == [second.id] != [first.id]
    for _ in range(2):
        world.submit()
    world.step()
    going = world.coordinator.client_requests.status("x", world.now_s)
    assert isinstance(going, Rejected), "two go on: which one is meant?"
    assert "fits several experiments" in going.reason


def test_hundreds_of_workers_serve_many_experiments() -> None:
    world = World(config(collector={"count": 8, "chunk_env_steps": 64}, stop={"max_env_steps": 1_500}))
    world.updates_per_step = 100
    world.herd(collectors=160, evaluators=20, learners=20)
    for number in range(20):
        world.submit(f"x{number}")
    world.run()
    experiments = world.status().experiments
    assert len(experiments) == 20
    assert {e.state for e in experiments} == {"finished"}
    assert sum(e.env_step for e in experiments) == world.unique_env_steps()


def test_damaged_payloads_are_left_out_and_the_run_goes_on() -> None:
    world = World(config())
    world.damage = 0.2
    world.herd(collectors=2)
    world.submit()
    finished(world)
    assert sum("is not sampled any more" in text for _, text in world.said) == len(world.damaged) > 0


def test_a_worker_that_does_not_let_go_is_dismissed_and_the_run_ends_without_it() -> None:
    world = World(config(stop={"max_wall_s": 5.0}))
    stubborn = one_collector_deaf(world)
    states: list[str] = []
    while world.experiment().state != "finished":
        world.step()
        states += [worker.state for worker in world.status().workers if worker.uuid == stubborn.uuid]
    assert [state for state, _ in groupby(states)] == ["busy", "draining"]
    assert len(states) < 300 / STEP_S
    assert any("did not let go in time and is dismissed" in text for _, text in world.said)
    stubborn.deaf = False
    world.steps(400)
    assert (stubborn.forgotten, stubborn.lease) == (1, 0), "back, with empty hands"


def test_a_stuck_worker_is_shown_then_dismissed_and_the_run_goes_on_without_it() -> None:
    world = World(config(stop={"max_env_steps": 2_000}))
    stuck = one_collector_deaf(world)
    stuck.hung = True
    states: set[str] = set()
    for _ in range(int(130 / STEP_S)):
        world.step()
        states |= {worker.state for worker in world.status().workers if worker.uuid == stuck.uuid}
    assert states == {"busy", "stuck"}
    assert stuck.uuid not in {worker.uuid for worker in world.status().workers}
    assert any("is gone: stuck, no progress for" in text for _, text in world.said)
    world.run()
    assert world.experiment().state == "finished"
    assert world.experiment().env_step == world.unique_env_steps()


def one_collector_deaf(world: World) -> Worker:
    """A run in which one collector takes nothing in any more."""
    world.herd(collectors=2)
    world.submit()
    while not any(worker.work for worker in world.workers.values() if worker.role == "collector"):
        world.step()
    deaf = next(worker for worker in world.workers.values() if worker.role == "collector" and worker.work)
    deaf.deaf = True
    return deaf


def test_a_run_whose_chunks_are_all_refused_fails_and_says_why() -> None:
    world = World(config(buffer={"capacity": 1_000, "min_rows": 200, "quota_bytes": 1_000})).started()
    world.run()
    status = world.experiment()
    assert status.state == "failed"
    assert status.reason is not None
    assert "5 failures in a row; chunks are refused" in status.reason
    assert "buffer.quota_bytes" in status.reason
