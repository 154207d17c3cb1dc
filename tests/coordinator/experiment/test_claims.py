"""What a worker says is believed of its own lease alone, and only where it can be true."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from msgspec.structs import replace

from remuda.buffer.chunk import chunk_name
from remuda.coordinator import effects as fx
from remuda.coordinator.events import Received
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.leases import NOBODY, Sender, sender_at
from remuda.logbook.episode_reports import WorkerReport
from remuda.tests.coordinator.configs import config, short_config
from remuda.tests.coordinator.simulation import Worker, World
from remuda.tests.keys import somebody_for
from remuda.wire.channel import Channel
from remuda.wire.messages import (
    AnyMessage,
    BatchRequest,
    CheckpointRecord,
    CheckpointSaved,
    ChunkAccepted,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    ChunkUnreadable,
    CollectorReport,
    Drained,
    EvaluationDone,
    EvaluationFilmed,
    Film,
    LearnerReport,
    MetricMean,
    PolicyPublished,
    PolicyRef,
    Role,
    TargetPublished,
    WorkerFailed,
)
from remuda.wire.sockets import worker_identity

STRANGER = "99999999-9999-4999-8999-999999999999"
CONNECTIONS = count(1)


def busy_world() -> World:
    """In the middle of its work: two collectors, a learner and an evaluator."""
    world = World(config(collector={"count": 2, "chunk_env_steps": 64}, stop={"max_env_steps": 1_000_000})).started()
    while world.experiment().train_iter < 100 if world.status().experiments else True:
        world.step()
    return world


def say(world: World, peer: bytes, message: AnyMessage) -> list[AnyMessage]:
    """Says it over a connection that has said nothing before; returns what the coordinator answers."""
    effects = world.coordinator.handle(
        Received(peer, Channel().post(message, world.now_s), somebody_for(message)), world.now_s
    )
    world.apply([effect for effect in effects if not isinstance(effect, fx.Send)])
    return [effect.envelope.message for effect in effects if isinstance(effect, fx.Send) and effect.peer == peer]


def said_by(world: World, worker: Worker, message: AnyMessage) -> None:
    """The worker itself says it, in the middle of all else."""
    worker.say(message)
    world.steps(3)


def lose(world: World, worker: Worker) -> None:
    """The worker dies, and the coordinator notices."""
    world.kill(worker)
    world.until(lambda: world.coordinator.registry.find(worker.uuid) is None)


def unknown_peer(uuid: str = STRANGER, incarnation: int = 1) -> bytes:
    return worker_identity(uuid, incarnation, "x", next(CONNECTIONS))


def chunk_of(uuid: str, incarnation: int = 1, sequence: int = 500, **changes: object) -> ChunkMeta:
    chunk = ChunkId(uuid, incarnation, sequence)
    meta = ChunkMeta(chunk, chunk_name(chunk), 8, 8, 800, 0, PolicyRef(), 0.1, [], [])
    return replace(meta, **changes)


def test_who_speaks_is_read_off_the_identity_of_the_connection() -> None:
    for incarnation in (7, 10**15):
        assert sender_at(worker_identity(STRANGER, incarnation, "p", 0)) == Sender(STRANGER, incarnation)
    long = STRANGER.encode() + b":" + b"1" * 17 + b":p:0"
    for peer in (b"", long, b"client:" + STRANGER.encode(), b"x" * 36 + b":no:p:0", b"\xff" * 36 + b":1:p:0", b"a:1"):
        assert sender_at(peer) == NOBODY


# --- whose lease ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("registered", [False, True])
def test_a_chunk_of_somebody_else_counts_for_nothing_and_ends_nobody(registered: bool) -> None:
    """A stranger announced 2^53 steps under a lease that it knew, and the run was over."""
    world = busy_world()
    stranger = world.add("collector", 77) if registered else None
    world.step()
    peer = unknown_peer() if stranger is None else stranger.peer
    lease, before = world.of("collector")[0].lease, world.experiment()
    meta = chunk_of(STRANGER if stranger is None else stranger.uuid, env_steps=2**53, rows=1)
    if stranger is None:
        [answer, *_] = say(world, peer, ChunkReady(lease, meta))
        assert isinstance(answer, ChunkAccepted)
        assert answer.rejected is not None
    else:
        said_by(world, stranger, ChunkReady(lease, meta))
        assert stranger.refused == "dismissed"
    assert world.experiment().state == "running"
    assert world.experiment().env_step <= before.env_step + 1_000
    assert world.of("collector")[0].lease == lease, "who has the lease keeps it"


def test_no_chunk_may_name_the_file_of_another() -> None:
    """A chunk that was refused had its file deleted, whoever's that was."""
    world = busy_world()
    own, other = world.of("collector")[0], world.of("collector")[1]
    victim = world.write_chunk(other, PolicyRef()).file
    said_by(world, own, ChunkReady(own.lease, chunk_of(own.uuid, own.incarnation, file=victim, rows=10**9)))
    assert victim in world.disk
    assert own.refused == "dismissed"
    assert other.alive
    assert world.experiment().state == "running"


