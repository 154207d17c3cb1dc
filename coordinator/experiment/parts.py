"""The parts of one experiment, made in the order in which they use each other."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.callbacks import CallbackDispatch
from remuda.coordinator.experiment.claims import Claims
from remuda.coordinator.experiment.deaths import Deaths
from remuda.coordinator.experiment.demand import WorkerDemand
from remuda.coordinator.experiment.dispatch import EvaluationDispatch
from remuda.coordinator.experiment.failures import Failures
from remuda.coordinator.experiment.flow_control import FlowControl
from remuda.coordinator.experiment.reanalysis import ReanalysisBook
from remuda.coordinator.experiment.shutdown import ExperimentShutdown
from remuda.coordinator.experiment.workers import ExperimentWorkers
from remuda.coordinator.leases import LeaseBook
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.identity import Identity
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.resume_point import ResumePoint
from remuda.training.status import LiveStatus
from remuda.training.vitals import Vitals

GENERATIONS_PER_RUN = 1_000
"""Distance between the generations of a run and of its resumed run, so that no worker gets random numbers that were
used before."""


@dataclass(frozen=True, kw_only=True)
class Books:
    """What is counted and remembered. None of them says anything to a worker."""

    replay: ReplayAccounting
    reanalysis: ReanalysisBook
    flow: FlowControl
    leases: LeaseBook
    failures: Failures
    deaths: Deaths
    progress: ProgressRows
    commander: Commander
    callbacks: CallbackBook
    vitals: Vitals

    @classmethod
    def of(cls, id: str, config: ExperimentConfig, now_s: float, resumed: ResumePoint | None) -> Books:
        """The books of a new experiment, or of a resumed one."""
        replay = ReplayAccounting(config, now_s, resumed=resumed, journaled=True)
        reanalysis = ReanalysisBook(id, config, replay)
        commander = Commander(config, resumed)
        flow = FlowControl(id, config, replay, reanalysis, commander.curriculum, resumed)
        first_lease = 0 if resumed is None else resumed.generation * GENERATIONS_PER_RUN
        leases = LeaseBook(first_lease, on_forget=flow.forget_lease)
        return cls(
            replay=replay,
            reanalysis=reanalysis,
            flow=flow,
            leases=leases,
            failures=Failures(),
            deaths=Deaths(),
            progress=ProgressRows(config, resumed, commander.curriculum),
            commander=commander,
            callbacks=CallbackBook(id, active=bool(config.callbacks)),
            vitals=Vitals(config.log.buffer_interval_s, now_s, lambda lease: leases.find(lease) is not None),
        )


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The books, and what decides by them."""

    books: Books
    dispatch: EvaluationDispatch
    demand: WorkerDemand
    status: LiveStatus
    workers: ExperimentWorkers
    shutdown: ExperimentShutdown
    claims: Claims
    callbacks: CallbackDispatch

    @classmethod
    def of(
        cls,
        identity: Identity,
        config: ExperimentConfig,
        config_json: str,
        now_s: float,
        resumed: ResumePoint | None,
    ) -> Parts:
        """The parts of a new experiment, or of a resumed one."""
        books = Books.of(identity.id, config, now_s, resumed)
        leases, replay, flow, reanalysis = books.leases, books.replay, books.flow, books.reanalysis
        dispatch = EvaluationDispatch(identity.id, books.commander, leases, books.progress, books.callbacks)
        callbacks = CallbackDispatch(
            experiment=identity.id, book=books.callbacks, leases=leases, commander=books.commander
        )
        workers = ExperimentWorkers(
            identity=identity,
            config_json=config_json,
            leases=leases,
            replay=replay,
            flow=flow,
            reanalysis=reanalysis,
            dispatch=dispatch,
            callbacks=callbacks,
        )
        return cls(
            books=books,
            dispatch=dispatch,
            demand=WorkerDemand(identity, config, leases, books.failures, now_s),
            status=LiveStatus(
                identity=identity,
                replay=replay,
                learning=flow,
                reanalyzed=reanalysis,
                commander=books.commander,
                before_s=0.0 if resumed is None else resumed.counters.wall_s,
            ),
            workers=workers,
            shutdown=ExperimentShutdown(
                experiment=identity.id,
                leases=leases,
                workers=workers,
                dispatch=dispatch,
                callbacks=callbacks,
                save_s=config.limits.save_s,
            ),
            claims=Claims(
                config=config,
                leases=leases,
                replay=replay,
                flow=flow,
                reanalysis=reanalysis,
                callbacks=callbacks,
                curriculum=books.commander.curriculum,
            ),
            callbacks=callbacks,
        )
