"""An evaluator's lease: play the requested episodes with exactly the requested checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import configs_of_policies
from remuda.evaluator.evaluate import Episode, cut_warning, episode_report, merged_info
from remuda.evaluator.player import EpisodePlayer, require_evaluated
from remuda.logbook.episode_reports import EvaluationReport
from remuda.logbook.role_logbooks import evaluator_logbook
from remuda.logbook.streams import end_printed, log_printed
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.policy.opponent_pool import OpponentPool
from remuda.wire.messages import AnyMessage, Assign, Evaluate, EvaluationDone, EvaluationFilmed
from remuda.worker.affinity import bind_cores
from remuda.worker.link import Link, WorkerIdentity
from remuda.worker.serve import AskedToEndError
from remuda.worker.shutdown_guard import ShutdownGuard
from remuda.worker.stores.ports import NotNowError, RunStores


class EvaluatorWork:
    """Evaluates for one experiment. The end of process or lease stops the current evaluation; the coordinator gives it
    to another evaluator, if it is still needed."""

    def __init__(
        self, assign: Assign, identity: WorkerIdentity, link: Link, guard: ShutdownGuard, stores: RunStores
    ) -> None:
        config = ExperimentConfig.model_validate_json(assign.config_json)
        policies = configs_of_policies(config)
        self._names, self._configs = tuple(policies), tuple(policies.values())
        self.timers = Timers()
        self._assign = assign
        self._link = link
        self._guard = guard
        self._checkpoints = [own.checkpoints for own in stores.of_policies]
        self._pool = OpponentPool(self._configs)
        self._close_stores = stores.close
        share = -(-config.evaluator.episodes // config.evaluator.count)
        num_envs = min(config.env.num_envs, share)
        self._log = evaluator_logbook(stores.folder, identity.uuid, identity.incarnation)
        log_printed(partial(self._log.say, "evaluator"))
        try:
            require_evaluated(policies)
            self._player = EpisodePlayer(config, policies, num_envs=num_envs, broke=self._environment_broke)
        except BaseException:
            end_printed()
            self._log.close()
            raise
        self._newest: dict[int, tuple[int, int]] = {}
        """Evaluation and first episode of the newest share of each policy; after a break the coordinator repeats
        messages."""
        self._waiting = deque[Evaluate]()
        """Asked for; the checkpoint of the first may not be on this machine yet."""
        self._problem = ""
        self._draining = False
        self._env_restarts = 0
        """In the evaluation under way."""
        self.warnings: Sequence[str] = self._warned()
        """Reasons for missing films, also in the evaluator's own log."""
        link.activity("waiting", "waiting for an evaluation")
        self._log.say("evaluator", bind_cores(config, "evaluator", assign.index))
        self._log.say(
            "evaluator",
            f"evaluator {identity.uuid} (index {assign.index}) of {assign.name}: {num_envs} environments",
        )

    def handle(self, message: AnyMessage) -> None:
        """Play the requested episodes. Raises AskedToEndError if playing is stopped."""
        if isinstance(message, Evaluate):
            share = message.evaluation, message.first_episode
            if self._newest.get(message.policy_index) != share:
                self._newest[message.policy_index] = share
                others = [waiting for waiting in self._waiting if waiting.policy_index != message.policy_index]
                self._waiting = deque([*others, message])
                self._try()

    def step(self) -> bool:
        """Try again to play evaluations with a missing checkpoint; all other work is done on demand."""
        with contextlib.suppress(AskedToEndError):
            self._try()
        return False

    def drain(self) -> None:
        """Drop waiting evaluations; other evaluators play them."""
        self._waiting.clear()
        self._draining = True

    @property
    def unstored(self) -> bool:
        """Always False: other evaluators repeat a stopped evaluation."""
        return False

    @property
    def drained(self) -> bool:
        """Asked to drain."""
        return self._draining

    def close(self) -> None:
        """Close environments and logs."""
        self._player.close()
        end_printed()
        self._log.close()
        self._close_stores()

    def _try(self) -> None:
        """Play the first waiting evaluation, if its checkpoint is on this machine. Raises AskedToEndError."""
        if not self._waiting:
            return
        message = self._waiting[0]
        try:
            with self.timers("fetch checkpoint"):
                older = [
                    self._pool.load_only(index, files, self._checkpoints[index].fetch)
                    for index, files in enumerate(message.older)
                ]
                checkpoints = self._fetch(message)  # last, since a machine may keep the newest few alone
        except NotNowError as error:
            self._link.activity("waiting", f"waiting for {error.waits_for}")
            if error.problem and not self._problem:
                text = f"{message.checkpoint} waits for {error.waits_for}: {error.problem}"
                self._log.say("evaluator", text, level="warning")
            self._problem = error.problem or self._problem
            return
        del self._waiting[0]
        self._problem = ""
        self._link.activity("waiting", "waiting for an evaluation")
        with self.timers("evaluate"):
            self._evaluate(message, checkpoints, older)

    def _fetch(self, message: Evaluate) -> list[Path]:
        """Return the checkpoint of each policy. Raises NotNowError and CheckpointGoneError."""
        files = [(other.file, other.sha256) for other in message.others]
        files.insert(message.policy_index, (message.checkpoint, message.sha256))
        return [store.fetch(*file) for store, file in zip(self._checkpoints, files, strict=True)]

    def _evaluate(self, message: Evaluate, checkpoints: Sequence[Path], older: Sequence[Sequence[Policy]]) -> None:
        checkpoint = checkpoints[message.policy_index]
        started_s, self._env_restarts = time.monotonic(), 0
        train_iter, env_step = message.train_iter, message.env_step

        def finished(episode: Episode, count: int) -> None:
            self._log.emit(episode_report(episode, count, train_iter=train_iter, env_step=env_step))

        with self._link.during("preparing", f"loading {checkpoint.name}"):
            policies = [
                load_checkpoint_policy(path, config=own).policy
                for path, own in zip(checkpoints, self._configs, strict=True)
            ]
            self._player.begin(message.task)
            self._warned()
        self._tell_of_older(message)
        numbers = range(message.first_episode, message.first_episode + message.episodes)
        actions = self._player.action_counts(message.policy_index)
        with self._link.during("working", f"evaluating {checkpoint.name}"):
            episodes = self._player.evaluate(
                policies,
                message.policy_index,
                numbers,
                older=older,
                actions=actions,
                progress=self._stepped,
                finished=finished,
            )
        report = EvaluationReport(
            train_iter=train_iter,
            env_step=env_step,
            ckpt_name=checkpoint.name,
            returns=[episode.return_ for episode in episodes],
            lengths=[episode.length for episode in episodes],
            info=merged_info(episodes),
            duration_s=time.monotonic() - started_s,
            cut=sum(episode.cut for episode in episodes),
            env_restarts=self._env_restarts,
            task=message.task.number if self._configs[0].env.schedule or message.task.number else None,
        )
        self._log.emit(report)
        warning = cut_warning(episodes)
        if warning is not None:
            self._log.say("evaluator", warning, level="warning")
        self._link.send(
            EvaluationDone(
                self._assign.lease,
                message.evaluation,
                message.first_episode,
                list(report.returns),
                list(report.lengths),
                report.duration_s,
                merged_info(episodes),
                {} if actions is None else actions.histograms(),
                report.cut,
                message.policy_index,
            )
        )
        if message.policy_index == message.first_episode == 0 and self._player.films.due(env_step):
            with self.timers("film"), self._link.during("working", f"filming {checkpoint.name}"):
                self._film(policies, message, steps=episodes[0].length)

    def _tell_of_older(self, message: Evaluate) -> None:
        each = [
            _called(name, one.file) for name, files in zip(self._names, message.older, strict=False) for one in files
        ]
        if each:
            judged = _called(self._names[message.policy_index], message.checkpoint)
            self._log.say("evaluator", f"{judged} plays against older checkpoints, too: {', '.join(each)}")

    def _film(self, policies: Sequence[Policy], message: Evaluate, *, steps: int) -> None:
        """Film an evaluation after its results were sent, since they do not depend on the film."""

        def go_on(env_steps: int) -> bool:
            self._link.progress(self._link.progressed + env_steps)
            return not self._guard.ending  # the last evaluation of a run is filmed while its lease is to end

        film = self._player.films.film(policies, env_step=message.env_step, steps=steps, go_on=go_on)
        self._warned()
        if film is not None:
            self._link.send(EvaluationFilmed(self._assign.lease, message.train_iter, message.env_step, film))

    def _warned(self) -> Sequence[str]:
        """Log new reasons for missing films; return the new warnings."""
        warnings = self._player.films.take_warnings()
        for text in warnings:
            self._log.say("evaluator", text, level="warning")
        return warnings

    def _environment_broke(self, text: str) -> None:
        self._env_restarts += 1
        self._log.say("evaluator", text, level="warning")

    def _stepped(self, env_steps: int) -> None:
        self._link.progress(self._link.progressed + env_steps)
        if self._guard.ending or self._link.drain_arrived(self._assign.lease):
            raise AskedToEndError("the evaluation is given up")


def _called(policy: str, file: str) -> str:
    return f"{policy}/{file}" if policy else file
