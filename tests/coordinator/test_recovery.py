"""A coordinator that dies anywhere and is started again continues every experiment, to the step."""

from __future__ import annotations

import copy

import pytest

from remuda.coordinator.experiment.experiment import Experiment
from remuda.logbook.episode_reports import EvaluationReport
from remuda.tests.coordinator.configs import config, on_policy_config
from remuda.tests.coordinator.simulation import CollectorWork, Worker, World
from remuda.wire.messages import ChunkReady, PolicyRef


def finished(world: World) -> None:
    """The run ends by itself, and every counter is what was really collected."""
    world.run(3_000)
    status = world.experiment()
    assert status.state == "finished", status.reason
    assert status.env_step == world.unique_env_steps()
    assert status.env_step >= 1_200
    epochs = [row.epoch for row in world.progress]
    assert epochs == list(range(len(epochs))), "a row of progress came twice, or is missing"
    evaluated = [report.train_iter for report in world.reports if isinstance(report, EvaluationReport)]
    assert evaluated == sorted(world.rewards), "so did a point of the curve of evaluations"


def test_a_worker_that_was_changing_runs_as_the_coordinator_died_serves_one_of_them() -> None:
    """The coordinator dies between the two journals of a turn: that of the run that got the worker is written, that of
    the run that gave it is not. And the worker dies, too."""
    world = World(config(stop={"max_env_steps": 8_000}))
    collectors = [world.add("collector", number) for number in range(2)]
    world.herd(collectors=0, evaluators=2, learners=2)
    world.submit("giver")
    while not all(worker.lease for worker in collectors):
        world.step()
    world.submit("taker")
    world.step()
    giver, _ = world.coordinator.experiments
    assert isinstance(giver, Experiment)
    while True:
        before, held = copy.deepcopy(world.journal[giver.identity.id]), set(giver.leases.open_leases)
        world.step()
        given = held - set(giver.leases.open_leases)
        if given and [worker for worker in world.coordinator.registry if worker.lease > max(held)]:
            break
    world.journal[giver.identity.id] = before
    world.kill(next(worker for worker in collectors if worker.assignments[0] in given))
    world.crash()
    for experiment in world.coordinator.experiments:
        assert isinstance(experiment, Experiment)
        for lease in experiment.leases.open_leases:
            assert world.coordinator.registry.holders.get(lease), f"{experiment.identity.name} counts on nobody"
    assert any("is gone: it had gone on to another run" in text for _, text in world.said)
    world.add("collector", 2)
    world.run(3_000)
    assert {status.state for status in world.status().experiments} == {"finished"}


def test_a_run_whose_disk_answers_late_is_taken_up_and_begins_with_new_leases() -> None:
    """Its workers were told meanwhile that they are not known."""
    world = World(config()).started()
    world.steps(30)
    before = world.experiment()
    assert before.env_step
    world.crashes += 1
    world.coordinator = world._new_coordinator()  # pyright: ignore[reportPrivateUsage]
    world.step()
    effects = world.coordinator.recover(world.left_behind(), world.now_s, late=True)
    world._journal_and_apply(effects)  # pyright: ignore[reportPrivateUsage]
    [experiment] = world.coordinator.experiments
    assert isinstance(experiment, Experiment)
    assert not len(experiment.leases)
    assert world.experiment().env_step == before.env_step
    world.run()
    assert world.experiment().state == "finished"
    assert world.experiment().env_step == world.unique_env_steps()


def under_way() -> tuple[World, Worker]:
    """A run, and one of its collectors."""
    world = World(config(stop={"max_env_steps": 1_200})).started()
    while not world.status().experiments or world.experiment().env_step < 300:
        world.step()
    return world, world.of("collector")[0]


@pytest.mark.parametrize("lives", [False, True])
def test_a_chunk_that_was_written_while_there_was_no_coordinator_counts_once(lives: bool) -> None:
    """Whether its collector has ended without having told anybody, or comes back and announces it."""
    world, collector = under_way()
    assert isinstance(collector.work, CollectorWork)
    meta = world.write_chunk(collector, collector.work.policy)
    before = world.experiment().env_step
    if not lives:
        world.kill(collector)
    world.crash()
    assert meta.chunk in world.accepted
    assert world.experiment().env_step == before + meta.env_steps
    assert any(f"counts {meta.file}, which nobody had announced" in text for _, text in world.said)
    if lives:
        collector.say(ChunkReady(collector.lease, meta))
    finished(world)


def test_what_a_payload_says_of_itself_is_believed_no_more_than_a_message() -> None:
    world, collector = under_way()
    meta = world.write_chunk(collector, PolicyRef(99, 1, 1))
    world.kill(collector)
    world.crash()
    assert meta.chunk not in world.accepted
    assert any(text.startswith(f"payload {meta.file} is left aside: its chunk") for _, text in world.said)
    finished(world)


@pytest.mark.parametrize("on_policy", [False, True])
def test_workers_that_have_seen_more_than_the_journal_begin_anew_and_the_run_goes_on(on_policy: bool) -> None:
    """Else collectors have gone further than they would ever be let again, an evaluator takes another evaluation for
    the one that it has played, and a learner holds other rows than those that get their numbers."""
    world = World(on_policy_config(0) if on_policy else config()).started()
    world.until_env_step(700)
    before = copy.deepcopy(world.journal)
    while world.experiment().env_step < 1_000:
        world.step()
    seen = [worker.lease for worker in world.workers.values()]
    world.lose_power(before)
    world.run(600)
    status = world.experiment()
    assert status.state == "finished", status.reason
    assert status.env_step >= world.config.stop.max_env_steps
    for worker, lease in zip(world.workers.values(), seen, strict=True):
        assert worker.alive
        assert worker.assignments[0] == lease
        assert len(worker.assignments) == 2
    gone = world.logged("is gone: the coordinator does not know all it did")
    assert len(gone) == len(seen)
