"""An evaluator's lease: play the episodes it is asked for with exactly the checkpoint it is told."""

from __future__ import annotations

import time
from pathlib import Path

from remuda.config.schema import ExperimentConfig
from remuda.environments.make import make_single
from remuda.environments.seeding import episode_seed, generator
from remuda.evaluator.evaluate import Episode, evaluate
from remuda.logbook.book import evaluator_logbook
from remuda.logbook.reports import EpisodeReport, EvaluationReport
from remuda.policy.loading import load_checkpoint_policy
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import AnyMessage, Assign, Evaluate, EvaluationDone
from remuda.worker.identity import WorkerIdentity
from remuda.worker.life import Life
from remuda.worker.link import Link


class AskedToEndError(Exception):
    """The process is to end; the evaluation under way is given up and dealt to another evaluator."""


class EvaluatorWork:
    """Evaluates for one experiment."""

    def __init__(self, assign: Assign, identity: WorkerIdentity, link: Link, life: Life) -> None:
        config = ExperimentConfig.model_validate_json(assign.config_json)
        self._config = config
        self._assign = assign
        self._link = link
        self._life = life
        self._log = evaluator_logbook(RunFolder(Path(assign.run_dir)), identity.uuid, identity.incarnation)
        share = -(-config.evaluator.episodes // config.evaluator.count)
        self._envs = [
            make_single(config.env, source_dir=config.source_dir) for _ in range(min(config.env.num_envs, share))
        ]
        self._rng = generator(config.seed, "evaluator", assign.index, "exploration")
        self._steps = link.progressed
        self._draining = False
        self._log.say(
            "evaluator",
            f"evaluator {identity.uuid} (index {assign.index}) of {assign.name}: {len(self._envs)} environments",
        )

    def handle(self, message: AnyMessage) -> None:
        """Play what is asked for."""
        if isinstance(message, Evaluate):
            self._link.activity(f"evaluating {Path(message.checkpoint).name}")
            self._evaluate(message)
        self._link.activity("waiting for an evaluation")

    def step(self) -> bool:
        """All work is done on demand."""
        return False

    def drain(self) -> None:
        """Nothing is ever left half done between two messages."""
        self._draining = True

    @property
    def drained(self) -> bool:
        """Asked to drain."""
        return self._draining

    def close(self) -> None:
        """Close environments and logs."""
        for env in self._envs:
            env.close()
        self._log.close()

    def _evaluate(self, message: Evaluate) -> None:
        started_s = time.monotonic()
        trained = load_checkpoint_policy(Path(message.checkpoint))
        numbers = range(message.first_episode, message.first_episode + message.episodes)
        played_before = self._steps

        def progressed(env_steps: int) -> None:
            self._steps = played_before + env_steps
            self._link.progress(self._steps)
            if self._life.ending:
                raise AskedToEndError("the evaluation is given up")

        def finished(episode: Episode, count: int) -> None:
            self._log.emit(
                EpisodeReport(
                    train_iter=message.train_iter,
                    env_step=message.env_step,
                    env=episode.env_index,
                    final_reward=episode.return_,
                    episode=count,
                )
            )

        episodes = evaluate(
            self._envs,
            trained.policy,
            seeds=[episode_seed(self._config.seed, number) for number in numbers],
            rng=self._rng,
            progress=progressed,
            finished=finished,
        )
        duration_s = time.monotonic() - started_s
        returns = [episode.return_ for episode in episodes]
        lengths = [episode.length for episode in episodes]
        self._log.emit(
            EvaluationReport(
                train_iter=message.train_iter,
                env_step=message.env_step,
                ckpt_name=Path(message.checkpoint).name,
                returns=returns,
                lengths=lengths,
                duration_s=duration_s,
            )
        )
        self._link.send(
            EvaluationDone(
                self._assign.lease, message.evaluation, message.first_episode, returns, lengths, duration_s
            )
        )
