"""A run with several policies in the state machine, with scripted workers and without a network.

What the run asks for goes to the worker of the lease at once; what a worker says is answered in the same step. The
coordinator may be killed between two steps: then the run is rebuilt from a real journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from remuda.buffer.chunk import chunk_name
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.disk.run_folder import write_turns
from remuda.coordinator.effects import PolicyEffect, Release, Reply, SendToLease, Step
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.experiment.team import Team
from remuda.coordinator.journaling import recovered_run
from remuda.coordinator.leases import Sender
from remuda.environments.assignment import configs_of_policies
from remuda.policy.row_plan import joint_plan, row_plan
from remuda.training.effects import RecordCheckpoint
from remuda.training.identity import Identity
from remuda.training.journal import open_for_policies
from remuda.training.journal_entry import JournalEntry
from remuda.training.run_snapshot import FORMAT, RunSnapshot
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import (
    AnyMessage,
    Assign,
    Batches,
    BatchRequest,
    CheckpointRecord,
    CheckpointSaved,
    ChunkAccepted,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    Counters,
    Credit,
    Drain,
    Drained,
    Evaluate,
    EvaluationDone,
    Opponents,
    PolicyAvailable,
    PolicyPublished,
    PolicyRef,
    Ready,
    Role,
    SaveCheckpoint,
    StopTraining,
    Task,
)

EXPERIMENT = "eeeeeeee-0000-4000-8000-000000000001"
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


@dataclass
class Worker:
    """Of any role, under one lease."""

    role: Role
    lease: int
    uuid: str
    place: int = 0
    """Of a learner: which policy is its own."""
    credit: int = 0
    used: int = 0
    sequence: int = 0
    policies: list[PolicyRef] = field(default_factory=list[PolicyRef])
    unacknowledged: dict[ChunkId, ChunkReady] = field(default_factory=dict[ChunkId, ChunkReady])
    draining: bool = False
    stopped: bool = False
    train_iter: int = 0
    version: int = 0
    epoch: int = 0
    requests: int = 0
    waits: bool = False
    task: Task = field(default_factory=Task)
    asked: list[AnyMessage] = field(default_factory=list[AnyMessage])
    opponents: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """Of a collector in self-play: the older checkpoints of each policy, by its place."""


class World:
    """The run and its herd."""

    def __init__(self, config: ExperimentConfig, folder: Any) -> None:
        self.config, self.journal = config, folder / "journal.sqlite"
        self.policies = configs_of_policies(config)
        self.plans = [row_plan(own) for own in self.policies.values()]
        self.joint = joint_plan(self.plans)
        self.now_s, self._lease = 0.0, 0
        self.workers: dict[int, Worker] = {}
        self.written: dict[ChunkId, list[ChunkMeta]] = {}
        self.acknowledged: set[ChunkId] = set()
        self.kept: dict[str, set[str]] = {name: set() for name in self.policies}
        """The checkpoints of each policy that are there."""
        self.effects: list[PolicyEffect] = []
        self.played: list[Evaluate] = []
        self.lags: dict[str, list[int]] = {name: [] for name in self.policies}
        """Of each chunk, by how many versions its policy was behind when it was collected."""
        self.returns = 1.0
        members = {
            name: Experiment(
                Identity(EXPERIMENT, "hunt", "/runs/hunt", f"/runs/hunt/policy/{name}/policy_x", 0, 0, name),
                config,
                0.0,
            )
            for name in self.policies
        }
        self.team = Team(config, members)
        self._journals = [journal for journal, _ in open_for_policies(self.journal, list(self.policies))[0]]
        self.commit()

    # --- the herd ---

    def join(self, role: Role) -> Worker:
        """A worker that the scheduler has chosen."""
        self._lease += 1
        uuid = f"{self._lease:08d}-0000-4000-8000-000000000001"
        worker = self.workers[self._lease] = Worker(role, self._lease, uuid)
        self.do(self.team.assign(LeaseHolder(self._lease, uuid, 1, role, "here", 1), self.now_s))
        return worker

    def herd(self) -> None:
        for role in ("learner", "learner", "collector", "collector", "evaluator"):
            self.join(role)

    def kill(self, worker: Worker, *, silently: bool = False) -> None:
        del self.workers[worker.lease]
        if not silently:
            gone = self.team.worker_gone(worker.lease, "it was killed", self.now_s, handed_in=False, died="signal 9")
            self.do(gone)

    def of(self, role: Role) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.role == role]

    def say(self, worker: Worker, message: AnyMessage) -> None:
        sender = Sender(worker.uuid, 1)
        why = self.team.refusal(message, sender)
        assert why is None, why
        self.do(self.team.receive(message, sender, self.now_s), worker)

    # --- the run ---

    def do(self, steps: Iterable[Step], asker: Worker | None = None) -> None:
        """Journal, then carry out."""
        steps = list(steps)
        self.commit()
        for step in steps:
            match step:
                case SendToLease():
                    if step.lease in self.workers:
                        self._hear(self.workers[step.lease], step.message)
                case Reply():
                    assert asker is not None
                    self._hear(asker, step.message)
                case Release():
                    self.workers.pop(step.lease, None)
                case PolicyEffect():
                    self.effects.append(step)
                    if isinstance(step.effect, RecordCheckpoint):
                        self._prune(step.policy, step.effect)
                case _:
                    assert not type(step).__name__.startswith("Broken"), step

    def _prune(self, policy: str, saved: RecordCheckpoint) -> None:
        listed = [each.record.train_iter for each in self.checkpoints(policy)]
        kept = {*(listed[-saved.keep :] if saved.keep else listed), *saved.in_use}
        self.kept[policy] = {f"iteration_{train_iter}.pth.tar" for train_iter in kept}

    def commit(self) -> None:
        entries = [self._entry(member) for member in self.team.members]
        write_turns(self._journals, [replace(entries[0], others=tuple(entries[1:]))])

    def _entry(self, member: Experiment) -> JournalEntry:
        added, gone = member.replay.news()
        snapshot = RunSnapshot(
            FORMAT, member.identity.snapshot(member.config_json), member.parts.snapshot(self.now_s), self._lease
        )
        return JournalEntry(
            EXPERIMENT, snapshot, member.parts.changes(self.now_s), added, gone, None, member.parts.progress.news()
        )

    def crash(self) -> None:
        """The coordinator is killed and started again; its workers have lived on, and come back."""
        self._journals[0].close()
        journals, damage = open_for_policies(self.journal, list(self.policies))
        assert damage is None
        found = [known for _, known in journals if known is not None]
        assert len(found) == len(self.policies)
        run = recovered_run(replace(found[0], others=tuple(found[1:])), self.now_s).experiment
        assert isinstance(run, Team)
        self.team, self._journals = run, [journal for journal, _ in journals]
        for lease in list(self.team.lease_numbers):
            if lease in self.workers:
                self.do(self.team.back(lease, self.now_s))
            else:
                self.do(self.team.worker_gone(lease, "lost", self.now_s, handed_in=False, died="lost"))
        for worker in list(self.workers.values()):
            for ready in list(worker.unacknowledged.values()):
                self.say(worker, ready)
            worker.waits = False

    def close(self) -> None:
        self._journals[0].close()

    def step(self) -> None:
        """Everybody works a little, and time passes."""
        self.now_s += 1.0
        for worker in list(self.workers.values()):
            if worker.lease in self.workers:
                getattr(self, f"_{worker.role}")(worker)
        self.do(self.team.tick(self.now_s))

    def run(self, steps: int = 3_000) -> None:
        for _ in range(steps):
            if self.team.over:
                return
            self.step()
        raise AssertionError(f"it does not end: {self.team.status(self.now_s)}")

    @property
    def env_steps(self) -> list[int]:
        """As each policy counts them."""
        return [member.replay.ledger.env_step for member in self.team.members]

    def written_env_steps(self) -> int:
        return sum(metas[0].env_steps for metas in self.written.values())

    # --- what workers do ---

    def _hear(self, worker: Worker, message: AnyMessage) -> None:
        match message:
            case Assign():
                self._begin(worker, message)
            case ChunkAccepted() | Credit():
                worker.task = max(worker.task, message.task, key=lambda task: task.number)
                worker.credit = max(worker.credit, message.credit_env_steps)
                news = [message.policy, *(other.policy for other in message.others)]
                worker.policies = [max(pair) for pair in zip(worker.policies, news, strict=True)]
                if isinstance(message, ChunkAccepted):
                    assert message.rejected is None, message.rejected
                    if worker.unacknowledged.pop(message.chunk, None) is not None:
                        self.acknowledged.add(message.chunk)
            case PolicyAvailable() | Opponents():
                self._learn_of(worker, message)
            case Drain():
                worker.draining = True
            case StopTraining():
                worker.stopped = True
            case Batches():
                worker.waits = False
                worker.train_iter += len(message.rows)
                self._publish(worker)
            case SaveCheckpoint() | Evaluate():
                worker.asked.append(message)
            case _:
                raise AssertionError(message)

    def _learn_of(self, worker: Worker, message: PolicyAvailable | Opponents) -> None:
        if isinstance(message, Opponents):
            worker.opponents[message.policy_index] = [one.file for one in message.checkpoints]
        else:
            worker.policies[message.policy_index] = max(worker.policies[message.policy_index], message.policy)

    def _begin(self, worker: Worker, message: Assign) -> None:
        worker.place = list(self.policies).index(message.policy) if message.policy else 0
        worker.policies = [PolicyRef()] * len(self.policies)
        worker.epoch = message.epoch
        worker.train_iter = int(message.checkpoint.split("_")[1].split(".")[0]) if message.checkpoint else 0
        assert list(message.policies) == ([] if worker.role == "learner" else list(self.policies))
        if worker.role == "learner":
            self._publish(worker)
        self.say(worker, Ready(message.lease))

    def _publish(self, worker: Worker) -> None:
        self.say(worker, PolicyPublished(worker.lease, PolicyRef(worker.epoch, worker.version, worker.train_iter)))
        worker.version += 1

    def _collector(self, worker: Worker) -> None:
        if worker.draining:
            if not worker.unacknowledged:
                self.say(worker, Drained(worker.lease))
        elif worker.used < worker.credit and len(worker.unacknowledged) < 2:
            ready = self.write_chunk(worker)
            worker.unacknowledged[ready.meta.chunk] = ready
            self.say(worker, ready)

    def write_chunk(self, worker: Worker) -> ChunkReady:
        """A payload for each policy."""
        chunk = ChunkId(worker.uuid, 1, worker.sequence)
        worker.sequence += 1
        env_steps = self.joint.chunk_slots - COPIES * (worker.sequence % 3)
        metas: list[ChunkMeta] = []
        for plan, policy, name, member in zip(
            self.plans, worker.policies, self.policies, self.team.members, strict=True
        ):
            rows = plan.num_envs if plan.on_policy else env_steps * plan.agents
            file = chunk_name(chunk)
            metas.append(ChunkMeta(chunk, file, rows, env_steps, 100, 0, policy, 0.1, [1.0], [env_steps],
                                   task=worker.task.number))  # fmt: skip
            newest = member.parts.flow.policy
            if newest.epoch == policy.epoch:
                self.lags[name].append(newest.version - policy.version)
        worker.used += self.joint.slots(metas)
        self.written[chunk] = metas
        return ChunkReady(worker.lease, metas[0], metas[1:])

    def _learner(self, worker: Worker) -> None:
        plan = self.plans[worker.place]
        for asked in worker.asked:
            assert isinstance(asked, SaveCheckpoint)
            counters = asked.counters
            record = CheckpointRecord(
                worker.train_iter, counters.env_step, 0.0, None, f"iteration_{worker.train_iter}.pth.tar", "0" * 64,
                "now", counters.episode, PolicyRef(worker.epoch, worker.version, worker.train_iter),
            )  # fmt: skip
            self.say(worker, CheckpointSaved(worker.lease, asked.request, asked.reason, record))
        worker.asked.clear()
        if worker.draining:
            self.say(worker, Drained(worker.lease))
        elif not worker.waits and not worker.stopped:
            worker.waits, worker.requests = True, worker.requests + 1
            nothing = np.zeros(0, np.int64), np.zeros(0, np.float32)
            loaded = self.team.members[worker.place].replay.index.announced_row
            self.say(
                worker,
                BatchRequest(
                    worker.lease, worker.requests, worker.requests, plan.batches_per_request, plan.rows_per_update,
                    worker.train_iter, loaded, *nothing,
                ),
            )  # fmt: skip

    def _evaluator(self, worker: Worker) -> None:
        for asked in worker.asked:
            assert isinstance(asked, Evaluate)
            self.played.append(asked)
            files = [other.file for other in asked.others]
            files.insert(asked.policy_index, asked.checkpoint)
            for name, file in zip(self.policies, files, strict=True):
                assert file in self.kept[name], f"{file} of {name} is gone"
            for name, older in zip(self.policies, asked.older, strict=False):
                assert {one.file for one in older} <= self.kept[name], f"{older} of {name}: one is gone"
            returns = [self.returns] * asked.episodes
            done = EvaluationDone(
                worker.lease, asked.evaluation, asked.first_episode, returns, [5] * asked.episodes, 1.0,
                policy_index=asked.policy_index,
            )  # fmt: skip
            self.say(worker, done)
        worker.asked.clear()
        if worker.draining:
            self.say(worker, Drained(worker.lease))

    # --- what was recorded ---

    def checkpoints(self, policy: str) -> list[RecordCheckpoint]:
        return [
            step.effect for step in self.effects if step.policy == policy and isinstance(step.effect, RecordCheckpoint)
        ]


def counters_of(world: World) -> list[Counters]:
    return [member.parts.status.counters(world.now_s) for member in world.team.members]