def test_a_late_chunk_counts_only_for_the_worker_that_had_the_lease() -> None:
    world = busy_world()
    lost = world.of("collector")[0]
    lease, meta = lost.lease, world.write_chunk(lost, PolicyRef())
    lose(world, lost)
    for peer in (unknown_peer(), unknown_peer(lost.uuid, lost.incarnation + 1)):
        [answer, *_] = say(world, peer, ChunkReady(lease, meta))
        assert isinstance(answer, ChunkAccepted)
        assert answer.rejected == "it is not a chunk of the worker that had this lease"
    huge = chunk_of(lost.uuid, lost.incarnation, 900, env_steps=2**31)
    [answer, *_] = say(world, unknown_peer(lost.uuid, lost.incarnation), ChunkReady(lease, huge))
    assert isinstance(answer, ChunkAccepted)
    assert answer.rejected is not None
    before = world.experiment().env_step
    [answer, *_] = say(world, unknown_peer(lost.uuid, lost.incarnation), ChunkReady(lease, meta))
    assert isinstance(answer, ChunkAccepted)
    assert answer.rejected is None
    assert world.experiment().env_step == before + meta.env_steps


def test_nobody_fails_in_the_name_of_another() -> None:
    """Five such words ended a run."""
    world = busy_world()
    lease = world.of("learner")[0].lease
    for _ in range(20):
        assert len(say(world, unknown_peer(), WorkerFailed(lease, "dismissed: no", "nowhere"))) == 1  # an Ack
    assert world.of("learner")[0].lease == lease
    assert world.experiment().state == "running"


@pytest.mark.parametrize("hung", [True, False])
def test_a_worker_that_was_given_up_counts_as_a_failure_where_it_hung_whatever_its_text(hung: bool) -> None:
    world = busy_world()
    lost = world.of("collector")[0]
    lease = lost.lease
    lose(world, lost)
    failed = WorkerFailed(lease, "dismissed: no", "in env.step", hung=hung)
    say(world, unknown_peer(lost.uuid, lost.incarnation), failed)
    [experiment] = world.coordinator.experiments
    assert isinstance(experiment, Experiment)
    assert experiment.snapshot(world.now_s).failures == int(hung)


def test_a_failure_that_is_said_again_is_one_failure() -> None:
    world = busy_world()
    collector = world.of("collector")[0]
    lease = collector.lease
    for _ in range(20):
        collector.say(WorkerFailed(lease, "no", "nowhere"))
    world.steps(200)
    assert sum("failure of collector" in text for _, text in world.said) == 1
    assert world.experiment().state == "running"


# --- what cannot be ---------------------------------------------------------------------------------------------------
def request(world: World, worker: Worker, **changes: object) -> BatchRequest:
    plan = world.plan
    rows, errors = np.empty(0, np.int64), np.empty(0, np.float32)
    said = BatchRequest(worker.lease, 1, 1, plan.batches_per_request, plan.rows_per_update, 0, 0, rows, errors)
    return replace(said, **changes)


def saved(worker: Worker, **changes: object) -> CheckpointSaved:
    record = CheckpointRecord(7, 0, 1.0, None, "iteration_7.pth.tar", "0" * 64, "now")
    return CheckpointSaved(worker.lease, 1, "final", replace(record, **changes))


def announced(worker: Worker, **changes: object) -> ChunkReady:
    return ChunkReady(worker.lease, chunk_of(worker.uuid, worker.incarnation, **changes))  # type: ignore[arg-type]


