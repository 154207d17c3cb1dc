"""How a run ends: stage by stage, each with time of its own, whoever does not answer."""

from __future__ import annotations

import pytest

from remuda.coordinator.experiment.ending import REPLACEMENT_S, STAGE_LONGEST_S, STOPPED_EVALUATION_S
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.settings import Limits
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import STEP_S, EvaluatorWork, Worker, World
from remuda.wire.messages import ExperimentStatus, Phase, Role, Shutdown, StopExperiment

SAVE_S = 100.0
"""What saving may take."""


def at_its_end(role: Role, *, deaf: bool, **sections: object) -> tuple[World, Worker]:
    """A run that has just been ended, and a worker of it that is deaf, or never ends its last evaluation."""
    stop = {"max_env_steps": 1_500} if role == "evaluator" else {"max_wall_s": 5.0}
    world = World(config(**{"stop": stop, "limits": {"save_s": SAVE_S}, **sections})).started()
    world.until_env_step(1_000)
    worker = world.of(role)[0]
    while world.experiment().state != "stopping":
        world.step()
        worker.deaf = deaf
    if isinstance(worker.work, EvaluatorWork):
        worker.work.plays_on = True
    return world, worker


def ended(world: World) -> tuple[ExperimentStatus, float]:
    """How it came out, and how long that took from now."""
    began_s = world.now_s
    world.run(2 * sum(STAGE_LONGEST_S.values()) + SAVE_S)
    return world.experiment(), world.now_s - began_s


def test_a_collector_that_does_not_let_go_costs_its_minute_and_nothing_else() -> None:
    world, deaf = at_its_end("collector", deaf=True)
    status, took_s = ended(world)
    assert status.state == "finished"
    assert took_s == pytest.approx(STAGE_LONGEST_S["draining"], abs=20 * STEP_S)
    [dismissed] = world.logged("is dismissed")
    assert deaf.uuid in dismissed
    assert max(world.records) == status.train_iter, "the last checkpoint is of the last update"
    assert status.train_iter in world.rewards, "and it is evaluated"
    assert world.logged("no final checkpoint or evaluation") == []
    assert status.env_step == world.unique_env_steps()


def test_a_learner_that_does_not_save_is_waited_for_as_long_as_saving_may_take_and_then_dismissed() -> None:
    world, deaf = at_its_end("learner", deaf=True)
    status, took_s = ended(world)
    assert status.state == "finished"
    assert took_s == pytest.approx(STAGE_LONGEST_S["settling"] + SAVE_S + STAGE_LONGEST_S["releasing"], abs=20 * STEP_S)
    assert len(world.logged("no final checkpoint or evaluation")) == 1
    [dismissed] = world.logged("is dismissed")
    assert deaf.uuid in dismissed


def test_an_evaluator_that_plays_for_ever_is_waited_for_as_long_and_lets_go_when_asked_to() -> None:
    world, _ = at_its_end("evaluator", deaf=False)
    world.steps(200)
    world.crash()  # which adds only its own time
    status, took_s = ended(world)
    assert status.state == "finished"
    assert took_s == pytest.approx(STAGE_LONGEST_S["settling"] - 200 * STEP_S + world.downtime_s, abs=40 * STEP_S)
    assert max(world.records) == status.train_iter
    assert status.train_iter not in world.rewards
    assert len(world.logged("no final checkpoint or evaluation")) == 1
    assert world.logged("is dismissed") == []


def until_nobody_plays(world: World) -> None:
    world.until(lambda: world.experiment().waiting_for == "waits for 1 evaluator (0 free)")


def test_the_last_evaluation_takes_little_longer_than_the_run_may() -> None:
    world, _ = at_its_end("evaluator", deaf=False, stop={"max_wall_s": 60.0})
    status, took_s = ended(world)
    assert (status.state, status.reason) == ("finished", "max_wall_s")
    assert took_s == pytest.approx(6.0, abs=20 * STEP_S)
    assert max(world.records) == status.train_iter
    file = f"iteration_{status.train_iter}.pth.tar"
    assert world.logged(f"waits for the evaluation of {file}")
    assert len(world.logged(f"the evaluation of {file} is given up: stop.max_wall_s is over")) == 1
    assert all(not worker.lease for worker in world.workers.values())


def test_who_asks_a_run_to_end_waits_little_for_its_last_evaluation() -> None:
    world = World(config(stop={"max_env_steps": 10**6})).started()
    world.until_env_step(1_000)
    [worker] = world.of("evaluator")
    assert isinstance(worker.work, EvaluatorWork)
    worker.work.plays_on = True
    world.until_env_step(2_000)
    world.ask(StopExperiment(world.experiment().id))
    status, took_s = ended(world)
    assert status.state == "stopped"
    assert took_s < STOPPED_EVALUATION_S + 40 * STEP_S
    assert len(world.logged("is given up: somebody waits")) == 1


def test_an_evaluator_that_dies_in_the_last_evaluation_is_replaced() -> None:
    world, dead = at_its_end("evaluator", deaf=False)
    world.kill(dead)
    until_nobody_plays(world)
    began_s = world.now_s
    world.crash()
    until_nobody_plays(world)
    assert world.experiment().state == "stopping"
    world.add("evaluator", 7)
    status, _ = ended(world)
    assert status.state == "finished"
    assert status.train_iter in world.rewards
    assert world.logged("no final checkpoint or evaluation") == []
    assert world.now_s - began_s < REPLACEMENT_S
    assert all(not worker.lease for worker in world.workers.values() if worker.alive)


