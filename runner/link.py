"""The link between the experiment of a serial run and its workers, in memory.

All requests of the experiment are carried out in a fixed order, so equal seeds give equal numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from remuda.collector.opponents import OpponentLanes
from remuda.coordinator.effects import (
    Broken,
    CloseRun,
    DeleteChunks,
    PolicyEffect,
    Release,
    Reply,
    RewindCurves,
    SendToLease,
    Step,
    effect_of,
)
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.leases import Sender
from remuda.evaluator.player import EpisodePlayer
from remuda.evaluator.service import CheckpointPolicies, EvaluatorWork
from remuda.logbook.episode_reports import WorkerReport
from remuda.logbook.reports import EventReport
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.runner.building import Member
from remuda.runner.learner import SerialLearner
from remuda.training.effects import (
    Emit,
    Happened,
    LogLine,
    RecordCheckpoint,
    RecordEffect,
    RecordReward,
)
from remuda.training.effects import record as record_effect
from remuda.training.journal import together
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import (
    Assign,
    Batches,
    CallCallbacks,
    ChangeSettings,
    ChunkAccepted,
    Drain,
    Drained,
    Evaluate,
    IndexedChunk,
    Opponents,
    Phase,
    Ready,
    Role,
    SaveCheckpoint,
    WorkerMessage,
)
from remuda.worker.serve import AskedToEndError
from remuda.worker.stores.ports import FileCheckpoints

SERIAL_WORKER = "00000000-0000-4000-8000-000000000000"
"""UUID of the only worker and of the experiment of a serial run."""
LONG_S = 30.0
"""Seconds between log lines about a long evaluation."""


class ChunkRefusedError(Exception):
    """A chunk cannot be counted; the message names the setting to change."""


class ExperimentBrokenError(Exception):
    """The experiment's rules have failed; the message has the traceback."""


@dataclass
class _Requests:
    """Open requests of the experiment. Each kind waits for all kinds above."""

    batches: deque[SendToLease] = field(default_factory=deque[SendToLease])
    """All policies learn before any is saved."""
    calls: deque[SendToLease] = field(default_factory=deque[SendToLease])
    """For callbacks. Their decisions are committed together with the event."""
    saves: deque[SendToLease] = field(default_factory=deque[SendToLease])
    """Checkpoints of all policies are committed together."""
    steps: deque[Step] = field(default_factory=deque[Step])
    """All other steps. The journal is written first."""
    evaluations: deque[Evaluate] = field(default_factory=deque[Evaluate])
    uncommitted: bool = False
    """Some steps must be journaled before they are carried out."""

    def add(self, steps: Iterable[Step]) -> None:
        """Sort the steps."""
        for step in steps:
            match effect := effect_of(step):
                case SendToLease(message=Batches()):
                    self.batches.append(effect)
                case SendToLease(message=CallCallbacks() | ChangeSettings()):
                    self.calls.append(effect)
                case SendToLease(message=SaveCheckpoint()):
                    self.saves.append(effect)
                case SendToLease(message=Evaluate() as message):
                    self.evaluations.append(message)
                case _:
                    self.uncommitted |= isinstance(effect, RecordCheckpoint | RecordReward)
                    self.steps.append(step)


class MemoryLink:
    """The link of a worker in this process."""

    def __init__(self, send: Callable[[WorkerMessage], None]) -> None:
        self._send = send
        self.working: str | None = None
        """Present activity, for people; None while waiting."""

    def send(self, message: WorkerMessage) -> None:
        self._send(message)

    def drain_arrived(self, lease: int) -> bool:
        return False

    def progress(self, amount: int) -> None:
        pass

    def activity(self, phase: Phase, text: str, *, lacks_bytes: int = 0) -> None:
        self.working = text if phase == "working" else None

    @contextmanager
    def during(self, phase: Phase, text: str) -> Generator[None]:
        before = self.working
        self.activity(phase, text)
        try:
            yield
        finally:
            self.working = before


class MemoryPolicies(CheckpointPolicies):
    """Weights in memory for evaluations, equal to the newest checkpoints."""

    def __init__(self, members: Sequence[Member], train_iters: Callable[[], Sequence[int]]) -> None:
        """`train_iters` returns the updates of each policy."""
        super().__init__([own.built.config for own in members], [FileCheckpoints(own.folder.ckpt) for own in members])
        self._built, self._train_iters = [own.built for own in members], train_iters

    def key(self, message: Evaluate) -> object:
        """Return the updates of all policies."""
        return self._train_iters()

    def load(self, paths: Sequence[Path]) -> Sequence[Policy]:
        """Return the policy of each checkpoint."""
        for own in self._built:
            own.evaluated.load_state(own.algorithm.published_state())
        return [own.evaluated for own in self._built]