def lies(world: World) -> dict[Role, dict[str, AnyMessage]]:
    """By the role that tells them."""
    learner, collector, evaluator = (world.of(role)[0] for role in ("learner", "collector", "evaluator"))
    beyond, lease = PolicyRef(2**53, 1, 1), collector.lease
    visits = {"visit_entropy_mean": MetricMean(1.0, 8)}
    return {
        "learner": {
            "rows never told of": request(world, learner, loaded_row=2**53),
            "a reanalysis never told of": request(world, learner, loaded_reanalysis=10**6),
            "a request far ahead": request(world, learner, request=2**50, oldest=2**50),
            "all batches in the world": request(world, learner, batches=4_096, batch_size=1_000_000),
            "another epoch": PolicyPublished(learner.lease, beyond),
            "a target network of another epoch": TargetPublished(learner.lease, beyond),
            "another's checkpoint": saved(learner, file="iteration_0.pth.tar"),
            "a checkpoint of steps to come": saved(learner, env_step=2**53),
            "an evaluation": EvaluationDone(learner.lease, 1, 0, [1e9], [1], 0.1),
            "a film": EvaluationFilmed(learner.lease, 0, 0, Film(b"", 1, 1)),
        },
        "collector": {
            "a learner's word": LearnerReport(lease, 2**53, {}),
            "loaded rows": request(world, collector, loaded_row=2**53),
            "steps beyond a chunk": announced(collector, env_steps=2**53),
            "more rows than steps": announced(collector, rows=1_000),
            "a policy that is not published yet": announced(collector, policy=beyond),
            "a task that has not begun": announced(collector, task=1),
            "a metric that nobody declared": announced(collector, metrics=visits),
            "a report of a metric that nobody declared": CollectorReport(
                lease, 1, 0, 8, 0.1, 0.0, 0.0, metrics={"speed": 1.0}
            ),
            "the end of the run": WorkerFailed(lease, "no", "nowhere", hopeless=True),
            "the learner's lease": request(world, learner, loaded_row=2**53),
            "an end of the learner's lease": Drained(learner.lease),
        },
        "evaluator": {"an unreadable file": ChunkUnreadable(evaluator.lease, "x", "no")},
    }


def test_what_cannot_be_is_refused() -> None:
    world = busy_world()
    [experiment] = world.coordinator.experiments
    assert isinstance(experiment, Experiment)
    for role, told in lies(world).items():
        liar = world.of(role)[0]
        believed = [lie for lie, message in told.items() if experiment.refusal(message, sender_of(liar)) is None]
        assert believed == []


def sender_of(worker: Worker) -> Sender:
    return Sender(worker.uuid, worker.incarnation)


@pytest.mark.parametrize("role", ["collector", "learner", "evaluator"])
def test_who_says_what_cannot_be_loses_its_lease_and_nobody_else_does(role: Role) -> None:
    world = busy_world()
    liar, lie = world.of(role)[0], next(iter(lies(world)[role].values()))
    others = {worker.uuid: worker.lease for worker in world.workers.values() if worker is not liar}
    said_by(world, liar, lie)
    assert liar.refused == "dismissed"
    assert {worker.uuid: worker.lease for worker in world.workers.values() if worker is not liar} == others
    assert world.experiment().state == "running"
    assert world.logged("rejects message from")
    world.restart(liar)
    before = world.experiment().env_step
    world.steps(60)
    assert world.experiment().env_step > before, "another takes its place, and the run goes on"


def test_the_mean_of_a_declared_metric_is_over_the_steps_of_its_chunk_at_most() -> None:
    world = World(config(policy={"type": "muzero", "n_step": 1, "unroll_steps": 1})).started()
    while not world.status().experiments or not world.of("collector")[1].lease:
        world.step()
    honest, liar = world.of("collector")[0], world.of("collector")[1]
    for worker, more in ((honest, 0), (liar, 1)):
        meta = world.write_chunk(worker, PolicyRef())
        metrics = {"visit_entropy_mean": MetricMean(0.5, meta.env_steps + more)}
        said_by(world, worker, ChunkReady(worker.lease, replace(meta, metrics=metrics)))
    told = CollectorReport(honest.lease, 1, 0, 8, 0.1, 0.0, 0.0, metrics={"visit_entropy_mean": 0.5})
    said_by(world, honest, told)
    assert (honest.refused, liar.refused) == (None, "dismissed")
    assert any("has means over more than its" in text for _, text in world.said)
    (report,) = (each for each in world.reports if isinstance(each, WorkerReport) and each.metrics)
    assert report.fields()["visit_entropy_mean"] == 0.5


def test_a_collector_cannot_run_far_ahead_of_its_credit() -> None:
    world = World(short_config(buffer={"samples_per_insert": 1.0, "min_rows": 32}, stop={"max_env_steps": 1_000_000}))
    world.updates_per_step = 0
    world.herd(collectors=1)
    world.submit()
    world.steps(100)
    liar = world.of("collector")[0]
    for _ in range(200):
        liar.say(ChunkReady(liar.lease, world.write_chunk(liar, PolicyRef())))
    world.steps(5)
    assert liar.refused == "dismissed"
    assert world.experiment().state == "running"
