"""The loop of a serial run: the coordinator's experiment and its workers in one process, called in turn.

Messages are delivered at once, in a fixed order, so equal seeds give equal numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from msgspec import structs

from remuda.buffer.chunk import sweep_orphans
from remuda.collector.collected import Collected, CollectSummary
from remuda.collector.recorder import Behavior
from remuda.collector.rollout import Collects
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.experiment import Experiment
from remuda.learner.loop import DivergedError
from remuda.logbook.book import Logbook
from remuda.logbook.row_sinks import settings_of
from remuda.logbook.timers import Timers
from remuda.policy.row_plan import joint_plan
from remuda.runner.building import Built, Member
from remuda.runner.link import SERIAL_WORKER, ExperimentBrokenError, SerialLink
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End
from remuda.training.commander.together import joined_counters
from remuda.training.vitals import Vitals
from remuda.wire.messages import (
    ChunkId,
    ChunkReady,
    Counters,
    Drained,
    ExperimentStatus,
    Task,
)
from remuda.worker.vitals import VitalSigns

STATUS_INTERVAL_S = 0.2
"""Between two states of the progress view; and between two ticks of the experiment while an evaluation is played."""
MOST_IDLE_TURNS = 1_000
"""Turns without work before a run that does not end raises an error."""


class StopRequest(Protocol):
    """Request to end the run; see remuda.worker.shutdown_guard.ShutdownGuard."""

    @property
    def ending(self) -> bool:
        """True if the run has to end."""
        ...

    @property
    def reason(self) -> str:
        """Reason, for people."""
        ...


@dataclass(frozen=True)
class RunHooks:
    """Stop request, progress view and clock of a run."""

    stop: StopRequest
    on_progress: Callable[[ExperimentStatus], None]
    clock: Callable[[], float] = time.monotonic
    """Seconds. The clock affects times and max_wall_s only."""


class TimingReport:
    """Writes into the log from time to time where the run's time goes, and timers.json."""

    ROLE = "serial"

    def __init__(self, config: ExperimentConfig, logbook: Logbook, timers: Timers, now_s: float) -> None:
        self._logbook = logbook
        self._signs = VitalSigns(1, timers)
        self._interval_s = config.log.buffer_interval_s
        self._vitals = Vitals(self._interval_s, now_s)
        self._due_s = now_s + self._interval_s

    def report(self, counters: Counters, now_s: float, *, last: bool = False) -> None:
        """Write the table if due; with `last` in any case."""
        if now_s < self._due_s and not last:
            return
        self._due_s = now_s + self._interval_s
        self._vitals.add(self.ROLE, self.ROLE, self._signs.now())
        report = self._vitals.due(counters, now_s, last=True)
        if report is not None:
            self._logbook.emit(report)
            self._logbook.timers(self._vitals.document(counters.wall_s))


