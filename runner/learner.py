"""The learner of one policy in a serial run. It answers the messages that a learner process answers, at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import structs

from remuda.buffer.ring import ColumnRing
from remuda.coordinator.experiment.experiment import Experiment
from remuda.learner.callbacks import CallbackHost
from remuda.learner.checkpoint import Progress
from remuda.learner.loop import LearnerLoop
from remuda.learner.precision import update_threads
from remuda.learner.settings import LearnerSettings
from remuda.runner.components import EXPLORATION, Components
from remuda.runner.memory import Memory, Payloads
from remuda.training.resume_point import ResumePoint
from remuda.wire.messages import (
    AnyMessage,
    Assign,
    Batches,
    BatchRequest,
    CallbacksDecided,
    CallCallbacks,
    ChangeSettings,
    CheckpointSaved,
    ChunkUnreadable,
    Counters,
    LearnerReport,
    PolicyPublished,
    PolicyRef,
    SaveCheckpoint,
    StopTraining,
    WorkerMessage,
)

Send = Callable[[WorkerMessage], None]


class SerialLearner:
    """Learns, publishes to the collector, saves, and calls the user's callbacks."""

    def __init__(
        self, components: Components, experiment: Experiment, resumed: ResumePoint | None, send: Send, lease: int
    ) -> None:
        """`send` passes a message on to the experiment, under the number `lease`. Raises UserCodeError where a callback
        refuses the state that it had."""
        config, start = components.config, Counters() if resumed is None else resumed.counters
        generation = 0 if resumed is None else resumed.generation
        self._components, self._experiment = components, experiment
        self._send, self._lease = send, lease
        self._flow, replay = experiment.parts.flow, experiment.replay
        self._plan, self._replay = replay.plan, replay
        self.payloads = Payloads(components.folder.data)
        """The files of its experience."""
        self.memory = Memory(replay, ColumnRing(replay.plan.capacity), self.payloads)
        """Its experience."""
        self._settings = LearnerSettings(config, lambda config, values: components.algorithm.adjust(config))
        self._loop = LearnerLoop.of(
            config,
            replay.plan,
            components.algorithm,
            self.memory,
            train_iter=start.train_iter,
            env_step=start.env_step,
            timers=components.timers,
            update_threads=update_threads(
                config, components.algorithm, replay.plan, alone=True, say=partial(components.logbook.say, "learner")
            ),
            follow=self._settings.follow,
        )
        self._published = PolicyRef(generation, start.policy_version, start.train_iter)
        self._requests = 0
        self._is_waiting = False
        """A request for batches is not answered yet."""
        book = experiment.parts.callbacks.book
        book.active = bool(components.callbacks)  # a program may give some that the config does not name
        self._settings.change(book.changes)
        self._host = CallbackHost(
            components.callbacks,
            config,
            ckpt=components.folder.ckpt,
            policy=components.policy,
            states=book.states,
            changes=book.changes,
        )

    @property
    def train_iter(self) -> int:
        """Updates done."""
        return self._loop.train_iter

    def begin(self, assign: Assign) -> None:
        """Load the replay of a resumed run, and give the collector the first weights."""
        self.memory.load(self._components.folder.data, assign.replay, self._report_unreadable)
        self._components.acting.load_state(self._loop.published_state())
        self._send(PolicyPublished(self._lease, self._published))
        if self._host.names:
            self._components.logbook.say("learner", self._host.told)

    def handle(self, message: AnyMessage) -> None:
        """Do what the experiment asks for. Raises OSError, DivergedError, and whatever the algorithm raises."""
        match message:
            case Batches():
                self._learn(message)
            case SaveCheckpoint():
                self._save(message)
            case CallCallbacks():
                with self._components.timers("callbacks"):
                    answer = self._host.decide(message.event, message.env_step)
                self._send(CallbacksDecided(self._lease, message.number, answer))
            case ChangeSettings():
                self._host.change(message.changes)
                self._settings.change(message.changes)
            case StopTraining():
                if self._loop.has_metrics and not self._has_failed:
                    self._report()
            case _:
                pass

    def ask(self) -> bool:
        """Ask for batches if they would come at once; returns True if it has asked.

        At the end of a run it asks in any case: the request reports how far the learner has come.
        """
        plan, ends = self._plan, self._experiment.ending is not None
        if self._is_waiting or not (ends or self._flow.servable(plan.batches_per_request, plan.rows_per_update) > 0):
            return False
        self._requests += 1
        self._is_waiting = True
        priorities = self._loop.take_priorities()
        with self._components.timers("sample"):
            self._send(
                BatchRequest(
                    lease=self._lease,
                    request=self._requests,
                    oldest=self._requests,
                    batches=plan.batches_per_request,
                    batch_size=plan.rows_per_update,
                    train_iter=self._loop.train_iter,
                    loaded_row=self.memory.loaded_row,
                    priority_rows=priorities.rows,
                    priorities=priorities.errors,
                )
            )
        return True

    def give_priorities_back(self) -> None:
        """Let the replay index have the newest priorities, before it is saved."""
        priorities = self._loop.take_priorities()
        self._replay.index.update_priorities(priorities.rows, priorities.errors)

    @property
    def _has_failed(self) -> bool:
        end = self._experiment.ending
        return end is not None and end.state == "failed"

    def _learn(self, message: Batches) -> None:
        self._is_waiting = False
        self.memory.drew(message)
        while (step := self._loop.step()).trained:
            if step.publish_due:
                self._publish()
            if step.report_due:
                self._report()
        self.memory.release_used()
        self._send(LearnerReport(self._lease, self._loop.train_iter, {}))

    def _publish(self) -> None:
        """Give the collector the newest weights."""
        state = self._loop.published_state()
        former = self._published
        self._published = PolicyRef(former.epoch, former.version + 1, self._loop.train_iter)
        self._components.acting.load_state(state)
        self._send(PolicyPublished(self._lease, self._published))

    def _report(self) -> None:
        metrics, train_iter = self._loop.take_metrics(), self._loop.train_iter
        self._components.outputs.report(
            metrics, train_iter=train_iter, env_step=self._replay.ledger.env_step, settings=self._settings.values
        )
        self._send(LearnerReport(self._lease, train_iter, metrics))

    def _save(self, message: SaveCheckpoint) -> None:
        components = self._components
        self._loop.require_finite()
        counters = structs.replace(message.counters, train_iter=self._loop.train_iter)
        reached = Progress(counters, self._published, self._flow.exploration(), message.best_reward)
        rngs = {EXPLORATION: components.rng}
        record = components.outputs.save(components.algorithm, reached, message.reason, rngs=rngs)
        components.saved(record)
        self._send(CheckpointSaved(self._lease, message.request, message.reason, record))

    def _report_unreadable(self, file: str, reason: str) -> None:
        self._send(ChunkUnreadable(self._lease, file, reason))
