"""The coordinator's longest turn with thousands of collectors at work: assigned, credited, announcing, journaled.

The state machine, the codec and the journal on a disk are the real ones; there are no sockets, so that what is measured
is the processor time that one turn of the coordinator's loop takes. `--collectors 10000` for one size alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from uuid import UUID, uuid4

from remuda.benchmarks.figure import Figure, Goal, to_json
from remuda.buffer.chunk import chunk_name
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import Effect, PrepareRun, Send
from remuda.coordinator.events import Event, PreparedRun, Received, RunPrepared, Tick
from remuda.coordinator.experiment.collecting import GRANTS_PER_TURN
from remuda.coordinator.journaling import prepared_experiment
from remuda.coordinator.service import MESSAGES_PER_TURN, TICK_S
from remuda.coordinator.state import Coordinator
from remuda.training.journal import RunJournal
from remuda.training.replay.accounting import CHUNKS_AHEAD
from remuda.wire.channel import Channel
from remuda.wire.codec import encode
from remuda.wire.keys.authorized import Identity
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    AnyMessage,
    Assign,
    Beat,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    PolicyPublished,
    PolicyRef,
    Ready,
    Register,
    Role,
    Submit,
)
from remuda.worker.process import collecting_rarely

SIZES = (1_000, 10_000)
LONGEST_S = {1_000: 0.05, 10_000: 1.0}
"""What no turn is to exceed."""
ROUNDS = 3
"""Chunks that each collector announces."""
ROWS = 64
IDLE_TICKS = 20


def config_of(collectors: int) -> ExperimentConfig:
    """Nobody learns and nothing is due: what a turn costs is what the collectors cost."""
    return ExperimentConfig.model_validate(
        {
            "name": "busy",
            "env": {"id": "CartPole-v1"},
            "collector": {"count": collectors, "chunk_env_steps": ROWS},
            "evaluator": {"interval_env_steps": 1 << 50},
            "checkpoint": {"interval_env_steps": 1 << 50},
            "buffer": {"samples_per_insert": None},
            "log": {"progress_interval_env_steps": 1 << 50},
            "stop": {"max_env_steps": 1 << 52},
        }
    )


WORKER, OPERATOR = Identity("worker", "worker"), Identity("operator", "operator")


@dataclass
class _Worker:
    """A worker's side of the conversation."""

    role: Role
    uuid: str = field(default_factory=lambda: str(uuid4()))
    channel: Channel = field(default_factory=Channel)
    lease: int = 0
    epoch: int = 0
    chunks: int = 0

    @property
    def peer(self) -> bytes:
        return f"{self.uuid}:1:benchmark:1".encode()

    def says(self, message: AnyMessage, now_s: float) -> Received:
        return Received(self.peer, self.channel.post(message, now_s), WORKER)

    def registers(self, now_s: float) -> Received:
        message = Register(self.uuid, 1, self.role, "benchmark", 1, PROTOCOL_VERSION, "benchmark")
        return self.says(message, now_s)

    def announces(self, now_s: float) -> Received:
        chunk = ChunkId(self.uuid, 1, self.chunks)
        self.chunks += 1
        meta = ChunkMeta(chunk, chunk_name(chunk), ROWS, ROWS, 4_096, 1 << 31, PolicyRef(), 0.01, [20.0], [20])
        return self.says(ChunkReady(self.lease, meta), now_s)


