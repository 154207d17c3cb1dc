"""On-policy runs in the state machine: each segment used once, in order, and none older than the lag allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pytest

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.experiment.collecting import Collecting
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.coordinator.leases import LeaseBook
from remuda.tests.coordinator.configs import on_policy_config
from remuda.tests.coordinator.simulation import Faults, World
from remuda.training.run_snapshot import Identity
from remuda.training.status import RunState
from remuda.wire.messages import (
    Batches,
    BatchRequest,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    Credit,
    PolicyAvailable,
    PolicyRef,
)


def finished(world: World) -> None:
    world.run(3_000)
    status = world.experiment()
    assert status.state == "finished", status.reason
    assert status.env_step == world.unique_env_steps()
    rows = np.concatenate([rows for _, _, rows in world.used])
    assert len(set(rows.tolist())) == len(rows), "a row was used twice"


def lags(world: World) -> set[int]:
    """By how many versions the policy that collected a row was older than the one it improved."""
    return {
        version - world.collected[row].version
        for epoch, version, rows in world.used
        for row in rows.tolist()
        if world.collected[row].epoch == epoch
    }


@pytest.mark.parametrize("seed", range(2))
def test_strictly_on_policy_every_update_uses_what_the_policy_it_improves_has_collected(seed: int) -> None:
    world = World(on_policy_config(lag=0), seed=seed, faults=Faults(repeat=0.2 * seed, delay_s=0.2 * seed)).started()
    finished(world)
    assert lags(world) == {0}
    assert all(len(rows) == 8 for _, _, rows in world.used)
    assert len(world.used) >= 4_000 // (8 * 16) - 1


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("batches", [1, 3])
def test_what_came_last_is_learned_from_too(batches: int, lag: int) -> None:
    """Of a budget of one batch nothing was learned."""
    batch = 8 * 16
    world = World(on_policy_config(lag=lag, stop={"max_env_steps": batches * batch})).started()
    finished(world)
    assert len(world.used) == world.unique_env_steps() // batch == batches
    assert max(world.records) == world.experiment().train_iter, "the last checkpoint is of the last update"
    assert world.logged("not learned from") == []


def test_batches_that_nobody_learns_from_are_named_at_the_end() -> None:
    """A learner that comes no further holds one of them, and the others were not drawn."""
    world = World(on_policy_config(lag=2, stop={"max_env_steps": 3 * 8 * 16 - 30}))
    world.updates_per_step = 0
    world.herd(collectors=2)
    world.submit()
    world.run(3_000)
    assert world.experiment().state == "finished"
    assert world.logged("not learned from") == ["batches that were collected and not learned from: 3"]


LEARNER, COLLECTORS = 1, [2, 3]

T = TypeVar("T")


class Run:
    """A run of two collectors, whose learner is ready and has published its first policy."""

    def __init__(self) -> None:
        identity = Identity("run", "x", "/runs/x", "", priority=0, submitted=0)
        policy = PolicyTraining(
            identity, on_policy_config(lag=0), RunState(), LeaseBook(), 0.0, None, policy_index=0, serial=False
        )
        self.flow, self.replay, self.plan = policy.flow, policy.replay, policy.replay.plan
        self.collecting = Collecting("run", [policy])
        self.requests = 0
        for lease in COLLECTORS:
            policy.replay.ledger.open(lease, worker_of(lease), 1)
        self.publish(0)
        self.flow.is_open = True
        self.collecting.open(COLLECTORS)

    def collect(self, policy: PolicyRef) -> list[Batches]:
        """Announce as many chunks as an update needs."""
        answers: list[Batches] = []
        for number in range(self.plan.rows_per_update // self.plan.num_envs):
            lease = COLLECTORS[number % 2]
            chunk = ChunkId(worker_of(lease), 1, 100 * policy.version + number)
            env_steps = self.plan.chunk_slots
            meta = ChunkMeta(chunk, f"{chunk}", self.plan.num_envs, env_steps, 100, 0, policy, 0.1)
            _, steps = self.collecting.chunk(ChunkReady(lease, meta))
            answers += sent(steps, Batches)
        return answers

    def request(self, train_iter: int) -> list[Step]:
        self.requests += 1
        nothing = np.zeros(0, np.int64), np.zeros(0, np.float32)
        loaded, rows = self.replay.index.announced_row, self.plan.rows_per_update
        message = BatchRequest(LEARNER, self.requests, self.requests, 1, rows, train_iter, loaded, *nothing)
        return self.flow.requested(message) + self.collecting.extend()

    def publish(self, version: int) -> list[Step]:
        return self.collecting.published(0, PolicyRef(1, version, version), COLLECTORS)


def worker_of(lease: int) -> str:
    return f"aaaaaaaa-0000-4000-8000-{lease:012d}"


def sent(steps: Sequence[Step], kind: type[T]) -> list[T]:
    messages = [step.message for step in steps if isinstance(step, SendToLease)]
    return [message for message in messages if isinstance(message, kind)]


def test_an_answer_is_stamped_with_the_steps_that_were_accepted_when_its_rows_were_drawn() -> None:
    """By which the learner finds the values of settings that may change."""
    run = Run()
    run.request(0)
    stamped: list[int] = []
    for version in range(3):
        stamped += [answer.counters.env_step for answer in run.collect(PolicyRef(1, version, version))]
        run.publish(version + 1)
        run.request(version + 1)
    chunks = run.plan.rows_per_update // run.plan.num_envs
    assert stamped == [number * chunks * run.plan.chunk_slots for number in (1, 2, 3)]


def test_who_gets_credit_with_a_policy_hears_of_both_in_one_message() -> None:
    run = Run()
    run.collect(PolicyRef(1, 0, 0))
    run.request(0)
    run.request(1)
    steps = run.publish(1)
    assert [credit.lease for credit in sent(steps, Credit)] == COLLECTORS
    assert sent(steps, PolicyAvailable) == []
    later = run.publish(2)
    assert sent(later, Credit) == []
    assert [(news.lease, news.policy.version) for news in sent(later, PolicyAvailable)] == [(2, 2), (3, 2)]
