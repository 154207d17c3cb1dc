"""The link between the experiment of a serial run and its workers: messages are passed on in memory, at once.

Everything that the experiment asks for is done in a fixed order, so equal seeds give equal numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
)
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.experiment.team import Run
from remuda.coordinator.leases import Sender
from remuda.logbook.episode_reports import WorkerReport
from remuda.logbook.reports import EventReport
from remuda.runner.components import SERIAL_WORKER, Components, RunHooks
from remuda.runner.evaluator import SerialEvaluator
from remuda.runner.learner import SerialLearner
from remuda.training.effects import (
    Emit,
    Happened,
    LogLine,
    RecordCheckpoint,
    RecordEffect,
    RecordReward,
)
from remuda.training.journal import together
from remuda.training.journal_entry import Recovered
from remuda.training.recording import record as record_effect
from remuda.training.resume_point import ResumePoint
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
    Ready,
    Role,
    SaveCheckpoint,
    WorkerMessage,
)


class ChunkRefusedError(Exception):
    """A chunk cannot be counted; the message says which setting to change."""


class ExperimentBrokenError(Exception):
    """The experiment's rules have failed; the message has the traceback."""


@dataclass(frozen=True)
class Member:
    """One policy of the run: what is known of it, and where it is written."""

    components: Components
    experiment: Experiment
    resumed: ResumePoint | None
    recovered: Recovered | None = None
    """The replay of a resumed run."""


@dataclass
class _Mail:
    """What the experiment asks for and is not done yet. Each kind waits for all kinds above it."""

    batches: deque[SendToLease] = field(default_factory=deque[SendToLease])
    """All policies learn before any of them is saved."""
    calls: deque[SendToLease] = field(default_factory=deque[SendToLease])
    """For callbacks. What they decide about an event is committed together with the event."""
    saves: deque[SendToLease] = field(default_factory=deque[SendToLease])
    """Checkpoints of all policies are committed together."""
    steps: deque[Step] = field(default_factory=deque[Step])
    """Everything else. The journal is written before it."""
    evaluations: deque[Evaluate] = field(default_factory=deque[Evaluate])
    uncommitted: bool = False
    """Some of the steps must be in the journal before they are carried out."""

    def add(self, steps: Iterable[Step]) -> None:
        """Sort the steps."""
        for step in steps:
            match effect := _effect(step):
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


def _effect(step: Step) -> Step:
    """What one of several policies asks for, or the only one."""
    return step.effect if isinstance(step, PolicyEffect) else step


