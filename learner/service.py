"""A learner's lease: batches in, policies out, checkpoints when asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remuda.buffer.chunk import Columns, read_chunk
from remuda.buffer.ring import ColumnRing
from remuda.config.schema import ExperimentConfig
from remuda.environments.make import make_single
from remuda.learner import checkpoint
from remuda.learner.loop import LearnerLoop
from remuda.learner.prefetch import Prefetch
from remuda.learner.publisher import Publisher
from remuda.logbook.book import learner_logbook
from remuda.logbook.reports import LearnReport
from remuda.policy import model_artifact
from remuda.policy.algorithms import make_algorithm
from remuda.policy.schedules import exploration
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.atomic import sweep_temporaries
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import (
    AnyMessage,
    Assign,
    Batches,
    CheckpointReason,
    CheckpointSaved,
    Counters,
    IndexedChunk,
    LearnerReport,
    PolicyPublished,
    PolicyRef,
    SaveCheckpoint,
    StopTraining,
)
from remuda.worker.identity import WorkerIdentity
from remuda.worker.link import Link

PUBLISH_DEADLINE_S = 30.0
EXPORTED: Sequence[CheckpointReason] = ("initial", "interval", "final")
"""Checkpoints after which model/ is written anew; evaluations come too often for it."""


class LearnerWork:
    """Learns for one experiment. Training runs here, publishing in a thread, the network in the link's."""

    def __init__(self, assign: Assign, identity: WorkerIdentity, link: Link) -> None:
        config = ExperimentConfig.model_validate_json(assign.config_json)
        self._config = config
        self._assign = assign
        self._link = link
        self._folder = RunFolder(Path(assign.run_dir))
        self._log = learner_logbook(self._folder)
        env = make_single(config.env, source_dir=config.source_dir)
        try:
            observation, action = ObservationSpec.of(env.observation_space), ActionSpec.of(env.action_space)
        finally:
            env.close()
        self._algorithm = make_algorithm(config, observation, action, config.seed)
        self._say(f"[RANK0]: {self._algorithm.network!r}")
        train_iter = self._restore()
        self._prefetch = Prefetch(
            lease=assign.lease,
            batches=config.learner.prefetch_batches,
            batch_size=config.learner.batch_size,
            ring=ColumnRing(config.buffer.capacity),
            read=self._read,
        )
        self._prefetch.load(assign.replay)
        self._loop = LearnerLoop(
            self._algorithm,
            self._prefetch,
            publish_interval_iters=config.learner.publish_interval_iters,
            report_interval_iters=config.log.interval_train_iters,
            train_iter=train_iter,
        )
        self._told_train_iter = train_iter
        self._progress_base = link.progressed - train_iter
        self._training = True
        self._draining = False
        sweep_temporaries(self._folder.policy, older_than_s=60.0)
        self._publisher = Publisher(
            Path(assign.policy_file), assign.epoch, published=self._published, say=self._warn_from_thread
        )
        self._publisher.offer(self._algorithm.acting_state(), train_iter)
        self._publisher.flush(PUBLISH_DEADLINE_S)
        self._say_published()

    def handle(self, message: AnyMessage) -> None:
        """Batches, and requests to save or to stop."""
        match message:
            case Batches():
                self._prefetch.arrived(message)
            case SaveCheckpoint():
                self._save(message)
            case StopTraining():
                self._training = False
                self._link.activity("waiting for the end")
            case _:
                pass

    def step(self) -> bool:
        """One update, if there is a batch for it."""
        if not self._training:
            return False
        while self._prefetch.wants_request:
            self._told_train_iter = self._loop.train_iter
            self._link.send(self._prefetch.request(self._loop.train_iter, self._loop.take_priorities()))
        step = self._loop.step()
        if not step.trained:
            self._ran_dry()
            return False
        self._link.progress(self._progress_base + self._loop.train_iter)
        if step.publish_due:
            self._publisher.offer(self._algorithm.acting_state(), self._loop.train_iter)
        if step.report_due:
            self._report()
        return True

    def drain(self) -> None:
        """Publish what was learned last and let go."""
        self._training = False
        self._draining = True
        last = self._publisher.last
        if last is None or last.train_iter != self._loop.train_iter:
            self._publisher.offer(self._algorithm.acting_state(), self._loop.train_iter)
        self._publisher.flush(PUBLISH_DEADLINE_S)
        self._say_published()

    @property
    def drained(self) -> bool:
        """Nothing is left to be saved or published."""
        return self._draining

    def close(self) -> None:
        """End the publishing thread and close the log."""
        self._publisher.close()
        self._log.close()

    def _restore(self) -> int:
        """Go on from the checkpoint that the lease names; returns its train_iter, 0 for a fresh start."""
        if self._assign.checkpoint is None:
            return 0
        path = Path(self._assign.checkpoint)
        state = checkpoint.load(path)
        warnings = checkpoint.restore(state, self._algorithm)
        checkpoint.restore_rngs(state, {})
        self._say(f"loaded checkpoint {path}")
        for warning in warnings:
            self._log.say("learner", warning, level="warning")
        return state.progress.counters.train_iter

    def _read(self, chunk: IndexedChunk) -> Columns:
        return read_chunk(self._folder.data / chunk.meta.file, chunk.meta)

    def _ran_dry(self) -> None:
        """Tell the coordinator, once, how far training has come: it may be waiting for exactly that."""
        self._link.activity("waiting for batches")
        if self._told_train_iter != self._loop.train_iter:
            self._told_train_iter = self._loop.train_iter
            self._link.send(LearnerReport(self._assign.lease, self._loop.train_iter, {}))

    def _report(self) -> None:
        self._link.activity("training")
        metrics = self._loop.take_metrics()
        train_iter = self._loop.train_iter
        self._log.emit(
            LearnReport(train_iter=train_iter, env_step=self._prefetch.counters.env_step, variables=metrics)
        )
        self._say_published()
        self._told_train_iter = train_iter
        self._link.send(LearnerReport(self._assign.lease, train_iter, metrics))

    def _save(self, message: SaveCheckpoint) -> None:
        train_iter = self._loop.train_iter
        counters = msgspec.structs.replace(message.counters, train_iter=train_iter)
        path = self._folder.checkpoint(train_iter)
        record = checkpoint.save(
            path,
            self._algorithm,
            checkpoint.Progress(
                counters=counters,
                policy=self._publisher.last or PolicyRef(self._assign.epoch),
                exploration=exploration(self._config.policy, env_step=counters.env_step, train_iter=train_iter),
                best_reward=message.best_reward,
            ),
            config=self._config,
        )
        self._say(f"saved checkpoint {path}")
        self._link.send(CheckpointSaved(self._assign.lease, message.request, message.reason, record))
        if message.reason in EXPORTED:
            self._export(counters)

    def _export(self, counters: Counters) -> None:
        """Write model/ anew. It is a convenience: its failing is said and loses nothing."""
        try:
            model_artifact.export(
                self._folder.model,
                self._algorithm,
                algorithm_name=self._config.policy.type,
                env=self._config.env.id or self._config.env.make or "",
                train_iter=counters.train_iter,
            )
        except (OSError, RuntimeError) as error:
            self._log.say("learner", f"model/ could not be written: {error}", level="warning")

    def _published(self, ref: PolicyRef) -> None:
        self._link.send(PolicyPublished(self._assign.lease, ref))

    def _say_published(self) -> None:
        last = self._publisher.last
        if last is not None:
            path = os.fspath(self._assign.policy_file)
            self._say(f"published policy version {last.version} of iteration {last.train_iter} in {path}")

    def _warn_from_thread(self, text: str) -> None:
        self._log.say("learner", text, level="warning")

    def _say(self, text: str) -> None:
        self._log.say("learner", text)