class SerialLoop:
    """One run. Call `work` once; after an exception, `fail`.

    Several policies collect together, learn in turn, are saved and committed together, and end together.
    """

    def __init__(
        self,
        run: Experiment,
        members: Sequence[Member],
        collector: Collects,
        built: Built,
        hooks: RunHooks,
        timers: Timers,
    ) -> None:
        """`members` are in the order of the `run`; `collector` steps the environments. Raises UserCodeError if a
        callback does not accept its state."""
        self._run, self._members, self._collector, self._hooks = run, tuple(members), collector, hooks
        self._environments, self._task, self._timers = built.environments, Task(), timers
        self._timing = TimingReport(members[0].built.config, members[0].logbook, timers, hooks.clock())
        now_s = hooks.clock()
        for each in self._members:
            self._recover(each, now_s)
        self._link = SerialLink(
            run,
            members,
            built.player,
            built.environments.opponents,
            hooks.clock,
            timers,
            collector.rng,
            stop_collecting=self._stop_collecting,
            do_due_work=self._during_evaluation,
            before_commit=built.environments.flush_steps,
            report_times=lambda: self._timing.report(self.counters(), hooks.clock(), last=True),
        )
        self._collects = True
        self._sequence = 0
        self._summaries = [
            CollectSummary.of(
                each.built.config,
                before=None if each.resumed is None else each.resumed.counters,
                rows=None if each.recovered is None else each.training.replay.ledger.rows,
            )
            for each in self._members
        ]
        self._is_stopped = False
        self._shown_s = float("-inf")

    def _recover(self, member: Member, now_s: float) -> None:
        """Continue with the replay of the run's checkpoint."""
        recovered, training = member.recovered, member.training
        if recovered is not None:
            rows = 0 if member.resumed is None else member.resumed.progress_rows
            training.resume(recovered, (), now_s, progress_rows=rows)  # what may go is swept
        sweep_orphans(member.folder.data, training.replay.live_files())

    # --- the run ---

    def work(self) -> End:
        """Collect and learn in turn until the run is over; return the reason for the end."""
        self._link.lease_workers()
        self._follow_task()
        self._link.begin()
        self._do_due_work()  # a resumed run may be over already
        idle = 0
        while not self._run.over:
            idle = 0 if self._learn() or self._collect() else idle + 1
            if idle > MOST_IDLE_TURNS:
                raise ExperimentBrokenError(f"the run does not end: {self._run.state}")
            self._do_due_work()
        return self._close_logs()

    def fail(self, error: Exception, traceback: str) -> End:
        """Save as much as possible after an exception, and log the exception; return the reason for the end."""
        why = f"{type(error).__name__}: {error}"
        self._log_error(f"the run failed:\n{traceback}")
        try:
            self._abandon(End(why, why), without_learners=isinstance(error, DivergedError))
        except Exception as second:  # whatever broke the run may break this too
            self._log_error(f"the last checkpoint could not be saved: {type(second).__name__}: {second}")
            try:
                self._abandon(End(why, why), without_learners=True)
            except Exception:
                self._run.break_off(why, self._hooks.clock())
        return self._close_logs()

    def _abandon(self, end: End, *, without_learners: bool) -> None:
        """End the run as failed, and save the learners. Raises like `SerialLink.pump`."""
        for commander in self._commanders:
            commander.abandon_work()
            commander.fail(end)
        self._link.abandon(without_learners=without_learners)
        self._end()

    def _log_error(self, text: str) -> None:
        for each in self._members:
            each.logbook.say("commander", text, level="error")

    def _end(self) -> None:
        """Carry out the end of a failed run."""
        for _ in range(MOST_IDLE_TURNS):
            self._link.add(self._run.tick(self._hooks.clock()))
            self._link.pump()
            if self._run.over:
                return
        raise ExperimentBrokenError(f"the run does not end: {self._run.state}")

    def _close_logs(self) -> End:
        for each in self._members:
            results = self._link.results.get(each.built.name, {})
            each.logbook.conclude(settings_of(each.built.config), results)
        self._hooks.on_progress(self.status())
        assert self._run.ending is not None, "it is over"
        return self._run.ending

    # --- what holds ---

    @property
    def _commanders(self) -> list[Commander]:
        return [each.training.commander for each in self._members]

    def counters(self) -> Counters:
        """The present counters, see joined_counters."""
        now_s = self._hooks.clock()
        return joined_counters([each.training.counters(now_s) for each in self._members])

    def status(self) -> ExperimentStatus:
        """The present status."""
        return structs.replace(self._run.status(self._hooks.clock()), waiting_for=self._link.evaluation)

    # --- learning, collecting, and looking around ---

    def _learn(self) -> bool:
        """Let each policy learn from the available batches; return True after a request."""
        asked = [learner.ask() for learner in self._link.learners]
        self._link.pump()
        return any(asked)

    def _collect(self) -> bool:
        """Collect a chunk unless the run is ending; return True for a chunk."""
        replays = [each.training.replay for each in self._members]
        if not self._collects or replays[0].is_filled:
            return False
        slots = joint_plan([replay.plan for replay in replays]).chunk_slots
        if not any(replay.plan.on_policy for replay in replays):
            slots = min(slots, replays[0].env_steps_left())
        acting = [each.training.acting() for each in self._members]
        behaviors = [Behavior(each.exploration, each.policy) for each in acting]
        with self._timers("collect"):
            chunks = self._collector.collect(slots, behaviors)
        with self._timers("insert"):
            at_task = self._task.number
            self._announce([replace(collected, task=at_task) for collected in chunks] if at_task else chunks)
        self._link.pump()
        return True

    def _announce(self, chunks: Sequence[Collected]) -> None:
        """Count a chunk of each policy. Raises ChunkRefusedError."""
        chunk = ChunkId(SERIAL_WORKER, self._link.generation, self._sequence)
        metas = [collected.meta(chunk) for collected in chunks]
        self._environments.keep_steps(chunk, chunks)
        self._link.send(ChunkReady(self._link.collecting_lease, metas[0], metas[1:]))
        self._sequence += 1
        for learner, summary, meta, collected in zip(self._link.learners, self._summaries, metas, chunks, strict=True):
            learner.memory.insert(meta, collected.columns)
            summary.add(collected)
        self._report_collected()

    def _report_collected(self, *, last: bool = False) -> None:
        for each, summary in zip(self._members, self._summaries, strict=True):
            train_iter, env_step = each.training.flow.policy.train_iter, each.training.replay.ledger.env_step
            report = summary.due(train_iter=train_iter, env_step=env_step, last=last)
            if report is not None:
                each.logbook.emit(report)

    def _stop_collecting(self) -> None:
        self._collects = False
        self._report_collected(last=True)
        self._link.send(Drained(self._link.collecting_lease))

    def _do_due_work(self) -> None:
        """Carry out due work, independent of the time passed."""
        now_s = self._hooks.clock()
        self._check_stop(now_s)
        self._link.add(self._run.tick(now_s))
        self._link.pump()
        self._show(now_s)
        if not self._commanders[0].curriculum.stays:
            self._link.add(self._run.begin_tasks(now_s))
            self._link.pump()
            self._follow_task()

    def _during_evaluation(self, now_s: float) -> None:
        """Carry out due work during an evaluation."""
        self._check_stop(now_s)
        if self._show(now_s):
            self._link.add(self._run.tick(now_s))
        self._link.pump()

    def _check_stop(self, now_s: float) -> None:
        """End the run on request."""
        stop = self._hooks.stop
        if not self._is_stopped and stop.ending:
            self._is_stopped = True
            self._link.add(self._run.stop(now=True, explanation=f"interrupted: {stop.reason}", now_s=now_s))

    def _show(self, now_s: float) -> bool:
        """Show the progress and the use of time at intervals; return True when shown."""
        if now_s - self._shown_s < STATUS_INTERVAL_S:
            return False
        self._shown_s = now_s
        self._timing.report(self.counters(), now_s)
        self._hooks.on_progress(self.status())
        return True

    def _follow_task(self) -> None:
        """Collect at the present task. Raises EnvironmentBuildError."""
        task = self._commanders[0].curriculum.task
        if task != self._task:
            self._task = task
            self._environments.begin(task)
