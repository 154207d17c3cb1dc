"""The serial run itself: collector, replay index, learner, evaluator and commander called in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from remuda.buffer.ring import ColumnRing
from remuda.collector.summary import CollectSummary
from remuda.learner.diverged import DivergedError
from remuda.learner.loop import LearnerLoop
from remuda.learner.threads import update_threads
from remuda.logbook.episode_reports import CollectReport
from remuda.logbook.pages import results_of
from remuda.logbook.progress import ProgressRow
from remuda.logbook.row_sinks import settings_of
from remuda.runner.checkpoint_journal import SERIAL_WORKER, CheckpointJournal, identity_of, sweep
from remuda.runner.components import Components, RunHooks
from remuda.runner.dispatch import SerialDispatch
from remuda.runner.memory import Memory
from remuda.runner.payloads import Payloads
from remuda.runner.status import SerialLearning, SerialStatus
from remuda.runner.timing_report import TimingReport
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import ON_REQUEST, End
from remuda.training.commander.evaluation import BestCheckpoint
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.journal_entry import Recovered
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.replay.budgets import Budgets
from remuda.training.resume_point import ResumePoint
from remuda.training.status import LiveStatus
from remuda.wire.messages import Counters, PolicyRef


class SerialLoop:
    """One run. `work` until the commander ends it, then `finish`; after an exception, `fail` instead."""

    def __init__(
        self, components: Components, hooks: RunHooks, resumed: ResumePoint | None, recovered: Recovered | None = None
    ) -> None:
        """`recovered` is the replay of a resumed run."""
        config = components.config
        start = Counters() if resumed is None else resumed.counters
        generation = 0 if resumed is None else resumed.generation
        now_s = hooks.clock()
        self._components, self._config, self._hooks = components, config, hooks
        self._logbook, self._timers = components.logbook, components.timers
        self._timing = TimingReport(components, now_s)
        self._replay = ReplayAccounting(
            config, now_s, collectors=1, batches_in_flight=1, resumed=resumed, journaled=True
        )
        self._plan = self._replay.plan
        self._budgets = Budgets(config, self._plan)
        payloads = Payloads(components.folder.data)
        ring = ColumnRing(self._plan.capacity)
        self._memory = Memory(self._replay, ring, payloads, worker=SERIAL_WORKER, generation=generation)
        self._learner = LearnerLoop.of(
            config,
            self._plan,
            components.algorithm,
            self._memory,
            train_iter=start.train_iter,
            timers=components.timers,
            update_threads=update_threads(
                config, components.algorithm, self._plan, alone=True, say=partial(components.logbook.say, "learner")
            ),
        )
        self._commander = Commander(config, resumed)
        self._progress = ProgressRows(config, resumed)
        self._summary = CollectSummary.of(config, before=start)
        self._untrained_chunk = False
        self._learning = SerialLearning(self._learner, PolicyRef(generation, start.policy_version, start.train_iter))
        live = LiveStatus(
            identity=identity_of(config, components.folder),
            replay=self._replay,
            learning=self._learning,
            commander=self._commander,
            before_s=start.wall_s,
        )
        live.start(now_s, "running")
        self._status = SerialStatus(live=live, learning=self._learning, config=config, clock=hooks.clock)
        journal = CheckpointJournal(
            config=config,
            journal=components.journal,
            replay=self._replay,
            payloads=payloads,
            status=live,
            progress_rows=self._progress,
        )
        self._dispatch = SerialDispatch(components, hooks, self._status, self._progress, journal)
        if recovered is not None:
            self._recover(recovered, now_s, rows=0 if resumed is None else resumed.progress_rows)
        self._replay.open_lease(generation, SERIAL_WORKER, generation)
        sweep(components.folder, self._replay)

    def _recover(self, recovered: Recovered, now_s: float, *, rows: int) -> None:
        """Continue with the replay of the run's checkpoint; progress.txt has this number of `rows`."""
        snapshot = recovered.snapshot.experiment
        self._replay.resume(snapshot.replay, recovered.chunks, now_s)  # what may go is swept
        self._memory.load(
            self._components.folder.data, lambda text: self._logbook.say("commander", text, level="warning")
        )
        if recovered.priorities is not None:
            self._replay.restore_priorities(recovered.priorities)
        if snapshot.progress.epoch == rows:  # else one was written after the commit, and says all
            self._progress.restore(snapshot.progress)
        self._logbook.say("commander", f"replay is back: {self._replay.live_rows} rows")

    # --- the run ---

    def work(self) -> None:
        """Collect and learn in turn until the commander has ended the run."""
        self._components.rollout.policy.load_state(self._learner.acting_state())
        self._dispatch.carry_out(self._commander.started())
        self._look_around()  # a resumed run may be over already
        while self._commander.ending is None:
            batches = self._batches_due()
            if batches:
                self._learn(batches)
            else:
                self._collect()
            self._look_around()

    def finish(self) -> End:
        """Save the last checkpoint, have it evaluated, write the last row; returns why the run ended."""
        end = self._commander.ending
        assert end is not None, "only a run that ended is finished"
        self._dispatch.carry_out(self._commander.save_final())
        self._close_books(end)
        return end

    def fail(self, error: Exception, traceback: str) -> End:
        """Save what can be saved after an exception, and log what happened."""
        end = End(f"{type(error).__name__}: {error}", f"an exception ended it: {type(error).__name__}: {error}")
        self._logbook.say("commander", f"the run failed:\n{traceback}", level="error")
        self._commander.abandon_work()
        self._commander.fail(end)
        try:
            if not isinstance(error, DivergedError):
                self._dispatch.carry_out(self._commander.save_final())
        except Exception as second:  # whatever broke the run may break this too
            text = f"the last checkpoint could not be saved: {type(second).__name__}: {second}"
            self._logbook.say("commander", text, level="error")
        self._close_books(end)
        return end

    def _close_books(self, end: End) -> None:
        self._status.live.finish(end, self._hooks.clock())
        self._emit_collected(
            self._summary.last(train_iter=self._learning.policy.train_iter, env_step=self._replay.env_step)
        )
        self._write_rows(self._progress.last(self.counters()))
        now_s = self._hooks.clock()
        self._emit_buffer(now_s, last=True)
        self._timing.report(self.counters(), now_s, last=True)
        self._dispatch.record([self._dispatch.outcomes.run_is_over(end, self.counters().wall_s)])
        status = self._status.status()
        self._logbook.conclude(settings_of(self._config), results_of(status))
        self._hooks.on_progress(status)

    @property
    def best(self) -> BestCheckpoint | None:
        """The best checkpoint so far."""
        return self._commander.best

    def counters(self) -> Counters:
        """The present counters."""
        return self._status.counters()

    # --- collecting and learning ---

    def _batches_due(self) -> int:
        """How many updates come before the next chunk; without samples_per_insert, one per chunk."""
        plan = self._plan
        batches = min(self._replay.sampleable_batches(plan.rows_per_update), plan.batches_per_request)
        if self._config.buffer.samples_per_insert is None and not plan.on_policy:
            batches = min(batches, int(self._untrained_chunk))
        return self._budgets.batches(batches, self._learner.train_iter)

    def _collect(self) -> None:
        slots, left = self._plan.chunk_slots, self._budgets.env_steps_left(self._replay.env_step)
        policy = self._learning.policy
        with self._timers("collect"):
            collected = self._components.rollout.collect(
                slots if self._plan.on_policy else min(slots, left), self._status.exploration(), policy_ref=policy
            )
        with self._timers("insert"):
            self._progress.chunk(self._memory.insert(collected))
        self._untrained_chunk = True
        self._summary.add(collected)
        self._emit_collected(self._summary.due(train_iter=policy.train_iter, env_step=self._replay.env_step))

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
                self._publish()
            if step.report_due:
                metrics = learner.take_metrics()
                self._progress.learned(metrics)
                self._components.outputs.report(metrics, train_iter=learner.train_iter, env_step=self._replay.env_step)

    def _publish(self) -> None:
        """Give the collector the newest weights."""
        state, former = self._learner.acting_state(), self._learning.policy
        self._learning.policy = PolicyRef(former.epoch, former.version + 1, self._learner.train_iter)
        self._components.rollout.policy.load_state(state)
        self._replay.settle(self._replay.sampled_rows)
        self._replay.drop_stale(self._learning.policy)

    def _look_around(self) -> None:
        self._dispatch.carry_out(self._commander.progressed(self.counters()))
        if self._hooks.stop.ending:
            end = End(ON_REQUEST, f"interrupted: {self._hooks.stop.reason}")
            self._dispatch.carry_out(self._commander.end(end, skip_final_evaluation=True))
        self._report()

    def _report(self) -> None:
        """Write what is due in the buffer's log and progress.txt, and show how far the run is."""
        now_s = self._hooks.clock()
        self._emit_buffer(now_s)
        if self._commander.ending is None:  # the last row waits for the evaluation of the last checkpoint
            counters = self.counters()
            self._write_rows(self._progress.due(counters, self._commander.awaited(counters)))
        self._timing.report(self.counters(), now_s)
        status = self._status.news(now_s)
        if status is not None:
            self._hooks.on_progress(status)

    def _emit_collected(self, report: CollectReport | None) -> None:
        if report is not None:
            self._logbook.emit(report)

    def _emit_buffer(self, now_s: float, *, last: bool = False) -> None:
        newest = self._learning.policy
        for report in self._replay.reports(self.counters(), now_s, newest=newest, last=last):
            self._logbook.emit(report)

    def _write_rows(self, rows: Sequence[ProgressRow]) -> None:
        for row in rows:
            self._logbook.progress(row)
