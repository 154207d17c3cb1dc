"""The state machine as a whole: an experiment from submission to end, with everything the world can do to it."""

from __future__ import annotations

from itertools import groupby

import pytest

from remuda.coordinator.events import ShutdownRequested
from remuda.coordinator.experiment import workers
from remuda.logbook.episode_reports import EvaluationReport, WorkerReport
from remuda.logbook.reports import BufferThroughputReport
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import STEP_S, EvaluatorWork, Faults, Worker, World
from remuda.tests.faults.sizes import LONG
from remuda.wire.messages import (
    Done,
    ExperimentStatus,
    Rejected,
    Shutdown,
    Status,
    StopExperiment,
    Submitted,
)


def finished(world: World, *, position: int = 0) -> ExperimentStatus:
    """Run to the end and check what must hold at the end of any run."""
    world.run(3_000)
    status = world.experiment(position)
    assert status.state == "finished", status.reason
    assert status.env_step == world.unique_env_steps()
    assert all(worker.lease == 0 for worker in world.workers.values() if worker.alive)
    assert world.disk >= world.closed[position].keep, "a payload the index refers to was deleted"
    return status


def test_a_run_from_submission_to_its_budget() -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    status = finished(world)
    assert isinstance(world.replies[0], Submitted)
    assert status.reason == "max_env_steps"
    assert 3_000 <= status.env_step < 3_000 + 3 * 80, "at most the chunks in the works beyond the budget"
    assert status.train_iter == pytest.approx(4.0 * (status.env_step - 200) / 16, rel=0.15)
    assert max(world.records) == status.train_iter, "the last checkpoint is of the last update"
    assert 0 in world.records
    assert set(world.rewards) <= set(world.records), "only files that exist were evaluated"
    assert status.train_iter in world.rewards, "the last checkpoint is evaluated"
    assert status.best_return == max(reward for reward, _ in world.rewards.values())


