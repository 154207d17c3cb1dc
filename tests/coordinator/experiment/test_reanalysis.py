"""Reanalyzers in an experiment: who computes which chunk again, and that each result counts once, whatever happens."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.buffer.chunk import chunk_name, reanalysis_name
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.experiment.reanalysis import REQUESTS_AT_ONCE
from remuda.coordinator.leases import Sender
from remuda.logbook.reports import BufferThroughputReport
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import Faults, ReanalyzerWork, Worker, World
from remuda.tests.faults.sizes import LONG
from remuda.wire.messages import (
    AnyMessage,
    ExperimentStatus,
    NotReanalyzed,
    PolicyRef,
    ReanalysisId,
    Reanalyze,
    Reanalyzed,
    TargetPublished,
)


def muzero(count: int = 2, *, ratio: float = 0.5, **sections: object) -> ExperimentConfig:
    policy = {"type": "muzero", "reanalyze_ratio": ratio, "n_step": 1, "unroll_steps": 1}
    return config(policy=policy, reanalyzer={"count": count}, **sections)


def world_of(config: ExperimentConfig, *, reanalyzers: int = 2, seed: int = 0, faults: Faults | None = None) -> World:
    world = World(config, seed=seed, faults=faults).started(collectors=2, reanalyzers=reanalyzers)
    while not world.status().experiments:
        world.step()
    return world


def finished(world: World) -> ExperimentStatus:
    world.run(3_000)
    status = world.experiment()
    assert status.state == "finished", status.reason
    assert status.env_step == world.unique_env_steps()
    assert world.closed[0].keep <= world.disk, "a file that is still needed was deleted"
    assert all(worker.lease == 0 for worker in world.workers.values() if worker.alive)
    return status


def experiment_of(world: World) -> Experiment:
    (experiment,) = world.coordinator.experiments
    assert isinstance(experiment, Experiment)
    return experiment


def run_until_reanalyzed(world: World, rows: int) -> None:
    while world.experiment().reanalyzed_rows < rows:
        world.step()


def test_every_row_that_was_computed_again_is_counted_and_no_more() -> None:
    world = world_of(muzero(buffer={"capacity": 100_000, "min_rows": 200, "samples_per_insert": 4.0}))
    status = finished(world)
    assert status.reanalyzed_rows == sum(meta.rows for meta in world.reanalyses.values()) > 1_000
    assert status.target_train_iter == max(meta.target.train_iter for meta in world.reanalyses.values())
    targets = [(meta.first_row, meta.target) for meta in world.reanalyses.values()]
    assert len(targets) == len(set(targets)), "a chunk was computed again by the same target network"
    assert all(
        meta.target.train_iter > world.written[meta.chunk].policy.train_iter for meta in world.reanalyses.values()
    ), "the collector's own search was as new"


def test_it_is_no_more_than_the_share_of_the_rows_that_are_drawn() -> None:
    world = world_of(muzero(ratio=0.25, buffer={"capacity": 100_000, "min_rows": 200, "samples_per_insert": 1.0}))
    world.reanalyzer_pace = 1.0
    status = finished(world)
    drawn = 16 * status.train_iter
    in_flight = (4 * 16 * 2) + 80  # batches asked for ahead, and the chunk that crosses the line
    assert status.reanalyzed_rows <= 0.25 * (drawn + in_flight) + 80


def test_a_run_needs_none_and_takes_those_that_come() -> None:
    world = world_of(muzero(), reanalyzers=0)
    while world.experiment().train_iter < 50:
        world.step()
    assert world.experiment().waiting_for == "runs with 0 of 2 reanalyzers"
    for number in range(3):
        world.add("reanalyzer", number)
    run_until_reanalyzed(world, 1)
    assert sorted(bool(worker.lease) for worker in world.of("reanalyzer")) == [False, True, True]
    finished(world)


def test_each_table_of_the_buffer_tells_how_long_the_chunks_since_the_one_before_took() -> None:
    world = world_of(muzero(log={"buffer_interval_s": 1}))
    run_until_reanalyzed(world, 200)
    world.crash()
    finished(world)
    taken_ms = {1e3 * each.compute_s for each in world.reanalyses.values()}
    assert len(taken_ms) > 1
    tables = [report for report in world.reports if isinstance(report, BufferThroughputReport)]
    told = [report.reanalyze_time_ms for report in tables if report.reanalyze_time_ms is not None]
    assert len(told) == len(tables) > 2
    means = [time_ms for time_ms in told if not math.isnan(time_ms)]
    assert means
    assert min(taken_ms) - 1e-6 <= min(means) <= max(means) <= max(taken_ms) + 1e-6


def test_what_a_dead_one_was_asked_for_another_computes() -> None:
    kept = {"capacity": 100_000, "min_rows": 200, "samples_per_insert": 4.0}  # nothing is evicted
    longer = {"max_env_steps": 12_000}  # a death is noticed a while later
    world = world_of(muzero(buffer=kept, stop=longer), reanalyzers=1)
    run_until_reanalyzed(world, 1)
    (worker,) = world.of("reanalyzer")
    world.reanalyzer_pace = 0.0
    while not (isinstance(worker.work, ReanalyzerWork) and len(worker.work.asked) == REQUESTS_AT_ONCE):
        world.step()
    asked = {each.chunk.meta.chunk for each in worker.work.asked}
    world.kill(worker)
    world.reanalyzer_pace = 1.0
    other = world.add("reanalyzer", 7)
    finished(world)
    made = {meta.chunk for meta in world.reanalyses.values() if meta.id.worker == other.uuid}
    assert asked <= made


@pytest.mark.parametrize("seed", range(12 if LONG else 2))
def test_nothing_is_lost_or_counted_twice_on_a_bad_network_with_deaths(seed: int) -> None:
    faults = Faults(loss=0.1, repeat=0.2, delay_s=0.3)
    world = world_of(muzero(stop={"max_env_steps": 1_200}), seed=seed, faults=faults)
    chance, step, seen = random.Random(seed), 0, 0
    deaths = dict(
        zip(chance.sample(range(100, 700), 5), ["reanalyzer", "reanalyzer", "learner", "reanalyzer", ""], strict=True)
    )
    while not world.closed:
        world.step()
        step += 1
        match deaths.get(step):
            case None:
                pass
            case "":
                world.crash()
            case role:
                world.restart(chance.choice([worker for worker in world.workers.values() if worker.role == role]))
        rows = world.experiment().reanalyzed_rows
        assert seen <= rows <= sum(meta.rows for meta in world.reanalyses.values())
        seen = rows
        assert world.now_s < 4_000, world.experiment()
    assert finished(world).reanalyzed_rows > 0
    assert step > max(deaths)
    assert world.crashes
    assert world.deaths


def test_a_restarted_coordinator_knows_what_was_computed_and_asked() -> None:
    world = world_of(muzero())
    run_until_reanalyzed(world, 500)
    before = world.experiment()
    kept = experiment_of(world).snapshot(world.now_s).reanalysis
    rows = {row.key: row.reanalysis for row in experiment_of(world).rows(world.now_s).reanalysis.put}
    world.crash()
    after = experiment_of(world)
    assert after.snapshot(world.now_s).reanalysis == kept
    assert {row.key: row.reanalysis for row in after.rows(world.now_s).reanalysis.put} == rows
    assert world.experiment().reanalyzed_rows == before.reanalyzed_rows
    finished(world)


def test_files_of_chunks_that_were_evicted_and_those_that_were_replaced_go() -> None:
    world = world_of(muzero(ratio=1.0))
    finished(world)
    left = {meta.file for meta in world.reanalyses.values()} & world.disk
    live = left & world.closed[0].keep
    assert len(world.reanalyses) > 2 * len(left)
    assert live, "what is still needed stays"
    assert len(left - live) <= 30, "at most those of the last moments: the end of the run sweeps them"


# --- what cannot be true
def busy() -> tuple[World, Worker, Reanalyze]:
    """In the middle of its work: a reanalyzer with a request that it has not answered."""
    world = world_of(muzero(buffer={"capacity": 100_000, "min_rows": 200, "samples_per_insert": 4.0}))
    run_until_reanalyzed(world, 200)
    world.reanalyzer_pace = 0.0
    while not (asking := [w for w in world.of("reanalyzer") if isinstance(w.work, ReanalyzerWork) and w.work.asked]):
        world.step()
    work = asking[0].work
    assert isinstance(work, ReanalyzerWork)
    return world, asking[0], work.asked[0]


def honest(world: World, worker: Worker, asked: Reanalyze) -> Reanalyzed:
    return Reanalyzed(worker.lease, asked.request, world.write_reanalysis(worker, asked))


STRANGER = "99999999-9999-4999-8999-999999999999"
Lie = Callable[[World, Worker, Reanalyzed], AnyMessage]


def with_meta(**changes: Any) -> Lie:
    return lambda world, worker, honest: replace(honest, meta=replace(honest.meta, **changes))


def foreign(world: World, worker: Worker, honest: Reanalyzed) -> AnyMessage:
    id = replace(honest.meta.id, worker=STRANGER)
    return replace(honest, meta=replace(honest.meta, id=id, file=reanalysis_name(id)))


def other_chunk(world: World, worker: Worker, honest: Reanalyzed) -> AnyMessage:
    chunk = next(chunk for chunk in world.written if chunk != honest.meta.chunk)
    return replace(honest, meta=replace(honest.meta, chunk=chunk))


def older_target(world: World, worker: Worker, honest: Reanalyzed) -> AnyMessage:
    target = replace(honest.meta.target, version=honest.meta.target.version - 1)
    return replace(honest, meta=replace(honest.meta, target=target))


LIES: dict[str, Lie] = {
    "another's number": foreign,
    "another's file": with_meta(file=reanalysis_name(ReanalysisId(STRANGER, 1, 0))),
    "a payload": lambda world, worker, honest: with_meta(file=chunk_name(honest.meta.chunk))(world, worker, honest),
    "other rows": with_meta(first_row=10**6),
    "more rows": with_meta(rows=10**6),
    "another chunk": other_chunk,
    "too many bytes": with_meta(payload_bytes=10**9),
    "an older target network than was asked for": older_target,
    "an epoch that was never given": with_meta(target=PolicyRef(9, 0, 10**9)),
    "a request that was never sent": lambda world, worker, honest: replace(honest, request=honest.request + 10),
    "no request": lambda world, worker, honest: replace(honest, request=0),
    "not done, of no request": lambda world, worker, honest: NotReanalyzed(worker.lease, 0, "x"),
    "a learner's word": lambda world, worker, honest: TargetPublished(worker.lease, PolicyRef(1, 99, 99)),
}


def test_what_a_reanalyzer_cannot_have_done_is_refused_and_counts_nothing() -> None:
    world, worker, asked = busy()
    before, disk, said = world.experiment().reanalyzed_rows, set(world.disk), honest(world, worker, asked)
    sender = Sender(worker.uuid, worker.incarnation)
    refusal = experiment_of(world).refusal
    assert [lie for lie, of in LIES.items() if refusal(of(world, worker, said), sender) is None] == []
    assert refusal(said, sender) is None
    worker.say(LIES["too many bytes"](world, worker, said))
    world.steps(2)
    assert world.experiment().reanalyzed_rows == before
    assert worker.refused == "dismissed"
    assert disk <= world.disk, "a file of somebody else was deleted"
    finished(world)


def test_what_comes_after_its_lease_is_over_is_not_counted() -> None:
    world, worker, asked = busy()
    before, said = world.experiment().reanalyzed_rows, honest(world, worker, asked)
    world.restart(worker)
    world.to_coordinator(worker.peer, worker.channel.post(said, world.now_s))
    assert said.meta.file in world.disk
    world.steps(20)
    assert world.experiment().reanalyzed_rows == before
    finished(world)


def test_a_target_network_that_nobody_has_published_counts_nothing() -> None:
    world, worker, asked = busy()
    before = world.experiment().reanalyzed_rows
    said = honest(world, worker, asked)
    invented = replace(said.meta.target, version=said.meta.target.version + 1_000, train_iter=10**6)
    worker.say(replace(said, meta=replace(said.meta, target=invented)))
    world.step()
    world.step()
    assert world.experiment().reanalyzed_rows == before
    world.reanalyzer_pace = 0.5
    status = finished(world)
    assert status.target_train_iter < 10**6
