"""A whole experiment without a process: simulated workers around the real state machine, over a network that may lose,
repeat and reorder, on a clock that jumps.

Collectors, evaluators and the learner are scripted, but their channels, the learner's prefetch and the coordinator are
the real ones. The disk is a dictionary, so reading a payload that was deleted too early is an error at once.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, ClassVar, Self
from uuid import UUID

import msgspec
import numpy as np

from remuda.buffer.chunk import ChunkError, chunk_name, reanalysis_name
from remuda.buffer.index import Prioritized
from remuda.buffer.ring import ColumnRing
from remuda.config.schema import ExperimentConfig
from remuda.coordinator import effects as fx
from remuda.coordinator.bill import bill
from remuda.coordinator.connections import HeldReplies
from remuda.coordinator.events import Answered, Event, PreparedRun, QuotaKept, Received, RecoveredRun, RunPrepared, Tick
from remuda.coordinator.journaling import prepared_experiment, recovered_run
from remuda.coordinator.service import LEASES_PER_START
from remuda.coordinator.settings import Hold, Limits
from remuda.coordinator.state import Coordinator
from remuda.environments.assignment import configs_of_policies
from remuda.learner.callbacks import LeaseCallbacks
from remuda.learner.loop import Priorities
from remuda.learner.prefetch import Prefetch
from remuda.logbook.episode_reports import EvaluationReport
from remuda.logbook.progress import ProgressRow
from remuda.policy.algorithms import reanalyzed_by_workers
from remuda.policy.row_plan import joint_plan, row_plan
from remuda.tests.keys import somebody_for
from remuda.training.commander.outcomes import evaluation_report
from remuda.training.effects import (
    Emit,
    LogLine,
    RecordCheckpoint,
    RecordReward,
    WriteLeague,
    WriteProgress,
    WriteTimers,
)
from remuda.training.journal_entry import JournalEntry, Recovered
from remuda.training.replay.ledger import Ledger
from remuda.training.run_snapshot import Changes, FinishedRun, HourRow, Rows, RunSnapshot
from remuda.training.snapshot import (
    AccountSnapshot,
    CountedSnapshot,
    LeaseSnapshot,
    NewEpisodes,
    PlaceSnapshot,
    ReanalysisRow,
    RestSnapshot,
)
from remuda.wire.channel import Channel
from remuda.wire.codec import Envelope, check
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    AnyMessage,
    Assign,
    Batches,
    BatchRequest,
    Beat,
    BeatHeard,
    Bill,
    Bye,
    CallCallbacks,
    ChangeSettings,
    CheckpointRecord,
    CheckpointSaved,
    ChunkAccepted,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    ChunkUnreadable,
    Credit,
    Drain,
    Drained,
    Evaluate,
    EvaluationDone,
    ExperimentStatus,
    IndexedChunk,
    InferenceCallers,
    InferenceJoined,
    InferenceServer,
    InferenceServers,
    LearnerReport,
    Leave,
    LogText,
    NotReanalyzed,
    Opponents,
    Phase,
    PolicyAvailable,
    PolicyPublished,
    PolicyRef,
    Quota,
    Ready,
    Reanalysis,
    ReanalysisId,
    Reanalyze,
    Reanalyzed,
    Register,
    Registered,
    Rejected,
    Role,
    SaveCheckpoint,
    Status,
    StopTraining,
    Submit,
    TargetPublished,
    Task,
)

STEP_S = 0.05
TARGET_ITERS = 25
"""Updates between two target networks."""
CLIENT = b"client:test"
ROWS = ("lease", "place", "account", "counted", "rest", "reanalysis", "hour")


@dataclass
class Faults:
    """What the network does to each envelope."""

    loss: float = 0.0
    repeat: float = 0.0
    delay_s: float = 0.0
    """Longest extra delay; different for each envelope, so they overtake each other."""


@dataclass
class Worker:
    """One incarnation of a simulated worker."""

    world: World
    role: Role
    uuid: str
    incarnation: int
    channel: Channel = field(default_factory=Channel)
    alive: bool = True
    lease: int = 0
    registered: bool = False
    refused: str | None = None
    hung: bool = False
    """Beats, but makes no progress."""
    activity: str = "working"
    lacks_bytes: int = 0
    phase: Phase = "working"
    """As its beats say."""
    deaf: bool = False
    """Beats, but takes nothing in."""
    work: object | None = None
    session: int = 0
    next_beat_s: float = 0.0
    last_message_s: float = math.inf
    """When it last heard from the coordinator."""
    held: list[AnyMessage] = field(default_factory=list[AnyMessage])
    """To be said once it is registered."""
    forgotten: int = 0
    """How often the coordinator did not know it."""
    assignments: list[int] = field(default_factory=list[int])
    former_exit: str = ""

    @property
    def peer(self) -> bytes:
        return f"{self.uuid}:{self.incarnation}:sim:{self.session}".encode()

    def say(self, message: AnyMessage) -> None:
        if not self.registered:
            self.held.append(message)
            return
        self.world.to_coordinator(self.peer, self.channel.post(message, self.world.now_s))

    def renew(self) -> None:
        """As the network thread does: register over a new connection, then say again what was not acknowledged."""
        pending = [*self.held, *self.channel.pending()]
        self.held = [message for message in pending if not isinstance(message, Register | BatchRequest)]
        self.session += 1
        self.channel, self.registered = Channel(), False
        self.register()

    def register(self) -> None:
        message = Register(
            self.uuid,
            self.incarnation,
            self.role,
            "sim",
            1,
            PROTOCOL_VERSION,
            "test",
            lease=self.lease,
            former_exit=self.former_exit,
        )
        self.world.to_coordinator(self.peer, self.channel.post(message, self.world.now_s))

    def receive(self, envelope: Envelope) -> None:
        self.last_message_s = self.world.now_s
        if not self.alive or self.deaf or (envelope.id and not self.registered):
            return
        received = self.channel.take(envelope, self.world.now_s)
        for answer in received.answers:
            self.world.to_coordinator(self.peer, answer)
        if received.message is not None:
            self._handle(received.message)

    def _handle(self, message: AnyMessage) -> None:
        match message:
            case Assign():
                self.lease = message.lease
                self.assignments.append(message.lease)
                self.work = WORK[self.role](self, message)
            case Leave():
                self.alive = False
            case BeatHeard():
                pass
            case Registered():
                self.registered = True
                held, self.held = self.held, []
                for message_ in held:
                    self.say(message_)
                if self.work is not None and message.lease == self.lease:
                    self._carry_on(message)
            case Rejected(code="unknown"):
                self.forgotten += 1
                self.renew()
            case Rejected():
                self.alive, self.refused = False, message.code
            case _ if self.work is not None and getattr(message, "lease", self.lease) == self.lease:
                self.work.handle(message)  # type: ignore[attr-defined]
            case _:
                pass

    def _carry_on(self, message: Registered) -> None:
        if message.goes_on:
            self.work.handle(message)  # type: ignore[attr-defined]
        else:
            self.lease, self.work = 0, None

    def step(self) -> None:
        if not self.alive:
            return
        if self.world.now_s - self.last_message_s > self.world.patience_s:
            self.alive, self.refused = False, "silence"
            return
        if self.work is not None and not self.hung:
            self.work.step()  # type: ignore[attr-defined]
        if self.registered and self.world.now_s >= self.next_beat_s:
            self.next_beat_s = self.world.now_s + self.world.beat_interval_s - STEP_S / 2
            progress = 0 if self.hung else int(self.world.now_s * 1_000)
            self.say(Beat(progress, self.activity, self.lease, phase=self.phase, lacks_bytes=self.lacks_bytes))
        for envelope in self.channel.due(self.world.now_s):
            self.world.to_coordinator(self.peer, envelope)

    def leave(self) -> None:
        """As after SIGTERM: what it has is announced already, and its payload stays; then it says goodbye."""
        self.say(Bye("asked to end"))
        self.work = None

    def drained(self) -> None:
        self.say(Drained(self.lease))
        self.lease, self.work = 0, None


class CollectorWork:
    def __init__(self, worker: Worker, assign: Assign) -> None:
        self.worker, self.assign = worker, assign
        self.taken, self.credit, self.policies = 0, assign.credit_env_steps, [PolicyRef()] * len(worker.world.policies)
        self.inference: Sequence[InferenceServer] = ()
        self.opponents: Opponents | None = None
        """The newest, in self-play."""
        self.unaccepted: set[ChunkId] = set()
        self.draining = False
        self.task = Task()
        self.hear(assign.task)
        self.join()
        worker.say(Ready(assign.lease))

    @property
    def policy(self) -> PolicyRef:
        return self.policies[0]

    @property
    def key(self) -> str:
        return f"{self.assign.lease:064x}"

    def join(self) -> None:
        if self.worker.world.shares_inference:
            self.worker.say(InferenceJoined(self.assign.lease, self.key))

    def credited(self, message: ChunkAccepted | Credit) -> None:
        self.credit = max(self.credit, message.credit_env_steps)
        news = [message.policy, *(other.policy for other in message.others)]
        self.policies = [max(pair) for pair in zip(self.policies, news, strict=False)] or self.policies
        self.hear(message.task)

    def hear(self, task: Task) -> None:
        if task.number > self.task.number:
            self.task = self.worker.world.told_task(self.assign.experiment, task)

    def handle(self, message: AnyMessage) -> None:
        match message:
            case ChunkAccepted():
                self.unaccepted.discard(message.chunk)
                self.credited(message)
            case Credit():
                self.credited(message)
            case PolicyAvailable():
                self.policies[message.policy_index] = max(self.policies[message.policy_index], message.policy)
            case InferenceServers():
                self.inference = message.servers
            case Opponents():
                self.worker.world.check_opponents(message)
                self.opponents = message
            case Drain():
                self.draining = True
            case Registered():
                self.join()
            case _:
                raise AssertionError(f"a collector got {message}")

    def is_answered(self) -> bool:
        """True if one of the inference workers that it knows of lives, in runs with some."""
        world = self.worker.world
        if not world.shares_inference:
            return True
        alive = {
            work.server.address for work in world.inference_work() if work.worker.alive and self.key in work.let_in
        }
        is_answered = any(server.address in alive for server in self.inference)
        world.answered += is_answered
        return is_answered

    def step(self) -> None:
        if self.draining:
            if not self.unaccepted:
                self.worker.drained()
        elif self.taken < self.credit and len(self.unaccepted) < 2 and self.is_answered():
            world = self.worker.world
            meta = world.write_chunk(self.worker, self.policy, self.task.number, self.policies[1:])
            self.taken += world.joint.slots([meta, *world.others[meta.chunk]])
            self.unaccepted.add(meta.chunk)
            self.worker.say(ChunkReady(self.assign.lease, meta, world.others[meta.chunk]))


class LearnerWork:
    """Uses the real prefetch and ring; checks that every gathered row is the row it was said to be."""

    def __init__(self, worker: Worker, assign: Assign) -> None:
        self.worker, self.assign = worker, assign
        world = worker.world
        self.train_iter = (
            0 if assign.checkpoint is None else int(assign.checkpoint.file.rsplit("_", 1)[1].split(".")[0])
        )
        self.version = 0
        self.saved = 0
        self.told = self.train_iter
        self.stopped = False
        self.trained_on: list[np.ndarray] = []
        self.unpublished: PolicyRef | None = None
        """What is being published while it goes on, as the real one does where a lag is allowed."""
        self.disk = random.Random(self.train_iter)
        self.policy = assign.policy
        index = world.policies.index(self.policy)
        plan = self.plan = world.plans[index]
        self.collected = world.collected if index == 0 else {}
        self.used = world.used if index == 0 else []
        self.prefetch = Prefetch(
            lease=assign.lease,
            batches=plan.batches_per_request,
            batch_size=plan.rows_per_update,
            ring=ColumnRing(plan.capacity),
            requests_in_flight=plan.requests_in_flight,
            read=self.read,
            unreadable=self.report,
            read_again=self.read_again,
            left_out=self.leave_out,
        )
        config = ExperimentConfig.model_validate_json(assign.config_json)
        self.callbacks = LeaseCallbacks.of(assign, config, ckpt=Path("ckpt"), send=worker.say)
        self.prefetch.load(assign.replay)
        self.prefetch.rewrite(assign.reanalyses)
        self.target = -1
        self.publish_target()
        worker.say(PolicyPublished(assign.lease, PolicyRef(assign.epoch, 0, self.train_iter)))
        worker.say(Ready(assign.lease, worker.world.warnings))

    def report(self, chunk: IndexedChunk, error: ChunkError) -> None:
        self.worker.say(ChunkUnreadable(self.assign.lease, chunk.meta.file, str(error)))

    def read(self, chunk: IndexedChunk) -> dict[str, np.ndarray]:
        world, id = self.worker.world, chunk.meta.chunk
        if id.sequence >= world.sequences.get((id.worker, id.incarnation), 0):
            raise ChunkError("missing", Path(chunk.meta.file), "nobody wrote it: its announcement was a lie")
        file = world.path(self.policy, chunk.meta.file)
        assert file in world.disk, f"{file} was deleted before the learner read it"
        if file in world.damaged:
            raise ChunkError("wrong checksum", Path(chunk.meta.file), "the test damaged it")
        rows = range(chunk.first_row, chunk.first_row + chunk.meta.rows)
        self.collected |= dict.fromkeys(rows, chunk.meta.policy)
        return {"row": np.array(rows), "again": np.zeros((len(rows), 2), np.int64)}

    def read_again(self, meta: Reanalysis) -> dict[str, np.ndarray]:
        if self.worker.world.path(self.policy, meta.file) not in self.worker.world.disk:
            raise ChunkError("missing", Path(meta.file), "it was replaced, or its rows were evicted")
        return {"again": np.full((meta.rows, 2), meta.target.train_iter)}

    def leave_out(self, meta: Reanalysis, error: Exception) -> None:
        assert isinstance(error, ChunkError), error

    def publish_target(self) -> None:
        """As the learner of an algorithm whose target network follows every TARGET_ITERS updates."""
        world = self.worker.world
        if world.reanalyzed[self.policy] and self.train_iter // TARGET_ITERS > self.target:
            self.target = self.train_iter // TARGET_ITERS
            ref = PolicyRef(self.assign.epoch, self.target, self.target * TARGET_ITERS)
            file = self.assign.experiment, self.policy
            world.target_files[file] = max(ref, world.target_files.get(file, ref))
            self.worker.say(TargetPublished(self.assign.lease, ref))

    def handle(self, message: AnyMessage) -> None:
        match message:
            case Batches():
                self.prefetch.arrived(message)
            case SaveCheckpoint() if message.request <= self.saved:
                pass
            case Registered():
                for request in self.prefetch.repeat():
                    self.worker.say(request)
            case SaveCheckpoint():
                self.saved = message.request
                self.stopped = self.stopped or message.reason == "preemption"
                self.worker.world.check_weights(self.policy, message)
                record = CheckpointRecord(
                    self.train_iter,
                    message.counters.env_step,
                    message.counters.wall_s,
                    None,
                    f"iteration_{self.train_iter}.pth.tar",
                    "0" * 64,
                    "now",
                    message.counters.episode,
                )
                self.worker.say(CheckpointSaved(self.assign.lease, message.request, message.reason, record))
            case CallCallbacks():
                self.callbacks.call(message)
            case ChangeSettings():
                self.callbacks.host.change(message.changes)
            case StopTraining():
                self.stopped = True
            case Drain():
                self.worker.drained()
            case _:
                raise AssertionError(f"a learner got {message}")

    def check_never_older(self, rows: np.ndarray, made: np.ndarray) -> None:
        """Also over learners: a row never has what an older target network computed than it had before."""
        before = self.worker.world.made.setdefault((self.assign.experiment, self.policy), {})
        for row, target in zip(rows.tolist(), made.tolist(), strict=True):
            assert target >= before.get(row, 0), f"row {row} was of target {before[row]}, and is of {target}"
            if target:
                before[row] = target

    def take_priorities(self) -> Priorities:
        rows = np.concatenate(self.trained_on) if self.trained_on else np.empty(0, np.int64)
        self.trained_on = []
        return Priorities(rows, np.ones(len(rows), np.float32))

    def step(self) -> None:
        if self.stopped or self.disk.random() < 0.5:
            self.publish()
        if self.stopped:
            return
        world = self.worker.world
        for _ in range(world.updates_per_step):
            self.ask()
            batch = self.prefetch.next_batch()
            if batch is None:
                if self.told != self.train_iter:
                    self.told = self.train_iter
                    self.worker.say(LearnerReport(self.assign.lease, self.train_iter, {}))
                return
            assert np.array_equal(batch.columns["row"], batch.rows)
            again = batch.columns["again"]
            assert np.array_equal(again[:, 0], again[:, 1]), "a row is of two target networks"
            self.check_never_older(batch.rows, again[:, 0])
            self.used.append((self.assign.epoch, self.version, batch.rows))
            self.train_iter += 1
            self.publish_target()
            self.trained_on.append(batch.rows)
            if self.train_iter % (1 if self.plan.on_policy else 10) == 0:
                self.version += 1
                self.publish()
                self.unpublished = PolicyRef(self.assign.epoch, self.version, self.train_iter)
                if not self.plan.on_policy:
                    self.publish()
                elif world.config.buffer.max_policy_lag == 0:  # it asks while the policy is being written
                    if self.disk.random() < 0.5:
                        self.publish()
                    self.ask()

    def ask(self) -> None:
        """Ask for batches, if it is time."""
        if self.prefetch.wants_request:
            self.told = self.train_iter
            self.worker.say(self.prefetch.request(self.train_iter, self.take_priorities()))

    def publish(self) -> None:
        """Publish what has not been published yet."""
        if self.unpublished is not None:
            self.worker.say(PolicyPublished(self.assign.lease, self.unpublished))
            self.unpublished = None


class EvaluatorWork:
    def __init__(self, worker: Worker, assign: Assign) -> None:
        self.worker, self.assign = worker, assign
        self.draining = False
        self.plays_on = False
        """What it is asked to play takes it forever; it gives that up when it is to drain."""
        self.newest = (0, 0, 0)
        worker.say(Ready(assign.lease))

    def handle(self, message: AnyMessage) -> None:
        match message:
            case Registered():
                pass
            case Evaluate() if self.plays_on or _numbers(message) == self.newest:
                pass
            case Evaluate():
                self.newest = _numbers(message)
                self.worker.world.check_kept(message)
                self.worker.world.told_task(self.assign.experiment, message.task)
                self.worker.world.played[message.evaluation] = message.task.number
                returns = [self.worker.world.skill(message.env_step)] * message.episodes
                self.worker.say(
                    EvaluationDone(
                        self.assign.lease,
                        message.evaluation,
                        message.first_episode,
                        returns,
                        [10] * message.episodes,
                        0.1,
                        _scores(message),
                        policy_index=message.policy_index,
                    )
                )
            case Drain():
                self.worker.drained()
            case _:
                raise AssertionError(f"an evaluator got {message}")

    def step(self) -> None:
        pass


def _scores(message: Evaluate) -> dict[str, list[float]]:
    """Results of games against a league: two of three are won."""
    episodes = range(message.first_episode, message.first_episode + message.episodes)
    return {"score": [float(episode % 3 > 0) for episode in episodes]} if any(message.older) else {}


def _numbers(message: Evaluate) -> tuple[int, int, int]:
    return message.policy_index, message.evaluation, message.first_episode


class ReanalyzerWork:
    def __init__(self, worker: Worker, assign: Assign) -> None:
        self.worker, self.assign = worker, assign
        self.asked: deque[Reanalyze] = deque()
        self.newest = [0] * len(worker.world.policies)
        worker.say(Ready(assign.lease))

    def handle(self, message: AnyMessage) -> None:
        match message:
            case Reanalyze() if message.request > self.newest[message.policy_index]:
                self.newest[message.policy_index] = message.request
                self.asked.append(message)
            case Reanalyze() | Registered():
                pass
            case Drain():
                self.worker.drained()
            case _:
                raise AssertionError(f"a reanalyzer got {message}")
        assert max(Counter(each.policy_index for each in self.asked).values(), default=0) <= 2, "more than it can do"

    def step(self) -> None:
        world = self.worker.world
        if self.asked and world.rng.random() < world.reanalyzer_pace:
            asked = self.asked.popleft()
            lease, request, policy_index = self.assign.lease, asked.request, asked.policy_index
            if world.path(world.policies[policy_index], asked.chunk.meta.file) not in world.disk:
                self.worker.say(NotReanalyzed(lease, request, "missing", policy_index))
                return
            meta = world.write_reanalysis(self.worker, asked)
            self.worker.say(Reanalyzed(lease, request, meta, policy_index))


class InferenceWork:
    """Under each lease it listens at another address, and says so again after a break."""

    def __init__(self, worker: Worker, assign: Assign) -> None:
        self.worker, self.assign = worker, assign
        self.server = InferenceServer(f"tcp://sim:{assign.lease}", f"{assign.lease:064x}")
        self.let_in = set[str]()
        self.join()
        worker.say(Ready(assign.lease))

    def handle(self, message: AnyMessage) -> None:
        match message:
            case Registered():
                self.join()
            case InferenceCallers():
                kept = set[str]() if message.whole else self.let_in - {*message.gone}
                self.let_in = kept | {*message.keys}
            case Drain():
                self.worker.drained()
            case _:
                raise AssertionError(f"an inference worker got {message}")

    def join(self) -> None:
        self.worker.say(InferenceJoined(self.assign.lease, self.server.key, self.server))

    def step(self) -> None:
        pass


WORK = {
    "inference": InferenceWork,
    "collector": CollectorWork,
    "learner": LearnerWork,
    "evaluator": EvaluatorWork,
    "reanalyzer": ReanalyzerWork,
}


class CrashError(Exception):
    """The coordinator's process is killed here."""


