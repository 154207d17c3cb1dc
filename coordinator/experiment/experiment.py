"""An experiment in the coordinator, from queue to end: the parts, and the actions due after every event.

Pure: every method takes an event and a clock reading, and returns steps to be carried out (see effects.py).
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import Broken, CloseRun, Reply, Step
from remuda.coordinator.experiment.messages import MessageHandlers
from remuda.coordinator.experiment.parts import Parts
from remuda.coordinator.leases import Sender
from remuda.coordinator.limits import Hold
from remuda.coordinator.scheduler import Demand, Holding
from remuda.environments.assignment import config_of_policy
from remuda.logbook.reports import EventReport
from remuda.logbook.tensorboard import results_of
from remuda.training.commander.end import ON_REQUEST, End
from remuda.training.effects import Happened, LogLine
from remuda.training.identity import Identity
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.resume_point import ResumePoint
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import (
    AnyMessage,
    ChunkMeta,
    ChunkReady,
    Counters,
    ExperimentState,
    ExperimentStatus,
    Phase,
    Role,
)

P = ParamSpec("P")


class _AnyRun(Protocol):
    @property
    def identity(self) -> Identity: ...

    @property
    def replay(self) -> ReplayAccounting: ...

    @property
    def refusal(self) -> Callable[[AnyMessage, Sender], str | None]: ...

    def receive(self, message: AnyMessage, sender: Sender, now_s: float) -> list[Step]: ...


RunT = TypeVar("RunT", bound=_AnyRun)


def guarded(method: Callable[Concatenate[RunT, P], list[Step]]) -> Callable[Concatenate[RunT, P], list[Step]]:
    """Let an error inside an experiment end only this experiment."""

    @wraps(method)
    def contained(self: RunT, /, *arguments: P.args, **named: P.kwargs) -> list[Step]:
        try:
            return method(self, *arguments, **named)
        except Exception as error:
            return [_broken(self.identity, error)]

    return contained


def _broken(identity: Identity, error: Exception) -> Broken:
    return Broken(identity.id, f"{type(error).__name__}: {error}", traceback.format_exc())


class Experiment:
    """Holds the coordinator's state of one experiment and decides the next steps."""

    def __init__(
        self,
        identity: Identity,
        config: ExperimentConfig,
        now_s: float,
        resumed: ResumePoint | None = None,
        *,
        serial: bool = False,
    ) -> None:
        """`serial`: all workers are in this process and take turns. The loop of the process calls `begin_tasks`: no
        task begins between an event and the commit of the decisions of callbacks about it."""
        self.serial = serial
        self.identity = identity
        self.config_json = config.model_dump_json()
        """The config of the run, as submitted and resolved."""
        self.held_up: Hold | None = None
        """None while the disk of the run accepts writes."""
        self.room_sought_s = -math.inf
        """Time of the last search for disk space for its workers."""
        limits = config.limits
        self.longest_s: Mapping[Phase, float] = {"preparing": limits.prepare_s, "saving": limits.save_s}
        """Time limits of the workers for preparing and saving without progress, by phase."""
        own = config_of_policy(config, identity.policy)
        self.parts = parts = Parts(identity, own, self.config_json, now_s, resumed, serial=serial)
        self.messages = MessageHandlers(parts)
        self.refusal = self.messages.refusal
        """Returns the reason why a message about a lease of the experiment cannot be true; None if possible."""
        self.replay = parts.replay
        """Counted and sampleable experience."""
        self.may_redraw = not parts.replay.plan.on_policy
        """The journal may lag behind sampling: rows drawn with replacement may be drawn again."""
        self._flow, self._leases, self._reanalysis = parts.flow, parts.leases, parts.reanalysis
        self._failures, self._vitals = parts.failures, parts.vitals
        self._progress, self._commander = parts.progress, parts.commander
        self._dispatch, self._demand, self._status = parts.dispatch, parts.demand, parts.status
        self._workers, self._shutdown, self._callbacks = parts.workers, parts.shutdown, parts.callbacks

    # --- how it stands ---

    @property
    def state(self) -> ExperimentState:
        """State shown by `remuda status`."""
        return self._status.state

    @property
    def over(self) -> bool:
        """Nothing more will happen."""
        return self._status.over

    def status(self, now_s: float) -> ExperimentStatus:
        """Return the status shown by `remuda status`."""
        explained = None if self.over else self._demand.explain(now_s, running=self.state == "running")
        if self.held_up is not None and not self.over:
            explained = f"held up: {self.held_up.explain(now_s)}"
        if explained is None and not self.over and (awaited := self._shutdown.awaits_evaluation) is not None:
            explained = f"waits for the evaluation of {awaited}"
        return self._status.status(explained, now_s)

    def event(self, happened: Happened, now_s: float) -> EventReport:
        """Return the entry of the time series for this event."""
        return happened.report(self._status.counters(now_s))

    def work_share(self, worker: str) -> float | None:
        """Share of the last seconds in which this worker did not wait; None before the first report."""
        return self._vitals.work_share(worker)

    def drains(self, number: int) -> bool:
        """True if the worker with this lease is about to end its work."""
        lease = self._leases.open_leases.get(number)
        return lease is not None and lease.draining

    # --- its workers ---

    def demand(self, now_s: float) -> Demand | None:
        """Return the missing workers, or None. An ending run needs evaluators only."""
        if not self._failures.none and self._failures.rest(now_s)[0]:
            return None
        if self._commander.ending is None:
            return self._demand.demand(now_s, started=self._status.state != "queued")
        return self._demand.demand(now_s, roles=("evaluator",)) if self._shutdown.lacks_evaluator else None

    def holding(self) -> Holding:
        """Return the workers to spare, and those already returning."""
        return self._demand.holding(keeps=self._commander.ending is not None)

    @guarded
    def wait(self, reason: str | None, now_s: float) -> list[Step]:
        """Set the scheduler's explanation of missing workers; None if complete."""
        news = self._demand.wait(reason, now_s)
        return [LogLine(self.identity.id, reason)] if news and reason else []

    def start(self, now_s: float) -> None:
        """Start the clock of the run, with its first worker."""
        if self.state == "queued":
            self._status.start(now_s)
            self.replay.start(now_s)
            self._vitals.start(now_s)

    @guarded
    def assign(self, holder: LeaseHolder, now_s: float) -> list[Step]:
        """Add a worker chosen by the scheduler."""
        self.start(now_s)
        return self._workers.join(holder)

    @guarded
    def lend(self, role: Role, count: int, to: str) -> list[Step]:
        """Give workers back for another experiment in need of them."""
        return self._workers.lend(role, count, to)

    def takes(self, role: Role) -> bool:
        """True if the run still takes a worker of this role. A run that ends takes evaluators only."""
        if self.over or self._commander.ending is None:
            return not self.over
        return role == "evaluator" and self._shutdown.lacks_evaluator

    @guarded
    def back(self, number: int, now_s: float) -> list[Step]:
        """Repeat possibly lost messages to a worker that is back after a restart of the coordinator."""
        lease = self._leases.open_leases.get(number)
        if lease is None:
            return []
        return self._callbacks.repeat(lease) + self._workers.back(lease, self._status.counters(now_s))

    @property
    def lease_numbers(self) -> list[int]:
        """Numbers of the open leases."""
        return [lease.number for lease in self._leases]

    @property
    def holders(self) -> list[LeaseHolder]:
        """Holders of the open leases."""
        return [lease.holder for lease in self._leases]

    # --- what happens ---

    def receive(self, message: AnyMessage, sender: Sender, now_s: float) -> list[Step]:
        """Handle a message about an open or closed lease, after `refusal` has accepted it."""
        try:
            return self.messages.receive(message, sender, now_s) + self.do_due(now_s)
        except Exception as error:
            return [_broken(self.identity, error)]

    @guarded
    def worker_gone(self, number: int, why: str, now_s: float, *, handed_in: bool, died: str = "") -> list[Step]:
        """End the lease of a worker that was lost, left, or started a new incarnation. `handed_in`: no data is lost.
        `died`: the end of a process that is dead or seems dead."""
        lease = self._leases.open_leases.get(number)
        if lease is not None and died:
            self._failures.died(lease, died, now_s)
            hopeless = self._failures.hopeless_deaths(now_s)
            if hopeless is not None:
                self._commander.end(End(hopeless, hopeless), skip_final_evaluation=True)
        return self._workers.gone(number, why, handed_in=handed_in, died=bool(died)) + self.do_due(now_s)

    @guarded
    def stop(self, *, now: bool, explanation: str, now_s: float, nobody_comes: bool = False) -> list[Step]:
        """Stop the run, on request. `nobody_comes`: lost workers will not be replaced."""
        if self.over:
            return []
        self._shutdown.nobody_comes = self._shutdown.nobody_comes or nobody_comes
        hurried = self._shutdown.hurry()
        self._commander.end(End(ON_REQUEST, explanation), skip_final_evaluation=now)
        return hurried + self.do_due(now_s)

    @guarded
    def save_now(self, now_s: float) -> list[Step]:
        """Have the learner save, unless the run ends, a save is under way, or nothing was learned since the last."""
        counters = self._status.counters(now_s)
        return (
            self._dispatch.carry_out(self._commander.save_now(counters), counters, now_s) if self._flow.is_open else []
        )

    @property
    def is_saving(self) -> bool:
        """True while a present learner has not answered a request to save."""
        return self._commander.saving is not None and bool(self._leases.ready("learner"))

    @property
    def ending(self) -> End | None:
        """Reason for the end; None while the run continues."""
        return self._commander.ending

    def break_off(self, reason: str, now_s: float) -> None:
        """Mark the run as failed; no more is written of it."""
        self._status.finish(End(reason, reason), now_s)

    @guarded
    def tick(self, now_s: float) -> list[Step]:
        """Time has passed."""
        if self._status.over or self._status.state == "queued":
            return []  # the run folder is closed, and its clock has stopped
        self._status.note_rates(now_s)
        self._reanalysis.tick()
        counters = self._status.counters(now_s)
        reports = self.parts.buffer_reports(counters, now_s) + self.parts.vital_signs(counters, now_s)
        return reports + self._flow.tick(now_s) + self.do_due(now_s, counters)

    def do_due(self, now_s: float, counters: Counters | None = None) -> list[Step]:
        """Do the due work: a row of progress.txt, a save, the end, or the next stage of the end. `counters`: present
        counters, if known to the caller."""
        if self._status.over:
            return []
        counters = counters or self._status.counters(now_s)
        steps: list[Step] = []
        if self._progress.is_due(counters) and self._shutdown.stage in ("working", "draining"):
            steps += self.parts.progress_rows(counters)
        if self._reanalysis.deletable:
            steps += self._reanalysis.delete()
        if self._flow.is_open:
            if self._reanalysis.share:
                steps += self._reanalysis.ask()
            if decisions := self._commander.progressed(counters):
                steps += self._dispatch.carry_out(decisions, counters, now_s)
            if not (self._commander.curriculum.stays or self.serial):
                steps += self.begin_tasks(now_s)
        else:
            self._shutdown.check_bounds(counters, now_s)
        end = self._commander.ending
        if end is not None:
            steps += self._end(end, counters, now_s)
        if self._callbacks.book.active and not self._status.over:
            steps += self._callbacks.send_due(counters, now_s)
        return steps

    def begin_tasks(self, now_s: float) -> list[Step]:
        """Begin the due task, and inform collectors. Later messages repeat the task: a loss does no harm."""
        steps = self._dispatch.begin_tasks(self.replay.ledger.env_step)
        if steps and self._flow.keeps_account:
            for lease in self._leases.ready("collector"):
                steps += self._flow.repeat(lease.number)
        return steps

    def _end(self, end: End, counters: Counters, now_s: float) -> list[Step]:
        if self.state == "queued":
            return self._finish(end, now_s)
        steps: list[Step] = []
        if self._shutdown.stage == "working":
            self._status.state = "stopping"
            steps += self._shutdown.begin(end, now_s)
        steps += self._shutdown.advance(counters, now_s)
        return steps + self._finish(end, now_s) if self._shutdown.complete else steps

    def _finish(self, end: End, now_s: float) -> list[Step]:
        self._status.finish(end, now_s)
        files = self.replay.live_files() | self._reanalysis.live_files
        closed = CloseRun(self.identity.id, files, results_of(self._status.status(None, now_s)))
        return [*self.parts.last_reports(end, now_s), closed]

    def leftover_files(self) -> list[Step]:
        """Return deletable payload files of an earlier incarnation, once."""
        return self.parts.leftover_files()

    @property
    def members(self) -> tuple[Experiment, ...]:
        """Itself; see Team."""
        return (self,)

    # --- after a restart ---

    @guarded
    def adopt(self, metas: Sequence[ChunkMeta], now_s: float) -> list[Step]:
        """See `adopted`."""
        return adopted(self, metas, now_s)


def adopted(run: _AnyRun, metas: Sequence[ChunkMeta], now_s: float) -> list[Step]:
    """Count a chunk found in data/ after a restart, since the worker may have ended without a coordinator. `metas` has
    the part of every policy. If the worker still announces the chunk, it counts once all the same."""
    first, ledger, id = metas[0], run.replay.ledger, run.identity.id
    lease = ledger.lease_of_missing(first.chunk)
    if lease is None:
        return []
    sender = Sender(first.chunk.worker, first.chunk.incarnation)
    message = ChunkReady(lease, first, list(metas[1:]))
    why = run.refusal(message, sender)
    if why is not None:
        return [LogLine(id, f"payload {first.file} is left aside: {why}", "warning")]
    before = ledger.env_step
    steps: list[Step] = [step for step in run.receive(message, sender, now_s) if not isinstance(step, Reply)]
    if ledger.env_step > before:
        steps.append(LogLine(id, f"counts {first.file}, which nobody had announced"))
    return steps
