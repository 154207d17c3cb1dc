"""An evaluator's lease: play the requested episodes with exactly the requested checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import configs_of_policies
from remuda.evaluator.evaluate import Episode, episode_report
from remuda.evaluator.player import EpisodePlayer, require_evaluated
from remuda.logbook.book import Logbook
from remuda.logbook.episode_reports import EvaluationReport
from remuda.logbook.statistics import merged
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.policy.opponent_pool import Opponent, OpponentPool
from remuda.wire.messages import AnyMessage, Assign, Evaluate, EvaluationDone, EvaluationFilmed
from remuda.worker.affinity import bind_cores
from remuda.worker.lease_log import LeaseLog
from remuda.worker.link import Link, WorkerIdentity, WorkLink
from remuda.worker.serve import AskedToEndError
from remuda.worker.shutdown_guard import ShutdownGuard
from remuda.worker.stores.ports import CheckpointStore, NotNowError, RunStores


class CheckpointPolicies:
    """Loads the policies of an evaluation from checkpoint files."""

    def __init__(self, configs: Sequence[ExperimentConfig], checkpoints: Sequence[CheckpointStore]) -> None:
        """`configs` and `checkpoints` of each policy."""
        self._configs, self._checkpoints = configs, checkpoints
        self._pool = OpponentPool(configs)

    def older(self, message: Evaluate) -> list[list[Opponent]]:
        """Return the older opponents of each policy, in self-play. Raises NotNowError, CheckpointGoneError,
        CheckpointError."""
        return [
            self._pool.load_only(index, files, self._checkpoints[index].fetch)
            for index, files in enumerate(message.older)
        ]

    def fetch(self, message: Evaluate) -> Sequence[Path]:
        """Return the checkpoint of each policy. Raises NotNowError and CheckpointGoneError."""
        return [store.fetch(*file) for store, file in zip(self._checkpoints, _files(message), strict=True)]

    def key(self, message: Evaluate) -> object:
        """Return a key of the playing policies: equal policies have equal keys."""
        return _files(message)

    def load(self, paths: Sequence[Path]) -> Sequence[Policy]:
        """Return the policy of each checkpoint. Raises CheckpointError."""
        return [load_checkpoint_policy(path, config=own).policy for path, own in zip(paths, self._configs, strict=True)]


class EvaluatorWork:
    """Evaluates for an experiment. The end of process or lease stops the current evaluation; the coordinator gives a
    needed evaluation to another evaluator."""

    unstored = False
    """Always False: other evaluators repeat a stopped evaluation."""

    def __init__(
        self,
        lease: int,
        link: WorkLink,
        player: EpisodePlayer,
        policies: CheckpointPolicies,
        logs: Mapping[str, Logbook],
        *,
        ending: Callable[[], bool],
        logs_results: bool = True,
        has_tasks: bool = False,
        timers: Timers | None = None,
        clock: Callable[[], float] = time.monotonic,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`logs` by the name of each policy; `ending` returns True to stop the current evaluation; without
        `logs_results` only episodes are logged; with `has_tasks` results name the task; `close` is
        called at the end."""
        self.timers = timers or Timers()
        self._lease, self._link, self._player, self._policies = lease, link, player, policies
        self._names, self._logs = tuple(logs), tuple(logs.values())
        self._ending, self._clock, self._close = ending, clock, close
        self._logs_results, self._has_tasks = logs_results, has_tasks
        self._newest: dict[int, tuple[int, int]] = {}
        """Evaluation and first episode of the newest share of each policy; after a break the coordinator repeats
        messages."""
        self._waiting = deque[Evaluate]()
        """Requested evaluations. The checkpoint of the first may not be on this machine yet."""
        self._problem = ""
        self.drained = False
        """Asked to drain."""
        self.warnings: Sequence[str] = self._log_warnings(self._logs[0])
        """Reasons for missing films, also in the evaluator's own log."""
        link.activity("waiting", "waiting for an evaluation")

    @classmethod
    def under(
        cls, assign: Assign, identity: WorkerIdentity, link: Link, guard: ShutdownGuard, stores: RunStores
    ) -> EvaluatorWork:
        """Begin a lease in a worker process. Raises EnvironmentBuildError."""
        config = ExperimentConfig.model_validate_json(assign.config_json)
        policies = configs_of_policies(config)
        num_envs = min(config.env.num_envs, -(-config.evaluator.episodes // config.evaluator.count))
        log = LeaseLog("evaluator", identity, link, stores)
        try:
            require_evaluated(policies)
            player = EpisodePlayer(config, policies, num_envs=num_envs, broke=log.warn)
        except BaseException:
            log.close()
            raise
        sources = CheckpointPolicies(tuple(policies.values()), [own.checkpoints for own in stores.of_policies])
        work = cls(
            assign.lease,
            link,
            player,
            sources,
            dict.fromkeys(policies, log.book),
            ending=lambda: guard.ending,
            has_tasks=bool(config.env.schedule),
            close=log.close,
        )
        log.say(bind_cores(config, "evaluator", assign.index))
        log.say(f"evaluator {identity.uuid} (index {assign.index}) of {assign.name}: {num_envs} environments")
        return work

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
        """Try again to play evaluations with a missing checkpoint; all further work is done on demand."""
        with contextlib.suppress(AskedToEndError):
            self._try()
        return False

    def drain(self) -> None:
        """Drop waiting evaluations; other evaluators play them."""
        self._waiting.clear()
        self.drained = True

    def close(self) -> None:
        """Close environments and logs."""
        self._player.close()
        self._close()

    def _try(self) -> None:
        """Play the first waiting evaluation, if its checkpoint is on this machine. Raises AskedToEndError."""
        if not self._waiting:
            return
        message = self._waiting[0]
        try:
            with self.timers("fetch checkpoint"):
                older = self._policies.older(message)
                paths = self._policies.fetch(message)  # last, since a machine may keep the newest few alone
        except NotNowError as error:
            self._link.activity("waiting", f"waiting for {error.waits_for}")
            if error.problem and not self._problem:
                text = f"{message.checkpoint} waits for {error.waits_for}: {error.problem}"
                self._logs[message.policy_index].say("evaluator", text, level="warning")
            self._problem = error.problem or self._problem
            return
        del self._waiting[0]
        self._problem = ""
        self._link.activity("waiting", "waiting for an evaluation")
        with self.timers("evaluate"):
            policies = self._evaluate(message, paths, older)
            if message.policy_index == message.first_episode == 0 and self._player.films.due(message.env_step):
                with self.timers("film"), self._link.during("working", f"filming {message.checkpoint}"):
                    self._film(policies, message)

    def _evaluate(
        self, message: Evaluate, paths: Sequence[Path], older: Sequence[Sequence[Opponent]]
    ) -> Sequence[Policy]:
        """Play an evaluation and send the result; return the policies."""
        started_s, env_restarts, log = self._clock(), self._player.env_restarts, self._logs[message.policy_index]
        with self._link.during("preparing", f"loading {message.checkpoint}"):
            policies = self._policies.load(paths)
            self._player.begin(message.task)
            self._log_warnings(log)
        self._log_older(message, older)
        with self._link.during("working", _progress(message, 0)):
            evaluated = self._player.evaluate(
                policies,
                message.policy_index,
                range(message.first_episode, message.first_episode + message.episodes),
                older=[[one.policy for one in pool] for pool in older],
                key=self._policies.key(message),
                progress=self._stepped,
                finished=partial(self._finished, message),
            )
        episodes = evaluated.episodes
        done = EvaluationDone(
            self._lease,
            message.evaluation,
            message.first_episode,
            [episode.return_ for episode in episodes],
            [episode.length for episode in episodes],
            self._clock() - started_s,
            merged({name: [value] for name, value in episode.info.items()} for episode in episodes),
            dict(evaluated.actions),
            sum(episode.cut for episode in episodes),
            message.policy_index,
        )
        if self._logs_results:
            log.emit(
                _report(message, done, env_restarts=self._player.env_restarts - env_restarts, has_tasks=self._has_tasks)
            )
        warning = cut_warning(episodes)
        if warning is not None:
            log.say("evaluator", warning, level="warning")
        self._link.send(done)
        return policies

    def _finished(self, message: Evaluate, episode: Episode, count: int) -> None:
        self._link.activity("working", _progress(message, count))
        report = episode_report(episode, count, train_iter=message.train_iter, env_step=message.env_step)
        self._logs[message.policy_index].emit(report)

    def _log_older(self, message: Evaluate, older: Sequence[Sequence[Opponent]]) -> None:
        each = [_called(name, one.file) for name, pool in zip(self._names, older, strict=False) for one in pool]
        if each:
            judged = _called(self._names[message.policy_index], message.checkpoint)
            text = f"{judged} plays against older checkpoints, too: {', '.join(each)}"
            self._logs[message.policy_index].say("evaluator", text)

    def _film(self, policies: Sequence[Policy], message: Evaluate) -> None:
        """Film an evaluation after the results were sent: they do not depend on the film."""

        def go_on(env_steps: int) -> bool:
            self._link.progress(env_steps)
            return not self._ending()  # the last evaluation of a run is filmed while its lease is to end

        film = self._player.films.film(policies, env_step=message.env_step, go_on=go_on)
        self._log_warnings(self._logs[message.policy_index])
        if film is not None:
            self._link.send(EvaluationFilmed(self._lease, message.train_iter, message.env_step, film))

    def _log_warnings(self, log: Logbook) -> Sequence[str]:
        """Log new reasons for missing films; return the new warnings."""
        warnings = self._player.films.take_warnings()
        for text in warnings:
            log.say("evaluator", text, level="warning")
        return warnings

    def _stepped(self, env_steps: int) -> None:
        self._link.progress(env_steps)
        if self._ending() or self._link.drain_arrived(self._lease):
            raise AskedToEndError("the evaluation is given up")


def _files(message: Evaluate) -> list[tuple[str, str]]:
    """Return name and checksum of the checkpoint of each policy."""
    files = [(other.file, other.sha256) for other in message.others]
    files.insert(message.policy_index, (message.checkpoint, message.sha256))
    return files


def _progress(message: Evaluate, over: int) -> str:
    return f"evaluating {message.checkpoint}: {over} of {message.episodes} episodes are over"


def _report(message: Evaluate, done: EvaluationDone, *, env_restarts: int, has_tasks: bool) -> EvaluationReport:
    return EvaluationReport(
        train_iter=message.train_iter,
        env_step=message.env_step,
        ckpt_name=message.checkpoint,
        returns=done.returns,
        lengths=done.lengths,
        info=done.info,
        duration_s=done.duration_s,
        cut=done.cut,
        env_restarts=env_restarts,
        task=message.task.number if has_tasks or message.task.number else None,
    )


def _called(policy: str, file: str) -> str:
    return f"{policy}/{file}" if policy else file


def cut_warning(episodes: Sequence[Episode]) -> str | None:
    """Return the warning about cut episodes; None without any."""
    cut = [episode.length for episode in episodes if episode.cut]
    if not cut:
        return None
    return (
        f"{len(cut)} of {len(episodes)} evaluation episodes had not ended after {max(cut)} steps and were cut: their "
        "returns are what they had brought by then; raise evaluator.max_episode_steps where episodes are longer"
    )