def test_another_evaluator_is_waited_for_so_long_and_no_longer() -> None:
    world, dead = at_its_end("evaluator", deaf=False)
    world.kill(dead)
    status, took_s = ended(world)
    assert status.state == "finished"
    assert took_s == pytest.approx(REPLACEMENT_S + world.limits.lost_after_s, abs=20 * STEP_S)
    assert max(world.records) == status.train_iter
    assert status.train_iter not in world.rewards
    assert len(world.logged("no final checkpoint or evaluation")) == 1


def test_an_ending_run_preempts_no_run_for_an_evaluator() -> None:
    world = World(config(preemptible=True, stop={"max_env_steps": 10**6}))
    world.started(collectors=4, evaluators=2, learners=2)
    world.config = config(stop={"max_env_steps": 1_500})
    world.submit("urgent", priority=5)
    world.until(lambda: len(world.status().experiments) == 2 and world.experiment(1).state == "stopping")
    urgent = world.coordinator.experiments.find("urgent")
    assert isinstance(urgent, Experiment)
    [evaluator] = urgent.leases.of("evaluator")
    world.kill(world.workers[evaluator.worker])
    world.until(lambda: world.experiment(1).state == "finished")
    assert world.logged("waits for 1 evaluator")
    assert world.logged("gives all workers back") == []
    assert world.experiment(0).state == "running"


def test_nobody_is_waited_for_when_the_coordinator_ends_as_well() -> None:
    world, dead = at_its_end("evaluator", deaf=False)
    world.kill(dead)
    until_nobody_plays(world)
    world.ask(Shutdown("enough"))
    began_s = world.now_s
    world.run(REPLACEMENT_S)
    assert world.now_s - began_s < 20 * STEP_S
    assert len(world.logged("no final checkpoint or evaluation")) == 1


def test_where_the_learner_dies_before_it_saves_the_newest_checkpoint_is_the_last_and_evaluated() -> None:
    rarely = {"count": 1, "episodes": 4, "interval_env_steps": 10**6}
    world, dead = at_its_end("learner", deaf=True, evaluator=rarely)
    world.kill(dead)
    world.add("learner", 7)
    newest = max(world.records)
    assert newest not in world.rewards
    status, took_s = ended(world)
    assert status.state == "finished"
    assert took_s < 2 * world.limits.lost_after_s
    assert max(world.records) == newest
    assert newest in world.rewards
    [said] = world.logged("no learner is ready to save once more")
    assert said.endswith(f"the last checkpoint is iteration_{newest}.pth.tar")
    assert world.logged("no final checkpoint or evaluation") == []


def test_time_runs_from_the_first_worker_to_the_end_over_a_restart_too() -> None:
    world = World(config(stop={"max_wall_s": 5.0}))
    world.submit()
    world.steps(100)
    assert (world.experiment().state, world.experiment().wall_s) == ("queued", 0.0)
    world.herd(collectors=2)
    while world.experiment().wall_s < 3.0:
        world.step()
    world.crash()
    assert 2.0 <= world.experiment().wall_s <= 3.1, "journaled once a second"
    world.run()
    ended_s = world.experiment().wall_s
    assert 5.0 <= ended_s < 6.0
    world.steps(100)
    assert world.experiment().wall_s == ended_s


LIMITS = Limits(lost_after_s=5.0, stuck_after_s=6.0, hopeless_after_s=8.0)


@pytest.mark.parametrize(("phase", "setting"), [("preparing", "prepare_s"), ("saving", "save_s")])
def test_a_worker_that_takes_too_long_is_dismissed_with_the_limit_that_it_broke(phase: Phase, setting: str) -> None:
    world = World(config(stop={"max_env_steps": 10**9}, limits={setting: 20.0}), limits=LIMITS).started()
    world.steps(60)
    slow = world.of("learner")[0]
    slow.phase, slow.activity, slow.hung = phase, f"{phase} for long", True
    begun_s = world.now_s
    while slow.alive:
        assert "stuck" not in {worker.state for worker in world.status().workers}
        assert world.now_s - begun_s < 25.0
        world.step()
    assert world.now_s - begun_s >= 20.0
    assert slow.refused == "dismissed"
    dismissed = f"{phase} for long for 20 s without progress, and limits.{setting} of its run allows 20 s"
    assert any(dismissed in text for _, text in world.said), world.said[-5:]


def test_the_end_of_a_run_waits_for_a_last_checkpoint_that_takes_long() -> None:
    """Longer than everything else may take there."""
    world = World(config(stop={"max_env_steps": 1_000}, limits={"save_s": 1_000.0}), limits=LIMITS).started(
        collectors=1
    )
    world.step()
    learner = world.of("learner")[0]
    world.until(lambda: world.experiment().state == "stopping")
    learner.phase, learner.hung, learner.deaf = "saving", True, True
    begun_s = world.now_s
    while world.now_s < begun_s + STAGE_LONGEST_S["settling"] + 100.0:
        world.beat_interval_s = 1.0
        world.step()
    assert learner.alive
    assert world.experiment().state == "stopping"
    learner.hung = learner.deaf = False
    world.run(100.0)
    assert world.experiment().state == "finished"
    assert max(world.records) == world.experiment().train_iter