class Herd:
    """Everybody around the coordinator, which takes its turns one after another; each is timed."""

    def __init__(self, collectors: int, journal: RunJournal) -> None:
        self.config = config_of(collectors)
        self.now_s = 1_000.0
        self.longest_s: dict[str, float] = {}
        self.coordinator = Coordinator(id=str(uuid4()), address="benchmark", pid=1, now_s=self.now_s)
        self.collectors = [_Worker("collector") for _ in range(collectors)]
        self.others = [_Worker("learner"), _Worker("evaluator")]
        self._workers = {worker.peer: worker for worker in self.collectors + self.others}
        self._journal = journal
        self._answers: list[Received] = []

    def turn(self, phase: str, events: Iterable[Event]) -> None:
        """As the service does it: handle, hand over to be journaled, send."""
        events = [*events]
        began_s = time.thread_time()
        effects = [effect for event in events for effect in self._handle(event)]
        entries = self.coordinator.journal_entries(self.now_s)
        for effect in effects:
            if isinstance(effect, Send):
                encode(effect.envelope)
        took_s = time.thread_time() - began_s
        self.longest_s[phase] = max(took_s, self.longest_s.get(phase, 0.0))
        for entry in entries:  # by a thread of the run's own
            self._journal.write(entry)
        self._deliver(effects)

    def tick(self, phase: str) -> None:
        """A turn in which time has passed, then those in which what was sent is acknowledged, and beats come in."""
        self.now_s += TICK_S
        self.turn(phase, [Tick()])
        self._acknowledge()

    def say(self, phase: str, messages: Iterator[Received]) -> None:
        """So many messages a turn as the service takes, with a tick now and then."""
        while batch := list(islice(messages, MESSAGES_PER_TURN)):
            self.turn(phase, batch)
            self.tick(phase)

    def beat(self) -> None:
        """Everybody does; an announcement does not stand for it here."""
        for worker in self._workers.values():
            self._answers.append(worker.says(Beat(worker.chunks, "collecting", lease=worker.lease), self.now_s))
        self._acknowledge()

    def _handle(self, event: Event) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self.coordinator.handle(event, self.now_s):
            if isinstance(effect, PrepareRun):
                prepared = PreparedRun(effect, self.config, effect.identity("/runs/busy", "/runs/busy/policy/p"))
                effects += self._handle(RunPrepared(effect, prepared_experiment(prepared, self.now_s)))
            else:
                effects.append(effect)
        return effects

    def _deliver(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            worker = self._workers.get(effect.peer) if isinstance(effect, Send) else None
            if worker is None or not isinstance(effect, Send):
                continue
            received = worker.channel.take(effect.envelope, self.now_s)
            self._answers += [Received(worker.peer, answer, WORKER) for answer in received.answers]
            if isinstance(received.message, Assign):
                worker.lease, worker.epoch = received.message.lease, received.message.epoch

    def _acknowledge(self) -> None:
        while self._answers:
            batch, self._answers = self._answers[:MESSAGES_PER_TURN], self._answers[MESSAGES_PER_TURN:]
            self.turn("beats and acknowledgements", batch)


def longest_turns(collectors: int, folder: Path) -> dict[str, float]:
    """Of every phase of a run with so many collectors, in seconds."""
    with collecting_rarely(), closing(RunJournal(folder / "journal.sqlite")) as journal:
        herd = Herd(collectors, journal)
        _play(herd)
        return herd.longest_s


def _play(herd: Herd) -> None:
    herd.say("register", (worker.registers(herd.now_s) for worker in herd.collectors + herd.others))
    herd.beat()
    submit = Submit("busy", herd.config.model_dump_json(), "busy", experiment=str(UUID(int=1, version=4)))
    client = Channel()
    herd.turn("assign", [Received(b"client:benchmark", client.post(submit, herd.now_s), OPERATOR)])
    while not all(worker.lease for worker in herd.collectors + herd.others):
        herd.tick("assign")
    herd.beat()
    herd.say("collector ready", (worker.says(Ready(worker.lease), herd.now_s) for worker in herd.collectors))
    learner = herd.others[0]
    published = PolicyPublished(learner.lease, PolicyRef(learner.epoch, 0, 0))
    herd.say("policy published", iter([learner.says(published, herd.now_s)]))
    herd.turn("learner ready, all credited", [learner.says(Ready(learner.lease), herd.now_s)])
    for _ in range(1 + CHUNKS_AHEAD * len(herd.collectors) // GRANTS_PER_TURN):
        herd.tick("learner ready, all credited")
    for _ in range(ROUNDS):
        herd.beat()
        herd.say("chunks", (worker.announces(herd.now_s) for worker in herd.collectors))
    herd.beat()
    for _ in range(IDLE_TICKS):
        herd.tick("tick")


def figures(peers: bool) -> list[Figure]:
    """Of both sizes; none of the systems compared with says what its longest turn is."""
    return [] if peers else [figure for size in SIZES for figure in figures_of(size)]


def figures_of(collectors: int) -> list[Figure]:
    """The longest turn of each phase beside what none is to exceed."""
    with tempfile.TemporaryDirectory() as folder:
        longest_s = longest_turns(collectors, Path(folder))
    most_s = LONGEST_S.get(collectors, 1.0)
    goal = Goal.parse("<= 1")
    return [
        Figure(
            f"{collectors} busy collectors: {phase}, longest turn",
            "s",
            took_s,
            most_s,
            "at most",
            took_s / most_s,
            "<= 1",
            goal.met(took_s / most_s),
            1,
        )
        for phase, took_s in longest_s.items()
    ]


def main() -> None:
    """Measure one size, or both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collectors", type=int, help=f"default: {SIZES}")
    parser.add_argument("--peers", action="store_true", help="nothing to compare with")
    options = parser.parse_args()
    if options.peers:
        return
    for size in SIZES if options.collectors is None else (options.collectors,):
        for figure in figures_of(size):
            print(to_json(figure), flush=True)


if __name__ == "__main__":
    main()
