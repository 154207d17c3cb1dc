"""The learner under a lease: batches in, policies out, checkpoints when asked. Workers and serial mode share it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import msgspec
import numpy as np

from remuda.config.current import Changes
from remuda.config.schema import ExperimentConfig
from remuda.learner.callbacks import LeaseCallbacks
from remuda.learner.checkpoint import Progress, load, restore
from remuda.learner.demonstrations import with_demonstrations
from remuda.learner.loop import LearnerLoop
from remuda.learner.outputs import LearnerOutputs
from remuda.learner.precision import update_threads
from remuda.learner.prefetch import Prefetch
from remuda.learner.publisher import taken_over
from remuda.learner.settings import Adjust, LearnerSettings
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import declaration
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.row_plan import RowPlan
from remuda.storage.fence import SupersededError
from remuda.wire.messages import (
    AnyMessage,
    Batches,
    CallCallbacks,
    ChangeSettings,
    CheckpointFile,
    CheckpointRecord,
    CheckpointSaved,
    LearnerReport,
    PolicyRef,
    Registered,
    SaveCheckpoint,
    StopTraining,
)
from remuda.worker.link import WorkLink

PUBLISH_DEADLINE_S = 30.0


class PolicyPublisher(Protocol):
    """Publishes policies; see Publisher. Serial mode hands policies to the collector."""

    @property
    def last(self) -> PolicyRef | None: ...
    @property
    def ready(self) -> bool: ...
    def offer(self, state: Mapping[str, np.ndarray], train_iter: int) -> None: ...
    def flush(self, deadline_s: float) -> bool: ...


class LearnerRole:
    """Learns for an experiment."""

    def __init__(
        self,
        config: ExperimentConfig,
        plan: RowPlan,
        algorithm: Algorithm,
        *,
        lease: int,
        epoch: int,
        link: WorkLink,
        timers: Timers,
        outputs: LearnerOutputs,
        prefetch: Prefetch,
        publisher: PolicyPublisher,
        callbacks: LeaseCallbacks,
        changes: Changes,
        train_iter: int,
        env_step: int = 0,
        alone: bool = False,
        learn: Callable[[Arrays], LearnResult] | None = None,
        adjust: Adjust | None = None,
    ) -> None:
        """Make the loop and its settings, after `train_iter` updates and `env_step` environment steps. `epoch`: of
        published policies; `changes`: see LearnerSettings; `alone`: serial mode; `learn` and `adjust` replace methods
        of the algorithm."""
        self.timers = timers
        self._lease, self._epoch, self._config, self._link = lease, epoch, config, link
        self._algorithm, self._outputs, self._prefetch = algorithm, outputs, prefetch
        self._publisher, self._callbacks = publisher, callbacks
        self._settings = LearnerSettings(config, adjust or (lambda at, values: algorithm.adjust(at)), changes)
        say = partial(outputs.logbook.say, "learner")
        self._loop = LearnerLoop(
            algorithm,
            prefetch,
            publish_interval_iters=plan.publish_interval_iters,
            report_interval_iters=config.log.interval_train_iters,
            report_interval_env_steps=config.log.progress_interval_env_steps,
            train_iter=train_iter,
            env_step=env_step,
            monitored=declaration(config).monitored,
            with_statistics=declaration(config).with_statistics,
            timers=timers,
            learn=with_demonstrations(config, algorithm, learn, epoch=epoch),
            update_threads=update_threads(config, algorithm, plan, alone=alone, say=say),
            follow=self._settings.follow,
        )
        self._on_policy = plan.on_policy
        self._strictly = config.buffer.max_policy_lag == 0
        self._world_size = config.learner.ranks
        self._training_text = "training" if self._world_size == 1 else f"training, world_size {self._world_size}"
        self._reported_train_iter = train_iter
        """Update of the newest message to the coordinator."""
        self._saved = 0
        """Number of the newest request for a checkpoint."""
        self._training, self._publish_due = True, False

    def handle(self, message: AnyMessage) -> None:
        """Take batches; save, call callbacks, change settings or stop on request."""
        match message:
            case Batches():
                self._prefetch.arrived(message)
            case SaveCheckpoint():
                if message.request > self._saved:  # after a break the coordinator repeats itself
                    self._saved = message.request
                    if message.reason == "preemption":
                        self._stop_training()
                    with self.timers("save"), self._link.during("saving", "saving a checkpoint"):
                        self._save(message)
            case CallCallbacks():
                with self.timers("callbacks"), self._link.during("saving", "calling callbacks"):
                    self._callbacks.call(message)
            case ChangeSettings():
                self._callbacks.host.change(message.changes)
                self._settings.change(message.changes)
            case Registered():
                for request in self._prefetch.repeat():
                    self._link.send(request)
            case StopTraining():
                self._stop_training()
            case _:
                pass

    def _stop_training(self) -> None:
        self._training = False
        if self._loop.has_metrics:
            self._report()
        self._link.activity("waiting", "waiting for the end")

    def step(self) -> bool:
        """Make one update, if a batch is available."""
        return self._training and self._train()

    def _train(self) -> bool:
        if self._on_policy and self._publish_due:  # the disk has refused for long
            self._publish()
            if self._publish_due:
                return False
        self._request_batches()
        step = self._loop.step()
        if not step.trained:
            self._ran_dry()
            if self._publish_due:
                self._publish()
            return False
        self._trained()
        self._publish_due |= step.publish_due
        if self._publish_due:
            self._publish()
        if step.report_due:
            with self.timers("report"):
                self._report()
        return True

    def _trained(self) -> None:
        """Follow up an update."""

    def _request_batches(self) -> None:
        while self._prefetch.wants_request:
            with self.timers("request batches"):
                self._reported_train_iter = self._loop.train_iter
                self._link.send(self._prefetch.request(self._loop.train_iter, self._loop.take_priorities()))

    def _publish(self) -> None:
        """Publish the policy. It stays due after too short a time since the last policy, or on a full disk."""
        if self._on_policy:
            with self.timers("publish policy"):
                self._publish_every_update()
        elif self._publisher.ready:
            with self.timers("hand policy over"):
                self._offer()

    def _publish_every_update(self) -> None:
        """Publish this policy, with which the next batch is collected. If collectors may lag behind, wait only for the
        policy before: this policy is written while the next batch is trained on.

        Meanwhile the learner is not `working`: it waits for the disk, and is not stuck."""
        self._link.activity("saving", "publishing the policy")
        if self._strictly:
            self._offer()
            self._request_batches()  # during writing: collectors get credit with the news of the policy
            self._publish_due = not self._publisher.flush(PUBLISH_DEADLINE_S)
        elif self._publisher.flush(PUBLISH_DEADLINE_S):
            self._offer()
        self._log_warnings()
        if not self._publish_due:
            self._link.activity("working", self._training_text)

    def _offer(self) -> None:
        self._publish_due = False
        self._log_warnings()
        self._loop.require_finite()
        self._publisher.offer(self._algorithm.published_state(), self._loop.train_iter)

    def _log_warnings(self) -> None:
        """Log warnings of the publisher."""

    def _ran_dry(self) -> None:
        """Report the progress of training once; the coordinator may wait for the report."""
        self._link.activity("waiting", "waiting for batches")
        if self._reported_train_iter != self._loop.train_iter:
            self._send_report({})

    def _report(self) -> None:
        metrics = self._loop.take_metrics()
        self._outputs.report(
            metrics,
            train_iter=self._loop.train_iter,
            env_step=self._env_step,
            world_size=self._world_size,
            settings=self._settings.values,
        )
        self._outputs.never_returned(self._loop.take_missing(), train_iter=self._loop.train_iter)
        self._send_report(metrics)

    def _send_report(self, metrics: dict[str, float]) -> None:
        self._reported_train_iter = self._loop.train_iter
        self._link.send(LearnerReport(self._lease, self._loop.train_iter, metrics))

    @property
    def _env_step(self) -> int:
        """Environment steps counted so far, for reports."""
        return self._prefetch.counters.env_step

    def _save(self, message: SaveCheckpoint) -> None:
        if message.weights is not None:
            self._begin_again(message.weights)
        self._loop.require_finite()
        counters = msgspec.structs.replace(message.counters, train_iter=self._loop.train_iter)
        exploration = declaration(self._config).exploration_at(counters.env_step)
        policy = self._publisher.last or PolicyRef(self._epoch)
        try:
            record = self._write(message, Progress(counters, policy, exploration, message.best_reward))
        except SupersededError as error:
            raise taken_over(error) from error
        self._link.send(CheckpointSaved(self._lease, message.request, message.reason, record))

    def _begin_again(self, weights: CheckpointFile) -> None:
        """Continue with weights and optimizer of a checkpoint. Raises CheckpointError."""
        path = self._outputs.run.ckpt / weights.file
        state = load(path, recorded=weights.sha256)
        restore(state, self._algorithm)
        self._outputs.logbook.say("learner", f"begins again with the weights of {path}")
        self._publish_due = not self._on_policy  # on-policy every update publishes

    def _write(self, message: SaveCheckpoint, progress: Progress) -> CheckpointRecord:
        return self._outputs.save(self._algorithm, progress, message.reason)