@dataclass
class Journaled:
    """One run's journal, encoded as it is on disk."""

    snapshot: bytes = b""
    rows: dict[str, dict[int | str, bytes]] = field(default_factory=dict[str, dict[int | str, bytes]])
    """By kind, and by what tells each from others of its kind."""
    chunks: dict[int, bytes] = field(default_factory=dict[int, bytes])
    episodes: dict[int, bytes] = field(default_factory=dict[int, bytes])
    priorities: Prioritized | None = None
    others: list[Journaled] = field(default_factory=list["Journaled"])
    """Parts of the other policies of the run."""

    def write(self, entry: JournalEntry) -> None:
        self.others = self.others or [Journaled() for _ in entry.others]
        for other, part in zip(self.others, entry.others, strict=True):
            other.write(part)
        self.snapshot = msgspec.msgpack.encode(entry.snapshot)
        self._write_rows(entry.changes)
        self.chunks |= {chunk.first_row: msgspec.msgpack.encode(chunk) for chunk in entry.added}
        for row in entry.gone:
            self.chunks.pop(row, None)
        self.priorities = entry.priorities or self.priorities
        if (new := entry.episodes) is not None:
            self.episodes = {first: body for first, body in self.episodes.items() if first < new.first}
            self.episodes[new.first] = msgspec.msgpack.encode(new)

    def _write_rows(self, changes: Changes) -> None:
        for kind in ROWS:
            rows: Rows[Any] = getattr(changes, kind)
            kept = {} if changes.whole else {k: row for k, row in self.rows[kind].items() if k not in rows.gone}
            self.rows[kind] = kept | {row.key: msgspec.msgpack.encode(row) for row in rows.put}

    def changes(self) -> Changes:
        """All rows that were written."""
        kinds = {"lease": LeaseSnapshot, "place": PlaceSnapshot, "account": AccountSnapshot}
        kinds |= {"counted": CountedSnapshot, "rest": RestSnapshot, "reanalysis": ReanalysisRow, "hour": HourRow}
        rows: dict[str, Rows[Any]] = {
            kind: Rows(tuple(msgspec.msgpack.decode(body, type=type) for _, body in sorted(self.rows[kind].items())))
            for kind, type in kinds.items()
        }
        return Changes(**rows, whole=True)

    def without(self, disk: set[str]) -> Journaled:
        """As the books read it: without the chunks whose files are not there any more."""
        files = {row: msgspec.msgpack.decode(body, type=IndexedChunk).meta.file for row, body in self.chunks.items()}
        chunks = {row: body for row, body in self.chunks.items() if files[row] in disk}
        return replace(self, chunks=chunks)

    def recovered(self) -> Recovered:
        chunks = [msgspec.msgpack.decode(self.chunks[row], type=IndexedChunk) for row in sorted(self.chunks)]
        episodes = [msgspec.msgpack.decode(body, type=NewEpisodes) for _, body in sorted(self.episodes.items())]
        snapshot = (
            msgspec.msgpack.decode(self.snapshot, type=RunSnapshot).with_rows(self.changes()).with_episodes(episodes)
        )
        return Recovered(
            snapshot, tuple(chunks), self.priorities, others=tuple(each.recovered() for each in self.others)
        )