class SerialLink:
    """Carries messages between the experiment and the learners and the evaluator, and writes what is recorded.

    Leases have fixed numbers: the learners come first, in the order of their policies, then the collector, then the
    evaluator.
    """

    def __init__(
        self,
        run: Run,
        members: Sequence[Member],
        hooks: RunHooks,
        *,
        stop_collecting: Callable[[], None],
        look_around: Callable[[float], None],
        report_times: Callable[[], None],
    ) -> None:
        """`members` are those of the `run`, in its order. `stop_collecting` is called when the collector is to let go,
        `look_around` with the time while an evaluation is played, and `report_times` before the last lines of the logs.
        Raises UserCodeError where a callback refuses the state that it had."""
        self._run, self._members, self._clock = run, tuple(members), hooks.clock
        self._stop_collecting, self._report_times = stop_collecting, report_times
        self._timers = members[0].components.timers
        self.generation = max((each.resumed.generation for each in members if each.resumed is not None), default=0)
        """Which incarnation of the run this is."""
        self._sender = Sender(SERIAL_WORKER, self.generation)
        self._mail = _Mail()
        self.learners = [
            SerialLearner(each.components, each.experiment, each.resumed, self.send, lease)
            for lease, each in enumerate(self._members, 1)
        ]
        """Of each policy."""
        self._policies = {each.components.policy: index for index, each in enumerate(self._members)}
        self.collecting_lease, self._evaluating_lease = len(members) + 1, len(members) + 2
        self.evaluator = SerialEvaluator(
            [each.components for each in members], hooks.clock, self.send, look_around, self._evaluating_lease
        )
        self._evaluates = self._is_reported = False
        self.results: dict[str, Mapping[str, float]] = {}
        """How each policy ended, in numbers, by its name."""

    def lease_workers(self) -> None:
        """Lease the workers. Nothing is logged of workers that stay to the end."""
        self._mail.add(self._run.leftover_files())
        roles: list[tuple[int, Role]] = [(lease, "learner") for lease in range(1, len(self._members) + 1)]
        roles.append((self.collecting_lease, "collector"))
        if self._members[0].components.config.evaluator.episodes:
            roles.append((self._evaluating_lease, "evaluator"))
        self._assigned: dict[int, Assign] = {}
        for lease, role in roles:
            holder = LeaseHolder(lease, SERIAL_WORKER, self.generation, role, "", 0)
            for step in self._run.assign(holder, self._clock()):
                if isinstance(step, SendToLease) and isinstance(step.message, Assign):
                    self._assigned[lease] = step.message

    def begin(self) -> None:
        """Have the leased workers ready, and do what the experiment asks for then."""
        for lease, (each, learner) in enumerate(zip(self._members, self.learners, strict=True), 1):
            learner.begin(self._assigned[lease])
            if each.recovered is not None:
                text = f"replay is back: {each.experiment.replay.index.rows} rows"
                each.components.logbook.say("commander", text)
        for lease in self._assigned:
            self.send(Ready(lease))

    def send(self, message: WorkerMessage) -> None:
        """Pass on what a worker has to say. What the experiment answers is done by `pump`."""
        self.add(self._run.receive(message, self._sender, self._clock()))

    def add(self, steps: Iterable[Step]) -> None:
        """Note what the experiment asks for; `pump` does it."""
        self._mail.add(steps)

    def abandon(self, *, without_learners: bool) -> None:
        """Give up what is under way, and what is not committed: the run has failed. `without_learners`: what they have
        cannot be saved."""
        steps, self._mail = self._mail.steps, _Mail()
        self._evaluates = False
        self._mail.steps += (step for step in steps if isinstance(_effect(step), DeleteChunks | LogLine | Emit))
        if without_learners:
            for lease in range(1, len(self._members) + 1):
                self.add(self._run.worker_gone(lease, "it has failed", self._clock(), handed_in=True))

    def pump(self) -> None:
        """Do all that the experiment asks for, and what follows from that. Raises OSError, JournalError, and what
        learning and playing raise."""
        mail = self._mail
        while True:
            if mail.batches or mail.calls:
                step = (mail.batches or mail.calls).popleft()
                self.learners[step.lease - 1].handle(step.message)
            elif mail.saves:
                self._save()
            elif mail.uncommitted:
                self._commit()
            elif mail.steps:
                if self._run.over and not self._is_reported:
                    self._is_reported = True
                    self._report_times()
                self._carry_out(mail.steps.popleft())
            elif mail.evaluations and not self._evaluates:
                self._evaluate(mail.evaluations.popleft())
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
                event = self._members[0].experiment.event(step, self._clock())
                self._carry_out_of(0, Emit(step.experiment, event))
            case Release():
                pass
            case _:
                self._carry_out_of(0, step)

    def _carry_out_of(self, index: int, effect: Step) -> None:
        """Carry out what concerns the files of the policy with this index. Nothing is logged of single workers."""
        components = self._members[index].components
        match effect:
            case DeleteChunks():
                self.learners[index].payloads.retire(effect.files)
            case Emit(report=WorkerReport()) | Emit(report=EventReport(worker=str())) | RewindCurves():
                pass
            case CloseRun():
                self.results.setdefault(components.policy, effect.results)
            case _:
                assert isinstance(effect, RecordEffect), effect
                record_effect(effect, components.folder, components.logbook, components.checkpoints)

    def _deliver(self, step: SendToLease) -> None:
        """Pass a message on to the worker with this lease."""
        lease, message = step.lease, step.message
        if lease == self.collecting_lease:
            if isinstance(message, Drain):
                self._stop_collecting()
        elif lease == self._evaluating_lease:
            if isinstance(message, Drain):
                self.evaluator.is_drained = True
                self._mail.evaluations.clear()
                if not self._evaluates:
                    self.send(Drained(lease))
        elif isinstance(message, Drain):
            self.send(Drained(lease))
        else:
            self.learners[lease - 1].handle(message)

    def _evaluate(self, message: Evaluate) -> None:
        """Let the evaluator play. Meanwhile all else goes on that the experiment asks for, but no other evaluation."""
        learned = self.learners[message.policy_index].train_iter
        assert message.train_iter == learned, "nothing has changed the weights since they were saved or loaded"
        self._evaluates = True
        try:
            self.add(
                self._run.tick(self._clock())
            )  # so that those during the evaluation, by the clock, find nothing to do
            self.pump()
            self.evaluator.evaluate(message)
        finally:
            self._evaluates = False
        if self.evaluator.is_drained:
            self.send(Drained(self._evaluating_lease))

    def _save(self) -> None:
        """Save checkpoints of all policies that have learned: of several policies all continue from the same moment."""
        with self._timers("save"):
            asked = {step.lease for step in self._mail.saves}
            for lease, each in enumerate(self._members, 1):
                if lease not in asked:
                    self._mail.add(each.experiment.save_now(self._clock()))
            while self._mail.saves:
                step = self._mail.saves.popleft()
                self.learners[step.lease - 1].handle(step.message)

    def _commit(self) -> None:
        """Commit the state of all policies, so that a killed run continues here."""
        self._mail.uncommitted = False
        now_s, newest_lease = self._clock(), self._evaluating_lease
        with self._timers("save"), together([each.components.journal for each in self._members]):
            for each, learner in zip(self._members, self.learners, strict=True):
                learner.give_priorities_back()
                written = learner.payloads.written()
                entry = each.experiment.parts.entry(newest_lease, now_s, with_priorities=True)
                live = (chunk for chunk in entry.added if chunk.meta.file in written)
                added = tuple(IndexedChunk(chunk.first_row, written[chunk.meta.file]) for chunk in live)
                each.components.journal.write(replace(entry, added=added))
        for learner in self.learners:
            learner.payloads.sweep()