def test_evaluations_at_zero_and_at_each_boundary() -> None:
    world = World(config())
    world.herd(collectors=1)
    world.submit()
    finished(world)
    steps = [report.env_step for report in world.reports if isinstance(report, EvaluationReport)]
    assert steps[0] == 0
    assert sorted(step // 500 for step in steps[1:-1]) == [1, 2, 3, 4, 5]


def test_what_a_learner_warns_of_as_it_begins_is_in_the_commanders_log() -> None:
    world = World(config())
    world.warnings = ["its checkpoint is of another torch"]
    world.herd(collectors=1)
    world.submit()
    finished(world)
    assert [text for id, text in world.said if id and text in world.warnings] == world.warnings


@pytest.mark.parametrize("per_insert", [0.5, 4.0, 40.0])
def test_no_updates_are_owed_at_the_end(per_insert: float) -> None:
    buffer = {"capacity": 1_000, "min_rows": 200, "samples_per_insert": per_insert}
    world = World(config(buffer=buffer))
    world.herd(collectors=2)
    world.submit()
    status = finished(world)
    rows = sum(meta.rows for chunk, meta in world.written.items() if chunk in world.accepted)
    assert status.train_iter >= int(per_insert * (rows - 200) // 16)
    assert not [text for _, text in world.said if "were done, and buffer.samples_per_insert" in text]


def test_progress_rows_begin_at_zero_and_follow_the_boundaries() -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    status = finished(world)
    assert [(row.epoch, row.env_step) for row in world.progress] == list(enumerate(range(0, 3_001, 300)))
    assert sum(len(row.returns) for row in world.progress) == status.episode


def test_the_last_row_is_the_only_one_where_the_budget_ends_the_run() -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    status = finished(world)
    steps = [row.env_step for row in world.progress]
    assert steps == sorted(set(steps))
    assert steps[-1] == 3_000 < status.env_step
    assert world.progress[-1].episode == status.episode
    assert world.progress[-1].test_returns, "how the last checkpoint was evaluated"


def test_the_tables_of_the_buffer_add_up_to_the_whole_run() -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    status = finished(world)
    tables = [report for report in world.reports if isinstance(report, BufferThroughputReport)]
    fewer_rows = 2 * 2  # than steps: `World.write_chunk` withholds two of each collector
    assert sum(table.pushed_in for table in tables) == status.env_step - fewer_rows
    assert sum(table.past_s for table in tables) == pytest.approx(status.wall_s, abs=1.0)


def test_nothing_is_told_of_a_buffer_while_its_experiment_waits_for_workers() -> None:
    world = World(config(log={"buffer_interval_s": 1.0}))
    world.herd(collectors=2, learners=0)
    world.submit()
    submitted_s = world.now_s
    while world.now_s < submitted_s + 5.0:
        world.step()
    assert world.reports == []
    world.add("learner", 9)
    status = finished(world)
    tables = [report for report in world.reports if isinstance(report, BufferThroughputReport)]
    assert sum(table.past_s for table in tables) == pytest.approx(status.wall_s, abs=1.0)


def test_reaching_the_stop_value_ends_the_run_with_that_file_as_best() -> None:
    world = World(config(stop={"stop_value": 150.0, "max_env_steps": 100_000}))
    world.herd(collectors=2)
    world.submit()
    status = finished(world)
    assert status.reason == "stop_value"
    assert status.best_return is not None
    assert status.best_return >= 150.0
    best = [train_iter for train_iter, (_, is_best) in world.rewards.items() if is_best]
    assert world.rewards[best[-1]][0] == status.best_return


def test_updates_stop_exactly_at_their_budget() -> None:
    world = World(config(stop={"max_train_iters": 123, "max_env_steps": 10**9}))
    world.herd(collectors=2)
    world.submit()
    status = finished(world)
    assert (status.reason, status.train_iter) == ("max_train_iters", 123)


def test_time_ends_a_run() -> None:
    world = World(config(stop={"max_wall_s": 7.0, "max_env_steps": 10**9}))
    world.herd(collectors=2)
    world.submit()
    assert finished(world).reason == "max_wall_s"


@pytest.mark.parametrize("seed", range(25 if LONG else 4))
def test_lost_repeated_and_reordered_messages_change_no_counter(seed: int) -> None:
    world = World(config(stop={"max_env_steps": 1_200}), seed=seed, faults=Faults(loss=0.1, repeat=0.2, delay_s=0.4))
    world.herd(collectors=3, evaluators=2)
    world.submit()
    status = finished(world)
    assert status.episode == len(world.accepted), "one ended in each chunk"
    assert status.train_iter == max(world.records), "the last checkpoint is of the last update"
    assert min(world.mishaps[what] for what in ("lost", "repeated", "overtaken")) > 10


@pytest.mark.parametrize("seed", range(15 if LONG else 3))
def test_workers_that_die_and_come_back_change_no_counter(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FAILURES_IN_A_ROW", 10**6)  # they die every few seconds: no run is that unlucky
    world = World(
        config(collector={"count": 3, "chunk_env_steps": 64}, stop={"max_env_steps": 1_500}),
        seed=seed,
        faults=Faults(delay_s=0.1),
    )
    world.herd(collectors=3, evaluators=2)
    world.submit()

    def mischief() -> None:
        if world.rng.random() < 0.002:
            victim = world.rng.choice(list(world.workers.values()))
            if victim.alive:
                world.restart(victim)

    world.check = mischief
    finished(world)


@pytest.mark.parametrize(
    ("role", "way", "lost"),
    [
        ("collector", "killed", True),
        ("collector", "asked to end", False),
        ("learner", "killed", False),
    ],
)
def test_the_log_says_where_steps_were_lost_with_a_worker(role: str, way: str, lost: bool) -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    world.step()
    while world.experiment().env_step < 1_000:
        world.step()
    worker = next(worker for worker in world.workers.values() if worker.role == role)
    if way == "killed":
        world.restart(worker)
    else:
        worker.leave()
    finished(world)
    [text] = [text for _, text in world.said if f"{worker.uuid} is gone: " in text]
    assert text.endswith("how many is not known") is lost


def test_a_collector_lost_for_good_does_not_stop_the_run() -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    for _ in range(20):
        world.step()
    victim = next(worker for worker in world.workers.values() if worker.role == "collector")
    world.kill(victim)
    status = finished(world)
    assert status.reason == "max_env_steps"
    assert any("is gone: lost, silent for" in text for _, text in world.said)


def test_an_evaluator_that_dies_playing_is_replaced_and_its_share_played_again() -> None:
    world = World(config())
    world.herd(collectors=1, evaluators=2)
    world.submit()
    while not any(worker.role == "evaluator" and worker.lease for worker in world.workers.values()):
        world.step()
    world.kill(next(worker for worker in world.workers.values() if worker.role == "evaluator" and worker.lease))
    status = finished(world)
    assert status.last_return is not None


def test_a_learner_that_dies_is_replaced_under_a_new_epoch_from_the_last_checkpoint() -> None:
    world = World(config())
    world.herd(collectors=2, learners=2)
    world.submit()
    while not world.records or max(world.records) < 50:
        world.step()
    learner = next(worker for worker in world.workers.values() if worker.role == "learner" and worker.lease)
    world.kill(learner)
    finished(world)
    other = next(worker for worker in world.workers.values() if worker.role == "learner" and worker is not learner)
    assert len(other.assignments) == 1


def test_without_enough_workers_it_waits_and_says_for_what() -> None:
    world = World(config())
    world.herd(collectors=2, learners=0)
    world.submit()
    for _ in range(10):
        world.step()
    status = world.experiment()
    assert (status.state, status.waiting_for) == ("queued", "waits for 1 learner (0 free)")
    world.add("learner", 9)
    finished(world)


def test_a_second_experiment_waits_for_the_first_and_then_runs() -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit("first")
    world.submit("second")
    world.run()
    first, second = world.status().experiments
    assert {first.state, second.state} == {"finished"}
    assert first.env_step + second.env_step == world.unique_env_steps()


def test_two_experiments_at_once_keep_their_counters_apart() -> None:
    world = World(config(collector={"count": 1, "chunk_env_steps": 64}))
    world.herd(collectors=2, evaluators=2, learners=2)
    world.submit("first")
    world.submit("second")
    for _ in range(40):
        world.step()
    assert [e.state for e in world.status().experiments] == ["running", "running"]
    world.run()
    first, second = world.status().experiments
    assert first.env_step + second.env_step == world.unique_env_steps()


def test_stop_saves_evaluates_and_lets_everybody_go() -> None:
    world = World(config(stop={"max_env_steps": 10**9}))
    world.herd(collectors=2)
    world.submit()
    for _ in range(60):
        world.step()
    world.ask(StopExperiment("x"))
    world.run()
    status = world.experiment()
    assert (status.state, status.reason) == ("stopped", "stopped")
    assert any(isinstance(reply, Done) for reply in world.replies)
    assert max(world.records) == status.train_iter
    assert status.train_iter in world.rewards


def test_stop_now_skips_a_last_evaluation_that_is_going_on() -> None:
    """It is not waited for, nothing comes of it, and everybody is let go."""
    world = World(config(stop={"max_env_steps": 10**9}))
    world.herd(collectors=2)
    world.submit()
    for _ in range(60):
        world.step()
    evaluator = next(worker for worker in world.workers.values() if worker.role == "evaluator")
    assert isinstance(evaluator.work, EvaluatorWork)
    evaluator.work.plays_on = True
    world.ask(StopExperiment("x"))
    for _ in range(100):
        world.step()
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


@pytest.mark.parametrize("name", ["nonsense", ""])  # "": a variable of a shell that is not set, say
def test_stopping_what_does_not_exist_stops_nothing_and_names_what_does(name: str) -> None:
    world = World(config())
    world.submit()
    world.ask(StopExperiment(name))
    for _ in range(5):
        world.step()
    refusal = next(reply for reply in world.replies if isinstance(reply, Rejected))
    assert refusal.reason.startswith(f"no experiment is called {name!r}; known are: x (")
    assert world.experiment().state == "queued"


def test_a_run_that_never_began_has_nothing_to_say_of_its_buffer() -> None:
    world = World(config())
    world.submit()
    for _ in range(5):
        world.step()
    world.ask(StopExperiment("x"))
    world.run(10)
    assert world.experiment().state == "stopped"
    assert world.reports == []


def test_a_name_means_the_experiment_that_goes_on_else_the_newest_that_had_it() -> None:
    world = World(config())
    world.herd(collectors=2)
    for _ in range(2):
        world.submit()
        world.run()
    first, second = world.status().experiments
    status = world.coordinator.status("x", world.now_s)
    assert isinstance(status, Status)
    assert [experiment.id for experiment in status.experiments] == [second.id] != [first.id]
    for _ in range(2):
        world.submit()
    world.step()
    going = world.coordinator.status("x", world.now_s)
    assert isinstance(going, Rejected), "two go on: which one is meant?"
    assert "fits several experiments" in going.reason


def test_shutdown_stops_the_runs_sends_everybody_home_and_exits() -> None:
    world = World(config(stop={"max_env_steps": 10**9}))
    world.herd(collectors=2)
    world.submit()
    for _ in range(60):
        world.step()
    world.apply(world.coordinator.handle(ShutdownRequested("test"), world.now_s))
    for _ in range(400):
        world.step()
        if world.exited:
            break
    assert world.exited
    assert not any(worker.alive for worker in world.workers.values())
    assert world.experiment().state == "stopped"


def test_whatever_reason_a_client_gives_the_workers_understand_that_they_are_to_leave() -> None:
    """As every message that is sent in this world is checked to be what its reader takes."""
    world = World(config())
    world.herd(collectors=1)
    world.step()
    world.ask(Shutdown("x" * 1_000))
    for _ in range(10):
        world.step()
    assert not any(worker.alive for worker in world.workers.values())


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


def test_worker_reports_name_the_evaluator() -> None:
    world = World(config())
    world.herd(collectors=1)
    world.submit()
    finished(world)
    evaluators = {worker.uuid for worker in world.workers.values() if worker.role == "evaluator"}
    assert {r.worker for r in world.reports if isinstance(r, WorkerReport) and r.role == "evaluator"} == evaluators


def test_damaged_payloads_are_left_out_and_the_run_goes_on() -> None:
    world = World(config())
    world.damage = 0.2
    world.herd(collectors=2)
    world.submit()
    finished(world)
    assert sum("is not sampled any more" in text for _, text in world.said) == len(world.damaged) > 0


def test_a_worker_that_was_only_slow_hears_that_it_is_not_known_any_more() -> None:
    world = World(config())
    world.herd(collectors=2)
    world.submit()
    for _ in range(40):
        world.step()
    slow = next(worker for worker in world.workers.values() if worker.role == "collector")
    slow.alive = False
    for _ in range(150):
        world.step()
    assert slow.uuid not in {worker.uuid for worker in world.status().workers}
    slow.alive = True
    for _ in range(5):
        world.step()
    assert slow.forgotten == 1
    assert slow.uuid in {worker.uuid for worker in world.status().workers}, "back, with empty hands"


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
    for _ in range(400):
        world.step()
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


def test_a_stalled_run_shows_that_it_stands_still() -> None:
    world = World(config(stop={"max_env_steps": 10**9}))
    world.herd(collectors=2)
    world.submit()
    for _ in range(100):
        world.step()
    assert world.experiment().env_steps_per_s > 0
    world.updates_per_step = 0
    for _ in range(400):
        world.step()
    assert world.experiment().env_steps_per_s == 0
    assert world.experiment().train_iters_per_s == 0


def test_a_run_whose_chunks_are_all_refused_fails_and_says_why() -> None:
    world = World(config(buffer={"capacity": 1_000, "min_rows": 200, "quota_bytes": 1_000}))
    world.herd(collectors=2)
    world.submit()
    world.run()
    status = world.experiment()
    assert status.state == "failed"
    assert status.reason is not None
    assert "5 failures in a row; chunks are refused" in status.reason
    assert "buffer.quota_bytes" in status.reason
