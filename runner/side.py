"""One policy of a serial run: its replay, its learner and its commander. A run with one agent has one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from remuda.buffer.ring import ColumnRing
from remuda.collector.collected import Collected
from remuda.collector.rollout import Behavior
from remuda.collector.summary import CollectSummary
from remuda.learner.callbacks import CallbackHost
from remuda.learner.loop import LearnerLoop
from remuda.learner.precision import update_threads
from remuda.learner.settings import LearnerSettings
from remuda.logbook.episode_reports import CollectReport
from remuda.logbook.progress import ProgressRow
from remuda.logbook.row_sinks import settings_of
from remuda.logbook.tensorboard import results_of
from remuda.runner.callbacks import SerialCallbacks
from remuda.runner.checkpoint_journal import SERIAL_WORKER, CheckpointJournal, identity_of, sweep
from remuda.runner.components import Components, RunHooks
from remuda.runner.dispatch import SerialDispatch
from remuda.runner.memory import Memory
from remuda.runner.payloads import Payloads
from remuda.runner.status import SerialLearning, SerialStatus
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, Decision
from remuda.training.commander.end import End
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.journal_entry import Recovered
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.resume_point import ResumePoint
from remuda.training.status import LiveStatus
from remuda.wire.messages import Counters, ExperimentStatus, PolicyRef


class PolicySide:
    """What is one policy's own, with counters of its own: a step of the environment counts once for each policy."""

    def __init__(
        self, components: Components, hooks: RunHooks, resumed: ResumePoint | None, recovered: Recovered | None = None
    ) -> None:
        """`recovered` is the replay of a resumed run."""
        config = components.config
        start = Counters() if resumed is None else resumed.counters
        generation = 0 if resumed is None else resumed.generation
        self._resumed = resumed is not None
        now_s = hooks.clock()
        self.components, self._config, self._clock = components, config, hooks.clock
        self._logbook, self._timers = components.logbook, components.timers
        self._replay = ReplayAccounting(
            config, now_s, collectors=1, batches_in_flight=1, resumed=resumed, journaled=True
        )
        self._plan = self._replay.plan
        payloads = Payloads(components.folder.data)
        ring = ColumnRing(self._plan.capacity)
        self._memory = Memory(self._replay, ring, payloads, worker=SERIAL_WORKER, generation=generation)
        self._settings = LearnerSettings(config, lambda config, values: components.algorithm.adjust(config))
        self._learner = LearnerLoop.of(
            config,
            self._plan,
            components.algorithm,
            self._memory,
            train_iter=start.train_iter,
            env_step=start.env_step,
            timers=components.timers,
            update_threads=update_threads(
                config, components.algorithm, self._plan, alone=True, say=partial(components.logbook.say, "learner")
            ),
            follow=self._settings.follow,
        )
        self.commander = Commander(config, resumed)
        """Decides when this policy is saved and evaluated."""
        self._progress = ProgressRows(config, resumed, self.commander.curriculum)
        self._untrained_chunk = False
        self._learning = SerialLearning(self._learner, PolicyRef(generation, start.policy_version, start.train_iter))
        live = LiveStatus(
            identity=identity_of(config, components.folder),
            replay=self._replay,
            learning=self._learning,
            commander=self.commander,
            before_s=start.wall_s,
        )
        live.start(now_s, "running")
        book = CallbackBook(live.identity.id, active=bool(components.callbacks))
        if recovered is not None:
            book.resume(recovered.snapshot.experiment.callbacks)
        self._status = SerialStatus(live=live, learning=self._learning, config=config, clock=hooks.clock)
        journal = CheckpointJournal(
            config=config,
            journal=components.journal,
            replay=self._replay,
            payloads=payloads,
            status=live,
            progress_rows=self._progress,
            callbacks=book,
        )
        self.callbacks = SerialCallbacks(
            book=book,
            host=CallbackHost(
                components.callbacks,
                config,
                ckpt=components.folder.ckpt,
                policy=components.policy,
                states=book.states,
                changes=book.changes,
            ),
            commander=self.commander,
            counters=self.counters,
            change=self._settings.change,
        )
        self.dispatch = SerialDispatch(components, hooks, self._status, self._progress, journal, self.callbacks)
        """Saves and evaluates it."""
        if recovered is not None:
            self._recover(recovered, now_s, rows=0 if resumed is None else resumed.progress_rows)
        rows = None if recovered is None else self._replay.ledger.rows
        self._summary = CollectSummary.of(config, before=start, rows=rows)
        self._replay.ledger.open(generation, SERIAL_WORKER, generation)
        sweep(components.folder, self._replay)

    def _recover(self, recovered: Recovered, now_s: float, *, rows: int) -> None:
        """Continue with the replay of the run's checkpoint; progress.txt has this number of `rows`."""
        snapshot = recovered.snapshot.experiment
        self._replay.resume(snapshot.replay, recovered.chunks, now_s)  # what may go is swept
        self._memory.load(
            self.components.folder.data, lambda text: self._logbook.say("commander", text, level="warning")
        )
        if recovered.priorities is not None:
            self._replay.restore_priorities(recovered.priorities)
        if snapshot.progress.epoch == rows:  # else one was written after the commit, and says all
            self._progress.restore(snapshot.progress)
        self._logbook.say("commander", f"replay is back: {self._replay.index.rows} rows")

    def begin(self) -> Sequence[Decision]:
        """The collector gets the first weights, and callbacks are told; returns what they decide."""
        self.components.acting.load_state(self._learner.published_state())
        if self.callbacks.host.names:
            self._logbook.say("learner", self.callbacks.host.told)
        begun = self.callbacks.begin(resumed=self._resumed)
        return [*begun, *self.tell_callbacks()]

    def tell_callbacks(self) -> Sequence[Decision]:
        """Tell callbacks of all that has happened; returns what they decide."""
        told = self.callbacks.tell()
        self.dispatch.record(told.effects)
        return told.decisions

    # --- what holds ---

    def counters(self) -> Counters:
        """The present counters."""
        return self._status.counters()

    @property
    def train_iter(self) -> int:
        """Updates done."""
        return self._learner.train_iter

    def news(self, now_s: float) -> ExperimentStatus | None:
        """The progress to show, from time to time."""
        return self._status.news(now_s)

    def status(self) -> ExperimentStatus:
        """As the progress view shows it."""
        return self._status.status()

    # --- collecting ---

    @property
    def collects_whole_slots(self) -> bool:
        """A chunk is exactly so many slots of time; see wanted_env_steps."""
        return self._plan.on_policy

    def wanted_env_steps(self) -> int:
        """How many environment steps the next chunk should have."""
        slots, left = self._plan.chunk_slots, self._replay.env_steps_left()
        return slots if self._plan.on_policy else min(slots, left)

    def behavior(self) -> Behavior:
        """How the policy acts in the next chunk."""
        return Behavior(self._status.exploration(), self._learning.policy)

    def insert(self, collected: Collected) -> None:
        """Count a chunk. Raises ChunkRefusedError."""
        with self._timers("insert"):
            meta = self._memory.insert(collected)
        self._progress.chunk(meta)
        self.callbacks.book.chunk(meta, self._replay.ledger.env_step)
        self._untrained_chunk = True
        self._summary.add(collected)
        self._emit_collected(
            self._summary.due(train_iter=self._learning.policy.train_iter, env_step=self._replay.ledger.env_step)
        )

    # --- learning ---

    def batches_due(self) -> int:
        """How many updates come before the next chunk; without samples_per_insert, one per chunk."""
        plan = self._plan
        batches = min(self._replay.sampleable_batches(plan.rows_per_update), plan.batches_per_request)
        if self._config.buffer.samples_per_insert is None and not plan.on_policy:
            batches = min(batches, int(self._untrained_chunk))
        return self._replay.allowed_batches(batches, self._learner.train_iter)

    def batches_owed(self) -> int:
        """How many updates come after the last chunk; without samples_per_insert, as many as after any other."""
        due, owed = self.batches_due(), self._replay.batches_owed()
        return due if owed is None else max(0, min(due, owed))

    def learn(self, batches: int) -> None:
        """Learn from so many batches."""
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
                self._report_metrics()
        self._memory.release_used()

    def _report_metrics(self) -> None:
        metrics, learner = self._learner.take_metrics(), self._learner
        self._progress.learned(metrics)
        self.components.outputs.report(
            metrics,
            train_iter=learner.train_iter,
            env_step=self._replay.ledger.env_step,
            settings=self._settings.values,
        )

    def _publish(self) -> None:
        """Give the collector the newest weights."""
        state, former = self._learner.published_state(), self._learning.policy
        self._learning.policy = PolicyRef(former.epoch, former.version + 1, self._learner.train_iter)
        self.components.acting.load_state(state)
        self._replay.settle(self._replay.index.sampled_rows)
        self._replay.drop_stale(self._learning.policy)

    # --- the task ---

    def begin_task(self, together: Sequence[Commander]) -> bool:
        """Decide about the next task; whether it begins. `together`: see Outcomes.next_task."""
        effects = self.dispatch.outcomes.next_task(together, self._replay.ledger.env_step)
        self.dispatch.record(effects)
        return bool(effects)

    # --- reporting ---

    def report(self, now_s: float) -> None:
        """Write what is due in the buffer's log and progress.txt."""
        self._emit_buffer(now_s)
        if self.commander.ending is None:  # the last row waits for the evaluation of the last checkpoint
            counters = self.counters()
            self._write_rows(self._progress.due(counters, self.commander.awaited(counters)))

    def finish(self, end: End, now_s: float) -> None:
        """The run is over: write the last reports and rows."""
        self.dispatch.record(self.callbacks.conclude(end).effects)
        self._status.live.finish(end, now_s)
        if self._learner.has_metrics and end.state != "failed":
            self._report_metrics()
        self._emit_collected(
            self._summary.last(train_iter=self._learning.policy.train_iter, env_step=self._replay.ledger.env_step)
        )
        self._write_rows(self._progress.last(self.counters()))
        self._emit_buffer(self._clock(), last=True)

    def conclude(self, end: End) -> None:
        """The last line, and what the run ended with."""
        self.dispatch.record([self.dispatch.outcomes.run_is_over(end, self.counters().wall_s)])
        self._logbook.conclude(settings_of(self._config), results_of(self.status()))

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