@dataclass
class LaneTurn:
    """One run's part of a turn, until its disk takes it."""

    number: int
    entry: JournalEntry | None = None
    effects: list[fx.Effect] = field(default_factory=list[fx.Effect])
    accepted: list[ChunkId] = field(default_factory=list[ChunkId])
    """Chunks that count once the journal has the turn."""


def _ledger_of(recovered: Recovered) -> Ledger:
    ledger = Ledger()
    ledger.restore(recovered.snapshot.experiment.replay.ledger)
    return ledger


def _accepted(effects: Sequence[fx.Effect]) -> list[ChunkId]:
    """Chunks that are acknowledged as counted."""
    found: list[ChunkId] = []
    for effect in effects:
        match effect:
            case fx.Send(envelope=Envelope(message=ChunkAccepted(chunk=chunk, rejected=None))):
                found.append(chunk)
            case _:
                pass
    return found


class World:
    """The coordinator, the network, the disk and everybody on it."""

    def __init__(
        self,
        config: ExperimentConfig,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        limits: Limits | None = None,
        idle_end_s: float | None = None,
        turn_messages: int = 1,
    ) -> None:
        self.config = config
        self.limits = limits or Limits(lost_after_s=5.0)
        self.idle_end_s = idle_end_s
        self.turn_messages = turn_messages
        """The coordinator handles up to so many messages, and a tick besides, before it writes its journal and
        answers."""
        self.rng = random.Random(seed)
        self.faults = faults or Faults()
        self.now_s = 1_000.0
        self.hour_s = 0.0
        """Length of an hour of the bill; 0: the hour does not change."""
        self.quotas: dict[str, Quota] = {}
        """In the list of runs."""
        self.updates_per_step = 40
        self.beat_interval_s = STEP_S
        self.patience_s = math.inf
        """A worker that hears nothing from the coordinator for this time ends."""
        configs = configs_of_policies(config)
        self.policies = list(configs)
        """Names of the policies; empty for a single policy. Notes without a name are of the first."""
        self.plans = [row_plan(own) for own in configs.values()]
        self.plan, self.joint = self.plans[0], joint_plan(self.plans)
        self.shares_inference = bool(config.shared_inference.workers)
        self.answered = 0
        """Chunks of collectors for which an inference worker computed the actions."""
        self.reanalyzed = {name: reanalyzed_by_workers(own) is not None for name, own in configs.items()}
        """True for policies whose rows reanalyzers compute again."""
        self.of_policies: list[fx.PolicyEffect] = []
        """Effects on the files of policies, of several."""
        self.kept: dict[str, set[str]] = {name: set() for name in self.policies}
        """Checkpoints of each policy that are not pruned."""
        self.others: dict[ChunkId, list[ChunkMeta]] = {}
        """Parts of a chunk for the policies after the first."""
        self.policy_lags: dict[str, list[int]] = {name: [] for name in self.policies}
        """For each chunk, the number of versions by which each policy was behind."""
        self.asked_to_play: list[Evaluate] = []
        self.used: list[tuple[int, int, np.ndarray]] = []
        """Of each update: the epoch and version of the policy it improved, and its rows."""
        self.collected: dict[int, PolicyRef] = {}
        """Which policy collected each row that the learner read."""
        self.crashes = 0
        self.power_failures = 0
        """Of the coordinator's machine."""
        self.coordinator = self._new_coordinator()
        self.lags: Callable[[str], bool] = lambda experiment: False
        """Asked before each turn of a run is written: whether its disk does not take it yet."""
        self.holds: dict[str, Hold] = {}
        """The runs that the next coordinator knows to be held up."""
        self._run_threads: dict[str, deque[LaneTurn]] = {}
        self._turns = 0
        self.prepares_at_once = True
        self.being_prepared: list[RunPrepared] = []
        """Run folders that the disk has ready, which nobody knows of yet."""
        self._held_replies = HeldReplies(self._say, self.waits_for)
        self.journal: dict[str, Journaled] = {}
        """What the coordinator has to know after a crash, by experiment."""
        self.crash_at: Callable[[], bool] = lambda: False
        """Asked at every point at which the coordinator's process may die: before each journal that a turn writes,
        after the last one, and between any two of its effects."""
        self.deaths = 0
        """Of workers, by force."""
        self.down_until_s = 0.0
        self.downtime_s = 1.0
        self.workers: dict[str, Worker] = {}
        self.disk: set[str] = set()
        self.damaged: set[str] = set()
        self.damage = 0.0
        """Share of payloads that cannot be read."""
        self.written: dict[ChunkId, ChunkMeta] = {}
        self.accepted: set[ChunkId] = set()
        self.adopting: defaultdict[str, set[ChunkId]] = defaultdict(set)
        """By experiment: chunks that lay in data/ uncounted when its coordinator was started again."""
        self.owner: dict[ChunkId, str] = {}
        """For which experiment each was collected."""
        self.sequences: dict[tuple[str, int], int] = {}
        self.said: list[tuple[str | None, str]] = []
        self.warnings: list[str] = []
        """What learners warn of as they begin."""
        self.reports: list[object] = []
        self.reanalyzer_pace = 0.5
        """How likely a reanalyzer is to be done with a chunk in a step."""
        self.target_files: dict[tuple[str, str], PolicyRef] = {}
        """The target network that each file holds, by experiment and policy."""
        self.made: dict[tuple[str, str], dict[int, int]] = {}
        """By experiment and policy, of which target network each row was that was computed again, when a learner last
        used it."""
        self.reanalyses: dict[ReanalysisId, Reanalysis] = {}
        """All that were written."""
        self.progress: list[ProgressRow] = []
        self.shown: dict[str, int] = {}
        """The epoch of the newest row of progress, by experiment."""
        self.evaluations_shown: dict[str, int] = {}
        """The train_iter of the newest point in the curve of evaluations, by experiment."""
        self.records: dict[int, CheckpointRecord] = {}
        self.rewards: dict[int, tuple[float, bool]] = {}
        self.closed: list[fx.CloseRun] = []
        self.tasks: dict[int, str] = {}
        """What workers were told of each task, by its number."""
        self.played: dict[int, int] = {}
        """The task of each evaluation, by its number."""
        self.exited = False
        self.mishaps: Counter[str] = Counter()
        """How many envelopes were lost, repeated and overtaken by later ones."""
        self.client = Channel()
        self.replies: list[AnyMessage] = []
        self._flying: list[tuple[float, int, str, bytes, Envelope]] = []
        """A heap, by the time and then by the order in which they were sent."""
        self._order = 0
        self._heard: list[Event] = []
        """What the coordinator handles in this turn."""
        self._newest: dict[tuple[str, bytes], int] = {}
        """Of each connection, up and down: the envelope that arrived of those that were sent last."""
        self.check: Callable[[], None] = lambda: None
        """Called after each turn of the coordinator."""
        self.before_journal: Callable[[JournalEntry], None] = lambda entry: None
        """Called with each entry before it is in a journal."""
        self.noted: Callable[[fx.DiskEffect], None] = lambda effect: None
        """Called with all that is done to the disk and the logs."""

    def _new_coordinator(self) -> Coordinator:
        return Coordinator(
            id=str(UUID(int=self.rng.getrandbits(128), version=4)),
            address="sim",
            pid=1,
            now_s=self.now_s,
            limits=self.limits,
            leases=self.crashes * LEASES_PER_START,  # each has numbers of its own
            boot=f"boot {self.power_failures}",
            idle_end_s=self.idle_end_s,
            new_id=lambda: str(UUID(int=self.rng.getrandbits(128), version=4)),
        )

    # --- the coordinator's death ---

    def crash(self) -> None:
        """SIGKILL: what is not journaled is gone. It is started again at once, by the same command."""
        self.crashes += 1
        self._run_threads, self._held_replies = {}, HeldReplies(self._say, self.waits_for)
        self.down_until_s = self.now_s + self.downtime_s
        self.coordinator = self._new_coordinator()
        effects = self.coordinator.recover(self.left_behind(), self.now_s)
        for journaled in self.journal.values():
            self._catch_up(journaled)
        try:
            self._journal_and_apply(effects)
        except CrashError:
            self.crash()

    def left_behind(self) -> Sequence[RecoveredRun | FinishedRun]:
        """The runs that the next coordinator takes up, with the payloads that nobody has counted."""
        recovered = [journaled.recovered() for journaled in self.journal.values()]
        runs = [recovered_run(replace(run, uncounted=self._uncounted(run)), self.now_s) for run in recovered]
        return [replace(run, hold=self.holds.get(run.experiment.identity.id)) for run in runs]

    def _uncounted(self, recovered: Recovered) -> tuple[ChunkMeta, ...]:
        """Chunks in data/ that this journal has not counted."""
        id, ledger = recovered.snapshot.identity.id, _ledger_of(recovered)
        own = [meta for chunk, meta in self.written.items() if self.owner[chunk] == id and meta.file in self.disk]
        if self.plans[1:]:
            return ()
        found = tuple(sorted((meta for meta in own if ledger.lacks(meta.chunk)), key=lambda meta: meta.chunk))
        self.adopting[id] = {meta.chunk for meta in found}
        return found

    def _note_adopted(self, id: str) -> None:
        """Chunks that lay in data/ uncounted, and that the journal counts now, are accepted, though nobody was told."""
        if self.adopting[id]:
            ledger = _ledger_of(self.journal[id].recovered())
            counted = {chunk for chunk in self.adopting[id] if not ledger.lacks(chunk)}
            self.accepted |= counted
            self.adopting[id] -= counted

    def lose_power(self, journal: dict[str, Journaled]) -> None:
        """The coordinator's machine does, and what is left is a `journal` of some moments before; its workers are on
        others."""
        self.power_failures += 1
        self.journal = {id: journaled.without(self.disk) for id, journaled in journal.items()}
        self.crash()

    def _catch_up(self, journaled: Journaled) -> None:
        """As the books do: index.json, progress.txt and the curves get what was journaled in the last moment."""
        snapshot = journaled.recovered().snapshot
        id, commander = snapshot.identity.id, snapshot.experiment.dispatch.commander
        for row in snapshot.experiment.progress.given:
            if row.epoch > self.shown.get(id, -1):
                self._note_effect(WriteProgress(id, row))
        if commander.last is not None and commander.last.record.train_iter > self.evaluations_shown.get(id, -1):
            self._note_effect(Emit(id, evaluation_report(commander.last, best=False, has_tasks=False)))
        if commander.last_record is not None:
            self.records.setdefault(commander.last_record.train_iter, commander.last_record)
        if commander.best is not None:
            self.rewards[commander.best[0].train_iter] = (commander.best[1], True)
        if commander.last is not None:
            last = commander.last
            self.rewards.setdefault(last.record.train_iter, (last.reward_mean, False))

    def _turn(self, *events: Event) -> None:
        """Events through the coordinator, as the service does it: journal first, then everything else."""
        try:
            self._journal_and_apply([effect for event in events for effect in self._handle(event)])
        except CrashError:
            self.crash()

    def _journal_and_apply(self, effects: list[fx.Effect]) -> None:
        """As the service: each run's part of a turn goes to the run's lane, and messages wait for its journal."""
        self._turns += 1
        parts: dict[str, LaneTurn] = {}
        for entry in self.coordinator.journal_entries(self.now_s):
            part = parts[entry.experiment] = LaneTurn(self._turns, entry)
            part.accepted = [chunk for chunk in _accepted(effects) if self.owner[chunk] == entry.experiment]
        sends: list[fx.Send] = []
        for effect in effects:
            match effect:
                case fx.Send():
                    if effect.after not in self.coordinator.unjournaled:
                        sends.append(effect)
                case fx.Exit() | LogLine(experiment=None):
                    self.apply([effect])
                case fx.PrepareRun() | fx.ReadLog() | fx.ReadBill() | fx.KeepQuota() | JournalEntry():
                    raise AssertionError("handled before")
                case _:
                    assert effect.experiment is not None
                    parts.setdefault(effect.experiment, LaneTurn(self._turns)).effects.append(effect)
        for experiment, part in parts.items():
            self._run_threads.setdefault(experiment, deque()).append(part)
        self._write()
        for send in sends:
            self._may_crash()
            self._held_replies.put(send)

    def _go_on_writing(self) -> None:
        try:
            self._write()
        except CrashError:
            self.crash()

    def _write(self) -> None:
        """Each lane writes as much as its disk takes now."""
        for experiment, run_thread in self._run_threads.items():
            while run_thread and not self.lags(experiment):
                turn = run_thread[0]
                if turn.entry is not None:
                    self._may_crash()
                    self.before_journal(turn.entry)
                    self.keep(turn.entry)
                    self.accepted.update(turn.accepted)
                    self._note_adopted(experiment)
                run_thread.popleft()
                for effect in sorted(turn.effects, key=lambda each: not isinstance(each, fx.DeleteChunks)):
                    self._may_crash()
                    self.apply([effect])
                self._held_replies.journaled(experiment, turn.number)

    def keep(self, entry: JournalEntry) -> None:
        """Into the run's journal."""
        self.journal.setdefault(entry.experiment, Journaled()).write(entry)

    def waits_for(self, experiment: str) -> int:
        """The newest turn that this run's journal has yet to take; 0 where it has all."""
        run_thread = self._run_threads.get(experiment)
        return run_thread[-1].number if run_thread else 0

    def _say(self, send: fx.Send) -> None:
        for chunk in _accepted([send]):
            assert chunk in self.accepted, "acknowledged, and not in the journal"
        self.apply([send])

    def _handle(self, event: Event) -> list[fx.Effect]:
        effects: list[fx.Effect] = []
        for effect in self.coordinator.handle(event, self.now_s):
            if isinstance(effect, fx.PrepareRun):
                run_dir = effect.submit.run_dir
                config = ExperimentConfig.model_validate_json(effect.submit.config_json)
                first, *others = [
                    PreparedRun(
                        effect,
                        config,
                        effect.identity(run_dir, run_dir + "/policy/p", policy=name, project=config.project),
                    )
                    for name in configs_of_policies(config)
                ]
                prepared = replace(first, others=tuple(others))
                ready = RunPrepared(effect, prepared_experiment(prepared, self.now_s))
                if self.prepares_at_once:
                    effects += self._handle(ready)
                else:
                    self.being_prepared.append(ready)
            elif isinstance(effect, fx.KeepQuota):
                self.quotas[effect.quota.account] = effect.quota
                effects += self._handle(QuotaKept(effect.requester, effect.quota))
            elif isinstance(effect, fx.ReadBill):
                items = [item for charge in effect.known for item in charge.items(0, 2**40)]
                effects += self._handle(Answered(effect.requester, Bill(bill(items, effect.request.by))))
            elif isinstance(effect, fx.ReadLog):
                effects += self._handle(Answered(effect.requester, LogText([], effect.is_over)))
            else:
                effects.append(effect)
        return effects

    def _may_crash(self) -> None:
        if self.crash_at():
            raise CrashError

    # --- who is there ---

    def add(self, role: Role, number: int, incarnation: int = 1) -> Worker:
        uuid = str(UUID(int=(hash_role(role) << 64) + number, version=4))
        worker = Worker(self, role, uuid, incarnation)
        self.workers[uuid] = worker
        worker.register()
        return worker

    def inference_work(self) -> list[InferenceWork]:
        return [worker.work for worker in self.of("inference") if isinstance(worker.work, InferenceWork)]

    def herd(
        self, collectors: int, evaluators: int = 1, learners: int = 1, reanalyzers: int = 0, inference: int = 0
    ) -> None:
        counts: dict[Role, int] = {"learner": learners, "collector": collectors, "evaluator": evaluators}
        for role, count in (counts | {"reanalyzer": reanalyzers, "inference": inference}).items():
            for number in range(count):
                self.add(role, number)

    def started(
        self, collectors: int = 2, evaluators: int = 1, learners: int = 1, reanalyzers: int = 0, name: str = "x"
    ) -> Self:
        """Add a herd and submit an experiment."""
        self.herd(collectors, evaluators, learners, reanalyzers)
        self.submit(name)
        return self

    def of(self, role: Role) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.role == role]

    def kill(self, worker: Worker) -> None:
        self.deaths += worker.alive
        worker.alive = False

    def restart(self, worker: Worker, former_exit: str = "") -> Worker:
        self.kill(worker)
        fresh = Worker(self, worker.role, worker.uuid, worker.incarnation + 1, former_exit=former_exit)
        self.workers[worker.uuid] = fresh
        fresh.register()
        return fresh

    def ask(self, message: AnyMessage) -> None:
        self.to_coordinator(CLIENT, self.client.post(message, self.now_s))

    def submit(self, name: str = "x", priority: int = 0) -> None:
        id = str(UUID(int=self.rng.getrandbits(128), version=4))
        self.ask(Submit(name, self.config.model_dump_json(), "/runs/" + name, priority=priority, experiment=id))

    # --- what they do to the world ---

    def path(self, policy: str, file: str) -> str:
        return f"{policy}/{file}" if policy else file

    def write_chunk(
        self, worker: Worker, policy: PolicyRef, task: int = 0, others: Sequence[PolicyRef] = ()
    ) -> ChunkMeta:
        """Write a payload for each policy; return the part of the first."""
        key = (worker.uuid, worker.incarnation)
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + 1
        if self.plan.on_policy:
            env_steps, rows = self.plan.chunk_slots - self.rng.randint(0, 7), self.plan.num_envs
        else:
            env_steps = self.joint.chunk_slots + self.rng.randint(0, 7) * (1 if len(self.plans) == 1 else -1)
            rows = max(env_steps * self.plan.agents - (2 if sequence == 0 else 0), 1)
        file = chunk_name(ChunkId(worker.uuid, worker.incarnation, sequence))
        self.disk |= {self.path(name, file) for name in self.policies}
        if self.rng.random() < self.damage:
            self.damaged.add(file)
        meta = ChunkMeta(
            ChunkId(worker.uuid, worker.incarnation, sequence),
            file,
            rows,
            env_steps,
            100 * rows,
            0,
            policy,
            0.01,
            [float(env_steps)],
            [env_steps],
            task=task,
        )
        self.written[meta.chunk] = meta
        self.others[meta.chunk] = [
            msgspec.structs.replace(
                meta, rows=plan.num_envs if plan.on_policy else env_steps * plan.agents, policy=acting
            )
            for plan, acting in zip(self.plans[1:], others, strict=False)
        ]
        assert isinstance(worker.work, CollectorWork)
        self.owner[meta.chunk] = worker.work.assign.experiment
        self._note_lags(worker.work.assign.experiment, [policy, *others])
        return meta

    def _note_lags(self, experiment: str, acting: Sequence[PolicyRef]) -> None:
        run = self.coordinator.experiments.experiment(experiment)
        for name, member, policy in zip(self.policies, () if run is None else run.policies, acting, strict=False):
            newest = member.flow.policy
            if newest.epoch == policy.epoch:
                self.policy_lags[name].append(newest.version - policy.version)

    def write_reanalysis(self, worker: Worker, asked: Reanalyze) -> Reanalysis:
        """With the target network that is in the file, which may be newer than the one asked for."""
        key = (worker.uuid, worker.incarnation)
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + 1
        id, chunk = ReanalysisId(worker.uuid, worker.incarnation, sequence), asked.chunk
        file, policy = reanalysis_name(id), self.policies[asked.policy_index]
        self.disk.add(self.path(policy, file))
        assert isinstance(worker.work, ReanalyzerWork)
        target = self.target_files[worker.work.assign.experiment, policy]
        compute_s = (1 + sequence % 5) / 1_000
        meta = Reanalysis(id, file, chunk.meta.chunk, chunk.first_row, chunk.meta.rows, target, 50, 0, compute_s)
        self.reanalyses[id] = meta
        return meta

    def told_task(self, experiment: str, task: Task) -> Task:
        """A worker was told of a task: it is journaled, and everybody is told the same."""
        assert self.tasks.setdefault(task.number, task.kwargs_json) == task.kwargs_json
        snapshot = msgspec.msgpack.decode(self.journal[experiment].snapshot, type=RunSnapshot)
        assert snapshot.experiment.dispatch.commander.task.number >= task.number
        return task

    def check_kept(self, message: Evaluate) -> None:
        """All checkpoints of an evaluation are present."""
        self.asked_to_play.append(message)
        if not self.plans[1:]:
            return
        files = [other.file for other in message.others]
        files.insert(message.policy_index, message.checkpoint)
        for name, file in zip(self.policies, files, strict=True):
            assert file in self.kept[name], f"{file} of {name} is gone"
        for name, older in zip(self.policies, message.older, strict=False):
            assert {each.file for each in older} <= self.kept[name], f"{older} of {name}: one is gone"

    def check_opponents(self, message: Opponents) -> None:
        """All checkpoints of the opponents are present when they are drawn up."""
        for name, files in zip(self.policies, message.pool, strict=True):
            assert {each.file for each in files} <= self.kept[name], f"{files} of {name}: one is gone"
        assert all(abs(sum(weights) - 1.0) < 1e-9 for weights in message.weights)

    def check_weights(self, policy: str, message: SaveCheckpoint) -> None:
        """The checkpoint with which a learner begins again is present."""
        assert message.weights is None or message.weights.file in self.kept[policy], f"{message.weights} is gone"

    def checkpoints(self, policy: str) -> list[RecordCheckpoint]:
        """Saved checkpoints of a policy, of several."""
        own = [each.effect for each in self.of_policies if each.policy == policy]
        return [effect for effect in own if isinstance(effect, RecordCheckpoint)]

    def skill(self, env_step: int) -> float:
        return float(env_step) / 10

    # --- the network ---

    def to_coordinator(self, peer: bytes, envelope: Envelope) -> None:
        self._fly("up", peer, envelope)

    def _fly(self, way: str, peer: bytes, envelope: Envelope) -> None:
        if self.rng.random() < self.faults.loss:
            self.mishaps["lost"] += 1
            return
        copies = 2 if self.rng.random() < self.faults.repeat else 1
        self.mishaps["repeated"] += copies - 1
        for _ in range(copies):
            self._order += 1
            delay_s = self.rng.random() * self.faults.delay_s
            heappush(self._flying, (self.now_s + delay_s, self._order, way, peer, envelope))

    def _deliver(self) -> None:
        for _ in range(50):
            due: list[tuple[float, int, str, bytes, Envelope]] = []
            while self._flying and self._flying[0][0] <= self.now_s:
                due.append(heappop(self._flying))
            if not due:
                return
            for _, order, way, peer, envelope in due:
                self.mishaps["overtaken"] += order < self._newest.get((way, peer), 0)
                self._newest[way, peer] = max(order, self._newest.get((way, peer), 0))
                if way == "up":
                    self._heard.append(Received(peer, envelope, somebody_for(envelope.message)))
                    if len(self._heard) == self.turn_messages:
                        self._hear()
                elif peer == CLIENT:
                    received = self.client.receive(envelope, self.now_s)
                    if received.message is not None:
                        self.replies.append(received.message)
                else:
                    uuid = peer.split(b":")[0].decode()
                    if uuid in self.workers and self.workers[uuid].peer == peer:
                        self.workers[uuid].receive(envelope)

    def _hear(self, *ticks: Tick) -> None:
        """A turn of the coordinator, if it is up."""
        heard, self._heard = [*self._heard, *ticks], []
        if self.now_s >= self.down_until_s:
            self._turn(*heard)
            self._go_on_writing()
            self.check()

    def apply(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            match effect:
                case fx.Send():
                    check(effect.envelope)
                    self._fly("down", effect.peer, effect.envelope)
                case fx.PrepareRun() | fx.ReadLog() | fx.ReadBill() | fx.KeepQuota() | JournalEntry():
                    raise AssertionError("handled before")
                case fx.Exit():
                    self.exited = True
                case fx.PolicyEffect():
                    self._note_effect_of_policy(effect)
                case _:
                    self._note_effect(effect)

    def _note_effect(self, effect: fx.DiskEffect) -> None:
        self.noted(effect)
        match effect:
            case fx.DeleteChunks():
                self.disk -= set(effect.files)
            case RecordCheckpoint():
                self.records[effect.record.train_iter] = effect.record
            case RecordReward():
                self.rewards[effect.train_iter] = (effect.reward, effect.best)
            case Emit():
                self.reports.append(effect.report)
                if isinstance(effect.report, EvaluationReport):
                    self.evaluations_shown[effect.experiment] = effect.report.train_iter
            case WriteProgress():
                self.progress.append(effect.row)
                self.shown[effect.experiment] = effect.row.epoch
            case fx.MarkRecoverable() | fx.RewindCurves() | fx.FindRoom() | WriteTimers() | WriteLeague():
                pass
            case LogLine():
                self.said.append((effect.experiment, effect.text))
            case fx.CloseRun():
                self.closed.append(effect)

    def _note_effect_of_policy(self, noted: fx.PolicyEffect) -> None:
        effect = noted.effect
        self.of_policies.append(noted)
        if isinstance(effect, fx.DeleteChunks):
            self.disk -= {self.path(noted.policy, file) for file in effect.files}
            return
        if isinstance(effect, RecordCheckpoint):
            listed = [each.record.train_iter for each in self.checkpoints(noted.policy)]
            kept = {*(listed[-effect.keep :] if effect.keep else listed), *effect.in_use}
            self.kept[noted.policy] = {f"iteration_{train_iter}.pth.tar" for train_iter in kept}
        if noted.policy == self.policies[0] and not isinstance(effect, fx.CloseRun):
            self._note_effect(effect)

    # --- time ---

    def step(self) -> None:
        self.now_s += STEP_S
        self._deliver()
        for worker in list(self.workers.values()):
            worker.step()
        for envelope in self.client.due(self.now_s):
            self.to_coordinator(CLIENT, envelope)
        self._deliver()
        self._hear(self._tick_of_now())

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def until(self, condition: Callable[[], bool], seconds: float = 600.0) -> Self:
        """Step, at least once, until the condition holds."""
        end_s = self.now_s + seconds
        self.step()
        while not condition():
            assert self.now_s < end_s, f"{self.status().experiments}; said: {self.said[-10:]}"
            self.step()
        return self

    def until_env_step(self, env_step: int) -> Self:
        return self.until(lambda: bool(self.status().experiments) and self.experiment().env_step >= env_step)

    def logged(self, part: str) -> list[str]:
        """Lines of all logs that contain the part."""
        return [text for _, text in self.said if part in text]

    def tick(self) -> None:
        """A turn of the coordinator in which it hears nobody."""
        self.happens(self._tick_of_now())

    def _tick_of_now(self) -> Tick:
        return Tick(int(self.now_s / self.hour_s) if self.hour_s else 0)

    def happens(self, event: Event) -> None:
        """A turn of the coordinator in which this alone happens."""
        self._turn(event)

    def run(self, seconds: float = 600.0) -> None:
        """Until every experiment is over, or the time is up."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.step()
            experiments = list(self.coordinator.experiments)
            if experiments and all(experiment.over for experiment in experiments):
                return
        raise AssertionError(f"not over after {seconds} s: {self.experiment()}; said: {self.said[-10:]}")

    def status(self) -> Status:
        status = self.coordinator.client_requests.status(None, self.now_s)
        assert isinstance(status, Status)
        return status

    def experiment(self, position: int = 0) -> ExperimentStatus:
        return self.status().experiments[position]

    def unique_env_steps(self, experiment: str | None = None) -> int:
        """What env_step has to be: the steps of every different chunk that was acknowledged (for this experiment)."""
        return sum(
            self.written[chunk].env_steps
            for chunk in self.accepted
            if experiment is None or self.owner[chunk] == experiment
        )


def hash_role(role: str) -> int:
    return {"learner": 1, "collector": 2, "evaluator": 3, "reanalyzer": 4, "inference": 5}[role]


class DelayingWorld(World):
    """A world in which messages of the type `delayed` do not reach the coordinator while `held` is a list, which gets
    the messages."""

    delayed: ClassVar[type[AnyMessage]]
    held: list[tuple[bytes, Envelope]] | None = None

    def to_coordinator(self, peer: bytes, envelope: Envelope) -> None:
        if self.held is not None and isinstance(envelope.message, self.delayed):
            self.held.append((peer, envelope))
        else:
            super().to_coordinator(peer, envelope)