class SerialLink:
    """Carries messages between the experiment and the learners and the evaluator, and writes records.

    Leases have fixed numbers: first the learners, in the order of policies, then the collector, then the evaluator.
    """

    def __init__(
        self,
        run: Experiment,
        members: Sequence[Member],
        player: EpisodePlayer,
        opponents: OpponentLanes | None,
        clock: Callable[[], float],
        timers: Timers,
        exploration: np.random.Generator,
        *,
        stop_collecting: Callable[[], None],
        do_due_work: Callable[[float], None],
        before_commit: Callable[[], None],
        report_times: Callable[[], None],
    ) -> None:
        """`members` are in the order of the `run`. `stop_collecting` is called at the end of the collector's lease,
        `do_due_work` with the time during evaluations, `before_commit` before the journal is written, and
        `report_times` before the last log lines. Raises UserCodeError if a callback does not accept its state."""
        self._run, self._members, self._clock = run, tuple(members), clock
        self._stop_collecting, self._report_times = stop_collecting, report_times
        self._before_commit = before_commit
        self._timers, self._opponents = timers, opponents
        self.generation = max((each.resumed.generation for each in members if each.resumed is not None), default=0)
        """Incarnation of the run."""
        self._sender = Sender(SERIAL_WORKER, self.generation)
        self._requests = _Requests()
        self.learners = [
            SerialLearner(each, timers, exploration, MemoryLink(self.send), lease)
            for lease, each in enumerate(self._members, 1)
        ]
        """Learner of each policy."""
        self._policies = {each.built.name: index for index, each in enumerate(self._members)}
        self.collecting_lease, self._evaluating_lease = len(members) + 1, len(members) + 2
        self._do_due_work, self._started_s, self._logged_s = do_due_work, 0.0, 0.0
        self._evaluator_link = MemoryLink(self.send)
        self._evaluator = EvaluatorWork(
            self._evaluating_lease,
            self._evaluator_link,
            player,
            MemoryPolicies(members, lambda: [learner.train_iter for learner in self.learners]),
            {own.built.name: own.logbook for own in members},
            ending=self._is_evaluation_over,
            logs_results=False,
            timers=self._timers,
            clock=clock,
        )
        self._evaluates = self._is_reported = False
        self.results: dict[str, Mapping[str, float]] = {}
        """Final results of each policy, by name."""

    @property
    def evaluation(self) -> str | None:
        """The evaluation or film under way, for people."""
        return self._evaluator_link.working

    def lease_workers(self) -> None:
        """Lease the workers, without log lines, since they stay to the end."""
        self._requests.add(self._run.continued())
        roles: list[tuple[int, Role]] = [(lease, "learner") for lease in range(1, len(self._members) + 1)]
        roles.append((self.collecting_lease, "collector"))
        if self._members[0].built.config.evaluator.episodes:
            roles.append((self._evaluating_lease, "evaluator"))
        self._assigned: dict[int, Assign] = {}
        for lease, role in roles:
            holder = LeaseHolder(lease, SERIAL_WORKER, self.generation, role, "", 0)
            for step in self._run.assign(holder, self._clock()):
                if isinstance(step, SendToLease) and isinstance(step.message, Assign):
                    self._assigned[lease] = step.message

    def begin(self) -> None:
        """Make the leased workers ready."""
        for lease, (each, learner) in enumerate(zip(self._members, self.learners, strict=True), 1):
            learner.begin(self._assigned[lease])
            if each.recovered is not None:
                text = f"replay is back: {each.training.replay.index.rows} rows"
                each.logbook.say("commander", text)
        for lease in self._assigned:
            self.send(Ready(lease))

    def send(self, message: WorkerMessage) -> None:
        """Deliver a worker's message. `pump` carries out the answers."""
        self.add(self._run.receive(message, self._sender, self._clock()))

    def add(self, steps: Iterable[Step]) -> None:
        """Queue requests of the experiment for `pump`."""
        self._requests.add(steps)

    def abandon(self, *, without_learners: bool) -> None:
        """Drop unfinished and uncommitted work of a failed run. `without_learners`: the learners cannot save."""
        steps, self._requests = self._requests.steps, _Requests()
        self._evaluates = False
        self._requests.steps += (step for step in steps if isinstance(effect_of(step), DeleteChunks | LogLine | Emit))
        if without_learners:
            for lease in range(1, len(self._members) + 1):
                self.add(self._run.worker_gone(lease, "it has failed", self._clock(), handed_in=True))

    def pump(self) -> None:
        """Carry out all requests of the experiment, and their consequences. Raises OSError, JournalError, and errors of
        learning and playing."""
        requests = self._requests
        while True:
            if requests.batches or requests.calls:
                step = (requests.batches or requests.calls).popleft()
                self.learners[step.lease - 1].handle(step.message)
            elif requests.saves:
                self._save()
            elif requests.uncommitted:
                self._commit()
            elif requests.steps:
                if self._run.over and not self._is_reported:
                    self._is_reported = True
                    self._report_times()
                self._carry_out(requests.steps.popleft())
            elif requests.evaluations and not self._evaluates:
                self._evaluate(requests.evaluations.popleft())
            else:
                return

    def _carry_out(self, step: Step) -> None:
        match step:
            case Reply():
                if isinstance(step.message, ChunkAccepted) and step.message.rejected is not None:
                    raise ChunkRefusedError(step.message.rejected)
            case SendToLease():
                self._deliver(step)
            case PolicyEffect():
                self._carry_out_of(self._policies[step.policy], step.effect)
            case Broken():
                raise ExperimentBrokenError(f"{step.reason}\n{step.traceback}")
            case Happened():
                for event in self._run.events(step, self._clock()):
                    self._carry_out(event)
            case Release():
                pass
            case _:
                for index in range(len(self._members)):
                    self._carry_out_of(index, step)

    def _carry_out_of(self, index: int, effect: Step) -> None:
        """Carry out an effect on the files of the policy with this index. Events of single workers are not logged."""
        member = self._members[index]
        match effect:
            case DeleteChunks():
                self.learners[index].memory.payloads.retire(effect.files)
            case Emit(report=WorkerReport()) | Emit(report=EventReport(worker=str())) | RewindCurves():
                pass
            case CloseRun():
                self.results.setdefault(member.built.name, effect.results)
            case _:
                assert isinstance(effect, RecordEffect), effect
                record_effect(effect, member.folder, member.logbook, member.checkpoints)

    def _deliver(self, step: SendToLease) -> None:
        """Pass a message on to the worker with this lease."""
        lease, message = step.lease, step.message
        if lease == self.collecting_lease:
            if isinstance(message, Drain):
                self._stop_collecting()
            elif isinstance(message, Opponents) and self._opponents is not None:
                fetches = [FileCheckpoints(own.folder.ckpt).fetch for own in self._members]
                say = partial(self._members[0].logbook.say, "collector")
                self._opponents.follow(message, fetches, say=say, warn=partial(say, level="warning"))
        elif lease == self._evaluating_lease:
            if isinstance(message, Drain):
                self._evaluator.drain()
                self._requests.evaluations.clear()
                if not self._evaluates:
                    self.send(Drained(lease))
        elif isinstance(message, Drain):
            self.send(Drained(lease))
        else:
            self.learners[lease - 1].handle(message)

    def _evaluate(self, message: Evaluate) -> None:
        """Play an evaluation. All other requests are carried out meanwhile, except evaluations."""
        learned = self.learners[message.policy_index].train_iter
        assert message.train_iter == learned, "nothing has changed the weights since they were saved or loaded"
        self._evaluates = True
        try:
            self.add(
                self._run.tick(self._clock())
            )  # so that those during the evaluation, by the clock, find nothing to do
            self.pump()
            self._started_s = self._logged_s = self._clock()
            with suppress(AskedToEndError):
                self._evaluator.handle(message)
        finally:
            self._evaluates = False
        if self._evaluator.drained:
            self.send(Drained(self._evaluating_lease))

    def _is_evaluation_over(self) -> bool:
        """Carry out other requests during an evaluation; return True to stop the evaluation."""
        now_s = self._clock()
        self._do_due_work(now_s)
        if now_s - self._logged_s >= LONG_S and not self._evaluator.drained:
            self._logged_s = now_s
            text = f"{self.evaluation} after {now_s - self._started_s:.0f} s"
            self._members[0].logbook.say("commander", text)
        return self._evaluator.drained

    def _save(self) -> None:
        """Save every trained policy. A resumed run then continues all policies from the same step."""
        asked = {step.lease for step in self._requests.saves}
        for lease, each in enumerate(self._members, 1):
            if lease not in asked:
                self._requests.add(each.training.save_now(self._clock()))
        while self._requests.saves:
            step = self._requests.saves.popleft()
            self.learners[step.lease - 1].handle(step.message)

    def _commit(self) -> None:
        """Commit the state of all policies: a killed run continues here."""
        self._requests.uncommitted = False
        self._before_commit()
        now_s, newest_lease = self._clock(), self._evaluating_lease
        with self._timers("save"), together([each.journal for each in self._members]):
            for learner in self.learners:
                learner.give_priorities_back()
            entries = self._run.entries(newest_lease, now_s)
            for each, learner, entry in zip(self._members, self.learners, entries, strict=True):
                written = learner.memory.payloads.written()
                live = (chunk for chunk in entry.added if chunk.meta.file in written)
                added = tuple(IndexedChunk(chunk.first_row, written[chunk.meta.file]) for chunk in live)
                each.journal.write(replace(entry, added=added))
        for learner in self.learners:
            learner.memory.payloads.sweep()
