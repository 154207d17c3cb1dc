"""Several policies in the state machine: they count the same steps, collect and end together; each learns by itself."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import CloseRun, SendToLease
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.journaling import adopt
from remuda.coordinator.leases import Sender
from remuda.tests.coordinator.simulation import CollectorWork, Faults, Worker, World
from remuda.training.effects import Happened, LogLine
from remuda.training.journal_entry import Recovered
from remuda.training.run_snapshot import FORMAT, RunSnapshot
from remuda.training.snapshot import LeaseBookSnapshot, LeaseHolder
from remuda.wire.messages import AnyMessage, ChunkReady, CollectorReport, Drain, ExperimentStatus, Role, StopExperiment

AGENTS = {"fox": 1, "hare": 3}
COPIES, HORIZON = 4, 16


def team_config(**sections: Any) -> ExperimentConfig:
    """A fox and three hares, in four copies: the fox by DQN, the hares by PPO."""
    hares = [f"hare_{number}" for number in range(AGENTS["hare"])]
    settings: dict[str, Any] = {
        "name": "hunt",
        "env": {"kind": "pettingzoo", "make": "hunt:make", "num_envs": COPIES, "agents": ["fox", *hares]},
        "policy": {"type": "dqn"},
        "policies": {
            "hare": {"agents": ["hare_*"], "policy": {"type": "ppo", "horizon_steps": HORIZON}},
            "fox": {"agents": ["fox"]},
        },
        "learner": {"batch_size": 16, "prefetch_batches": 4},
        "collector": {"count": 2},
        "evaluator": {"count": 1, "episodes": 4, "interval_env_steps": 500},
        "buffer": {"capacity": 1_000, "min_rows": 100, "samples_per_insert": 2.0, "max_policy_lag": 0},
        "checkpoint": {"interval_env_steps": 700},
        "stop": {"max_env_steps": 2_000},
    }
    return ExperimentConfig.model_validate({**settings, **sections})


def world_of(faults: Faults | None = None, seed: int = 0, **sections: Any) -> World:
    return World(team_config(**sections), faults=faults, seed=seed).started(learners=2)


def team(world: World) -> Experiment:
    [run] = world.coordinator.experiments
    assert isinstance(run, Experiment)
    return run


def env_steps(world: World) -> list[int]:
    """Steps as each policy counts them."""
    return [member.replay.ledger.env_step for member in team(world).policies]


def finished(world: World) -> ExperimentStatus:
    world.run(1_000)
    status = world.experiment()
    assert (status.state, status.reason) == ("finished", "max_env_steps")
    assert status.env_step == world.unique_env_steps() >= 2_000
    assert {each.name for each in status.policies} == set(AGENTS)
    assert all(each.episode == status.policies[0].episode for each in status.policies)
    assert not any(worker.lease for worker in world.workers.values() if worker.alive), "everybody has let go"
    return status


def test_a_run_with_two_policies_from_start_to_end() -> None:
    """On-policy collectors wait for the update that they need: both collect a chunk, then the hares learn."""
    world = world_of()
    status = finished(world)
    assert all(each.train_iter > 10 for each in status.policies)
    assert status.train_iter == sum(each.train_iter for each in status.policies)
    for name, last in zip(AGENTS, status.policies, strict=True):
        saved = world.checkpoints(name)
        assert saved[0].record.train_iter == 0
        assert saved[-1].record.train_iter == last.train_iter
        assert saved[-1].record.env_step == status.env_step
        assert [each for each in world.of_policies if each.policy == name and isinstance(each.effect, CloseRun)]
    assert set(world.policy_lags["hare"]) == {0}
    assert status.policies[1].train_iter == pytest.approx(len(world.written) / 2, abs=2)


@pytest.mark.parametrize("role", ["collector", "learner", "evaluator"])
def test_a_worker_that_is_killed_on_a_bad_network_loses_nothing_that_was_acknowledged(role: Role) -> None:
    world = world_of(Faults(loss=0.05, repeat=0.1, delay_s=0.1)).until_env_step(700)
    victim = world.of(role)[-1]
    world.kill(victim)
    world.until(lambda: world.coordinator.registry.find(victim.uuid) is None)
    if role == "learner":
        world.steps(100)
        before = env_steps(world)
        world.steps(100)
        assert env_steps(world) == before, "the others wait for it"
    world.add(role, 7)
    finished(world)


@pytest.mark.parametrize("at", [600, 1_000])
def test_all_policies_are_at_the_same_task_and_step_over_a_killed_coordinator(at: int) -> None:
    """A task that begins by steps, and then one once the evaluations of both have reached a return."""
    schedule = [{"env_step": 600, "kwargs": {"size": 1}}, {"mean_return": 120.0, "kwargs": {"size": 2}}]
    world = world_of(env={**team_config().env.model_dump(), "schedule": schedule}).until_env_step(at)
    before = env_steps(world)
    world.crash()
    assert env_steps(world)[0] == env_steps(world)[1] >= before[0]
    members = team(world).policies
    finished(world)
    curricula = [member.commander.curriculum for member in members]
    assert [curriculum.number for curriculum in curricula] == [2, 2]
    assert curricula[0].state.since_env_step == curricula[1].state.since_env_step
    played = {asked.task.number: asked.task.kwargs_json for asked in world.asked_to_play}
    assert played == {0: "", 1: '{"size": 1}', 2: '{"size": 2}'}
    assert {meta.task for meta in world.written.values()} == {0, 1, 2}
    for member in members:
        best = member.commander.best
        assert best is not None
        assert best.record.task == curricula[0].name


def collecting(world: World) -> tuple[Worker, ChunkReady, Sender]:
    """A collector with a chunk that nobody knows of."""
    worker = world.until_env_step(100).of("collector")[0]
    assert isinstance(worker.work, CollectorWork)
    meta = world.write_chunk(worker, worker.work.policy, 0, worker.work.policies[1:])
    ready = ChunkReady(worker.lease, meta, world.others[meta.chunk])
    return worker, ready, Sender(worker.uuid, worker.incarnation)


def test_a_chunk_counts_for_all_policies_or_for_none() -> None:
    world = world_of()
    worker, ready, sender = collecting(world)
    (other,) = ready.others
    lies: list[AnyMessage] = [
        replace(ready, others=[]),
        replace(ready, others=[other, other]),
        replace(ready, others=[replace(other, env_steps=other.env_steps - 1)]),
        replace(ready, others=[replace(other, rows=other.rows + 1)]),
        replace(ready, others=[replace(other, chunk=replace(other.chunk, sequence=99))]),
        CollectorReport(worker.lease, 0, 0, 0, 0.0, 0.0, 0.0, policy_index=2),
    ]
    before = env_steps(world)
    assert all(team(world).refusal(lie, sender) is not None for lie in lies)
    for _ in range(2):  # the second time it is a repetition
        team(world).receive(ready, sender, world.now_s)
        assert env_steps(world) == [before[0] + ready.meta.env_steps] * 2
    team(world).worker_gone(worker.lease, "lost", world.now_s, handed_in=False, died="lost")
    assert team(world).receive(ready, sender, world.now_s)
    assert env_steps(world) == [before[0] + ready.meta.env_steps] * 2, "also once its lease is over"


def test_payloads_that_nobody_has_announced_count_if_all_policies_have_theirs() -> None:
    world = world_of()
    _, ready, sender = collecting(world)
    before = env_steps(world)
    adopt(team(world), [ready.meta, *ready.others], world.now_s)
    assert env_steps(world) == [before[0] + ready.meta.env_steps] * 2
    team(world).receive(ready, sender, world.now_s)
    assert env_steps(world) == [before[0] + ready.meta.env_steps] * 2, "its worker lives and announces it"


KEEP = 3
SELF_PLAY: dict[str, Any] = {
    "self_play": {"share": 0.5, "keep": KEEP},
    "checkpoint": {"interval_env_steps": 100, "keep": KEEP},
    "evaluator": {"count": 1, "episodes": 4, "interval_env_steps": 200},
}


def saved_files(world: World, name: str) -> list[str]:
    return list(dict.fromkeys(each.record.file for each in world.checkpoints(name)))


def test_in_self_play_collectors_are_told_the_newest_checkpoints_of_each_policy() -> None:
    """Those who join late, or whose coordinator was killed, as well."""
    world = world_of(**SELF_PLAY).until_env_step(600)

    def told() -> bool:
        due = [saved_files(world, name)[-KEEP:] for name in AGENTS]
        works = [worker.work for worker in world.of("collector") if worker.alive]
        known = [work.opponents for work in works if isinstance(work, CollectorWork)]
        return all(one is not None and [[each.file for each in its] for its in one.pool] == due for one in known)

    world.until(told)
    assert all(len(saved_files(world, name)) >= KEEP for name in AGENTS)
    for worker in world.of("collector"):
        assert isinstance(worker.work, CollectorWork)
        worker.work.opponents = None
    world.crash()
    world.until(told)
    world.restart(world.of("collector")[0])
    world.until(told)
    finished(world)


def test_in_self_play_each_is_evaluated_against_the_checkpoints_before_those_that_play() -> None:
    """Which are there until that is done, though newer ones were saved meanwhile, and an evaluator is killed."""
    world = world_of(**SELF_PLAY).until_env_step(600)
    world.kill(world.of("evaluator")[0])
    world.steps(150)
    world.add("evaluator", 7)
    finished(world)
    assert {asked.policy_index for asked in world.asked_to_play} == {0, 1}
    assert not any(asked.older for asked in world.asked_to_play if asked.train_iter == 0), "nothing is older"
    saved = [saved_files(world, name) for name in AGENTS]
    for asked in world.asked_to_play:
        files = [other.file for other in asked.others]
        files.insert(asked.policy_index, asked.checkpoint)
        before = [its[: its.index(file)][-KEEP:] for its, file in zip(saved, files, strict=True)]
        assert [[each.file for each in older] for older in asked.older] == (before if any(before) else [])
    assert any(len(older) == KEEP for asked in world.asked_to_play for older in asked.older)


def test_returns_that_all_policies_have_reached_end_the_run() -> None:
    world = world_of(stop={"max_env_steps": 100_000, "stop_value": 100.0})
    world.run()
    status = world.experiment()
    assert (status.state, status.reason) == ("finished", "stop_value")
    assert all((each.last_return or 0.0) >= 100.0 for each in status.policies)


@pytest.mark.parametrize("hares", ["muzero", "dqn"])
def test_reanalyzers_compute_again_for_every_policy_that_asks_and_count_once_over_deaths(hares: str) -> None:
    searches = {"type": "muzero", "reanalyze_ratio": 0.5, "n_step": 1, "unroll_steps": 1}
    policies = {
        "fox": {"agents": ["fox"], "policy": searches},
        "hare": {"agents": ["hare_*"], "policy": searches if hares == "muzero" else {"type": hares}},
    }
    faults = Faults(loss=0.05, repeat=0.1, delay_s=0.1)
    world = World(team_config(policies=policies, reanalyzer={"count": 2}), faults=faults)
    world.started(learners=2, reanalyzers=2).until_env_step(1)

    def rows() -> list[int]:
        return [policy.reanalysis.rows for policy in team(world).policies if policy.reanalysis.share]

    def have_more_than(before: list[int]) -> bool:
        return all(now > then for now, then in zip(rows(), before, strict=True))

    asking = 2 if hares == "muzero" else 1
    world.until(lambda: have_more_than([0] * asking))
    for role in ("reanalyzer", "learner"):
        world.restart(world.of(role)[-1])
        world.steps(20)
    before = rows()
    world.crash()
    assert rows() == before
    world.until(lambda: have_more_than(before))
    status = finished(world)
    assert sum(before) < status.reanalyzed_rows <= sum(meta.rows for meta in world.reanalyses.values())
    kept = [each for each in world.of_policies if isinstance(each.effect, CloseRun)]
    for each in kept:
        assert isinstance(each.effect, CloseRun)
        assert {world.path(each.policy, file) for file in each.effect.keep} <= world.disk
    assert sum(map(bool, world.made.values())) == asking, "each learner has used results of its own target network"


def test_a_run_that_is_stopped_saves_all_policies() -> None:
    world = world_of().until_env_step(500)
    world.ask(StopExperiment("x", now=True))
    world.run()
    assert world.experiment().state == "stopped"
    for policy in world.experiment().policies:
        last = world.checkpoints(policy.name)[-1]
        assert (last.record.train_iter, last.interrupted) == (policy.train_iter, True)


def test_it_demands_a_learner_for_each_policy_and_everybody_else_once() -> None:
    world = World(team_config())
    world.submit()
    world.steps(2)
    run = team(world)
    demand = run.demand(world.now_s)
    assert demand is not None
    assert demand.wanted == {"learner": 2, "collector": 2, "evaluator": 1, "reanalyzer": 0, "inference": 0}
    assert demand.minimum == {"learner": 2, "collector": 1, "evaluator": 1, "reanalyzer": 0, "inference": 0}
    for lease in (1, 2):
        assert run.takes("learner")
        run.assign(LeaseHolder(lease, f"{lease}", 1, "learner", "here", 1), world.now_s)
    assert not run.takes("learner")
    left = run.demand(world.now_s)
    assert left is not None
    assert left.wanted["learner"] == 0
    run.stop(now=False, explanation="asked", now_s=world.now_s)
    assert run.state == "stopping"


def test_workers_that_are_shared_are_asked_once() -> None:
    world = world_of().until_env_step(100)
    steps = team(world).lend("collector", 1, "another")
    told = [step for step in steps if isinstance(step, SendToLease) and isinstance(step.message, Drain)]
    assert len(told) == 1
    assert all(isinstance(step, LogLine | Happened) for step in steps if step not in told)


def test_a_journal_of_an_earlier_version_with_leases_beside_each_policy_is_continued() -> None:
    """Each policy then had its own learner, with index 0, and again the shared workers."""
    world = world_of().until_env_step(100)
    run = team(world)
    rows, places = run.leases.rows(), run.leases.rows_of_indices()
    recovered: list[Recovered] = []
    for index, policy in enumerate(run.policies):
        leases = [row for row in rows if row.holder.role != "learner" or row.index == index]
        book = LeaseBookSnapshot(
            0,
            [replace(row, index=0) if row.holder.role == "learner" else row for row in leases],
            [replace(row, index=0) for row in places if (row.role, row.index) == ("learner", index)],
        )
        snapshot = run.snapshot(world.now_s, policy).with_rows(run.rows(world.now_s, policy))
        whole = RunSnapshot(FORMAT, policy.identity, replace(snapshot, leases=book), 9)
        recovered.append(Recovered(whole, (), None))
    again = Experiment([policy.identity for policy in run.policies], team_config(), 0.0)
    again.restore(recovered, world.now_s)
    assert sorted(again.leases.rows(), key=lambda row: row.key) == sorted(rows, key=lambda row: row.key)
    assert [again.leases.learner_of(index) is not None for index in (0, 1)] == [True, True]
    assert again.state == run.state == "running"
    first, other = again.entries(9, world.now_s)
    assert (len(first.changes.lease.put), other.changes.lease.put) == (len(rows), ())
    assert first.changes.whole
    assert other.changes.whole, "the former rows are void"
