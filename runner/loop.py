"""The serial run itself: collector, replay index, learner, evaluator and commander called in turn."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.buffer.ring import ColumnRing
from remuda.collector.summary import CollectSummary
from remuda.coordinator.commander import Commander, Decision, End, JudgeByTraining, Save, StartEvaluation, Verdict
from remuda.coordinator.evaluation import EvaluationResult, Judged
from remuda.coordinator.events import Recovered
from remuda.coordinator.experience import Experience
from remuda.coordinator.progress import ProgressRows
from remuda.coordinator.rate import Rate
from remuda.coordinator.reporting import evaluation_report, training_verdict_line, verdict_line
from remuda.coordinator.resumed import Resumed
from remuda.evaluator.evaluate import Episode, merged_info
from remuda.evaluator.player import episode_report
from remuda.learner.checkpoint import Progress
from remuda.learner.loop import LearnerLoop
from remuda.logbook.progress import ProgressRow
from remuda.policy.algorithms import make_policy
from remuda.policy.schedules import exploration_of
from remuda.runner.clocked import Clocked
from remuda.runner.keeping import SERIAL_WORKER, Keeper, sweep
from remuda.runner.memory import Memory
from remuda.runner.parts import EXPLORATION, Parts, Watch
from remuda.runner.payloads import Payloads
from remuda.wire.messages import CheckpointRecord, Counters, ExperimentState, ExperimentStatus, PolicyRef

STATUS_INTERVAL_S = 0.2


class _InterruptedError(Exception):
    """An evaluation is given up, since the run is to end."""


class SerialLoop:
    """One run. `work` until the commander ends it, then `finish`; after an exception, `fail` instead."""

    def __init__(self, parts: Parts, watch: Watch, resumed: Resumed | None, recovered: Recovered | None = None) -> None:
        """`recovered` is the replay of a resumed run."""
        config = parts.config
        start = Counters() if resumed is None else resumed.counters
        life = 0 if resumed is None else resumed.life
        now_s = watch.clock()
        self._parts, self._config, self._watch = parts, config, watch
        self._logbook, self._timers = parts.logbook, parts.timers
        self._clocked = Clocked(parts, now_s)
        self._started_s = now_s - start.wall_s
        self._experience = Experience(config, now_s, collectors=1, batches_in_flight=1, resumed=resumed, journaled=True)
        self._plan = self._experience.plan
        ring = ColumnRing(self._plan.capacity)
        payloads = Payloads(parts.folder.data)
        self._memory = Memory(self._experience, ring, payloads, worker=SERIAL_WORKER, life=life)
        self._learner = LearnerLoop(
            parts.algorithm,
            self._memory,
            publish_interval_iters=1 if self._plan.on_policy else config.learner.publish_interval_iters,
            report_interval_iters=config.log.interval_train_iters,
            train_iter=start.train_iter,
            timers=parts.timers,
        )
        self._commander = Commander(config, resumed)
        self._progress = ProgressRows(config, resumed, round_env_steps=self._plan.chunk_slots)
        self._keeper = Keeper(
            parts.folder, config, parts.journal, self._experience, payloads, self._commander, self._progress
        )
        self._summary = CollectSummary(config.log.interval_train_iters, before=start)
        self._policy = PolicyRef(life, start.policy_version, start.train_iter)
        self._judged = make_policy(config, parts.algorithm.observation, parts.algorithm.action)
        self._untrained_chunk = False
        self._rates = (Rate(), Rate())
        self._shown_s = float("-inf")
        self._state: ExperimentState = "running"
        if recovered is not None:
            self._recover(recovered, now_s, rows=0 if resumed is None else resumed.progress_rows)
        sweep(parts.folder, self._experience)

    def _recover(self, recovered: Recovered, now_s: float, *, rows: int) -> None:
        """Go on with the replay of the checkpoint that the run goes on from; progress.txt has so many `rows`."""
        memory = recovered.memory.experiment
        self._experience.remember(memory.experience, recovered.chunks, now_s)
        self._memory.load(self._parts.folder.data, lambda text: self._say(text, level="warning"))
        if recovered.priorities is not None:
            self._experience.remember_priorities(recovered.priorities)
        if memory.progress.epoch == rows:  # else one was written after the commit, and says all
            self._progress.remember(memory.progress)
        self._say(f"replay is back: {self._experience.live_rows} rows")

    # --- the run ---

    def work(self) -> None:
        """Collect and learn in turn until the commander has ended the run."""
        self._parts.rollout.policy.load_state(self._parts.algorithm.acting_state())
        self._carry_out(self._commander.started())
        self._look_around()  # a resumed run may be over already
        while self._commander.ending is None:
            batches = self._batches_due()
            if batches:
                self._learn(batches)
            else:
                self._collect()
            self._look_around()

    def finish(self) -> End:
        """Save the last checkpoint, have it judged, write the last row; returns why the run ended."""
        end = self._commander.ending
        assert end is not None, "only a run that ended is finished"
        self._carry_out(self._commander.save_final())
        self._close_books(end, "stopped" if end.reason == "stopped" else "finished")
        return end

    def fail(self, error: Exception, traceback: str) -> End:
        """Save what can be saved after an exception, and say what happened."""
        end = End(f"{type(error).__name__}: {error}", f"an exception ended it: {type(error).__name__}: {error}")
        self._say(f"the run failed:\n{traceback}", level="error")
        self._commander.abandon_work()
        self._commander.end(end, skip_final_evaluation=True)
        try:
            self._carry_out(self._commander.save_final())
        except Exception as second:  # whatever broke the run may break this too
            self._say(f"the last checkpoint could not be saved: {type(second).__name__}: {second}", level="error")
        self._close_books(end, "failed")
        return end

    def _close_books(self, end: End, state: ExperimentState) -> None:
        self._state = state
        self._write_row(self._progress.due(self.counters(), last=True))
        self._clocked.report(self.counters(), self._watch.clock(), last=True)
        self._say(f"the run is over after {self.counters().wall_s:.1f} s: {end.reason}; {end.explanation}")
        self._watch.on_progress(self.status())

    # --- collecting and learning ---

    def _batches_due(self) -> int:
        """How many updates come before the next chunk; without samples_per_insert, one per chunk."""
        config, plan, train_iter = self._config, self._plan, self._learner.train_iter
        batches = min(self._experience.sampleable_batches(plan.rows_per_update), plan.batches_per_request)
        if plan.on_policy:
            return batches
        if config.buffer.samples_per_insert is None:
            batches = min(batches, int(self._untrained_chunk))
        if config.stop.max_train_iters is not None:
            batches = min(batches, config.stop.max_train_iters - train_iter)
        return batches

    def _collect(self) -> None:
        slots, left = self._plan.chunk_slots, self._config.stop.max_env_steps - self._experience.env_step
        with self._timers("collect"):
            collected = self._parts.rollout.collect(
                slots if self._plan.on_policy else min(slots, left), self._exploration(), policy_ref=self._policy
            )
        with self._timers("insert"):
            self._progress.chunk(self._memory.insert(collected))
        self._untrained_chunk = True
        self._summary.add(collected)
        report = self._summary.due(train_iter=self._policy.train_iter, env_step=self._experience.env_step)
        if report is not None:
            self._logbook.emit(report)

    def _learn(self, batches: int) -> None:
        learner = self._learner
        self._untrained_chunk = False
        with self._timers("sample"):
            self._memory.sample(
                batches,
                self._plan.rows_per_update,
                train_iter=learner.train_iter,
                priorities=learner.take_priorities(),
            )
        while (step := learner.step()).trained:
            if step.publish_due:
                self._policy = PolicyRef(self._policy.epoch, self._policy.version + 1, learner.train_iter)
                self._parts.rollout.policy.load_state(self._parts.algorithm.acting_state())
                self._experience.settle(self._policy)
            if step.report_due:
                metrics = learner.take_metrics()
                self._progress.learned(metrics)
                self._parts.outputs.report(metrics, train_iter=learner.train_iter, env_step=self._experience.env_step)

    def _look_around(self) -> None:
        self._carry_out(self._commander.progressed(self.counters()))
        if self._watch.stop.ending:
            end = End("stopped", f"interrupted: {self._watch.stop.reason}")
            self._carry_out(self._commander.end(end, skip_final_evaluation=True))
        self._report()

    def _report(self) -> None:
        """Write what is due in the buffer's log and progress.txt, and show how far the run is."""
        now_s = self._watch.clock()
        for report in self._experience.reports(self.counters(), now_s):
            self._logbook.emit(report)
        if self._commander.ending is None:  # the last row waits for the evaluation of the last checkpoint
            self._write_row(self._progress.due(self.counters()))
        self._clocked.report(self.counters(), now_s)
        if now_s - self._shown_s >= STATUS_INTERVAL_S:
            self._shown_s = now_s
            for rate, value in zip(self._rates, (self._experience.env_step, self._learner.train_iter), strict=True):
                rate.note(value, now_s)
            self._watch.on_progress(self.status())

    def _write_row(self, row: ProgressRow | None) -> None:
        if row is not None:
            self._logbook.progress(row)

    # --- decisions ---

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Save():
                    self._save(decision)
                case StartEvaluation():
                    with self._timers("evaluate"):
                        self._evaluate(decision.record)
                case JudgeByTraining():
                    self._judge_by_training(decision.record)
                case End():
                    self._state = "stopping"
                    self._say(f"the run ends: {decision.explanation}")

    def _save(self, save: Save) -> None:
        counters, end = self.counters(), self._commander.ending
        with self._timers("save"):
            rngs = {EXPLORATION: self._parts.rollout.rng}
            record = self._parts.outputs.save(self._parts.algorithm, self._reached(counters), save.reason, rngs=rngs)
            checkpoints = self._parts.checkpoints
            decisions = self._commander.saved(save.reason, record)
            self._commit(counters)
            checkpoints.add(record, keep=self._config.checkpoint.keep, in_use=self._commander.in_use)
            if save.reason == "final" and end is not None and end.reason == "stopped":
                checkpoints.link_interrupt(record.train_iter)
        self._carry_out(decisions)

    def _evaluate(self, record: CheckpointRecord) -> None:
        """Judge a checkpoint by the weights in memory, which nothing has changed since they were saved or loaded."""
        assert record.train_iter == self._learner.train_iter, "the learner has gone on"
        started_s = self._watch.clock()
        self._judged.load_state(self._parts.algorithm.acting_state())
        try:
            episodes = self._parts.player.play_policy(
                self._judged,
                range(self._config.evaluator.episodes),
                progress=self._evaluation_goes_on,
                finished=lambda episode, count: self._episode_finished(record, episode, count),
            )
        except _InterruptedError:
            self._commander.abandon_work()
            self._say(f"evaluation of {record.file} given up: {self._watch.stop.reason}")
            return
        returns = tuple(episode.return_ for episode in episodes)
        lengths = tuple(episode.length for episode in episodes)
        info = merged_info(episodes)
        result = EvaluationResult(record, returns, lengths, self._watch.clock() - started_s, info)
        verdict = self._commander.evaluated(result)
        self._write_row(self._progress.evaluated(result))
        self._logbook.emit(evaluation_report(result))
        self._keep_verdict(result, verdict, verdict_line(result, is_best=verdict.best, best=self.best))

    def _judge_by_training(self, record: CheckpointRecord) -> None:
        result = self._progress.judged_by_training(record)
        if result is None:
            self._commander.not_judged()
            return
        verdict = self._commander.evaluated(result)
        self._keep_verdict(result, verdict, training_verdict_line(result, is_best=verdict.best, best=self.best))

    def _keep_verdict(self, result: EvaluationResult, verdict: Verdict, line: str) -> None:
        self._parts.checkpoints.set_reward(result.record.train_iter, result.reward_mean, best=verdict.best)
        self._commit(self.counters())
        self._say(line)
        self._carry_out(verdict.decisions)

    def _reached(self, counters: Counters) -> Progress:
        best = self.best
        return Progress(counters, self._policy, self._exploration(), None if best is None else best.reward_mean)

    def _commit(self, counters: Counters) -> None:
        priorities = self._learner.take_priorities()
        self._experience.update_priorities(priorities.rows, priorities.errors)
        self._keeper.commit(self._reached(counters), self._state)

    def _evaluation_goes_on(self, env_steps: int) -> None:
        if self._watch.stop.ending:
            raise _InterruptedError

    def _episode_finished(self, record: CheckpointRecord, episode: Episode, count: int) -> None:
        self._logbook.emit(episode_report(episode, count, train_iter=record.train_iter, env_step=record.env_step))

    # --- what holds ---

    @property
    def best(self) -> Judged | None:
        """The best checkpoint so far."""
        return self._commander.best

    def counters(self) -> Counters:
        """The one set of counters, as of now."""
        return Counters(
            env_step=self._experience.env_step,
            train_iter=self._learner.train_iter,
            episode=self._experience.episode,
            policy_version=self._policy.version,
            wall_s=self._watch.clock() - self._started_s,
        )

    def status(self) -> ExperimentStatus:
        """As the progress view shows it."""
        last, best, end = self._commander.last, self.best, self._commander.ending
        counters, (env_rate, train_rate) = self.counters(), self._rates
        return ExperimentStatus(
            id=SERIAL_WORKER,
            name=self._config.name,
            state=self._state,
            reason=None if end is None else end.reason,
            run_dir=str(self._parts.folder.root),
            env_step=counters.env_step,
            train_iter=counters.train_iter,
            episode=counters.episode,
            policy_version=counters.policy_version,
            wall_s=counters.wall_s,
            last_return=None if last is None else last.reward_mean,
            best_return=None if best is None else best.reward_mean,
            env_steps_per_s=env_rate.per_s(),
            train_iters_per_s=train_rate.per_s(),
            policy_lag=self._experience.policy_lag(self._policy),
            samples_per_insert=self._experience.samples_per_insert,
            waiting_for=None,
        )

    def _exploration(self) -> dict[str, float]:
        counters = (self._experience.env_step, self._learner.train_iter)
        return exploration_of(self._config, env_step=counters[0], train_iter=counters[1])

    def _say(self, text: str, *, level: str = "info") -> None:
        self._logbook.say("commander", text, level="error" if level == "error" else "info")
