"""Snapshot of a whole run, made of snapshots of its parts and of rows, and the format of the journal.

Rows of a kind are journaled apart, as soon as they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from remuda.training.league import LeagueSnapshot
from remuda.training.snapshot import (
    AccountSnapshot,
    CallbacksSnapshot,
    CountedSnapshot,
    DeathsSnapshot,
    DispatchSnapshot,
    FailuresSnapshot,
    FlowSnapshot,
    LeaseBookSnapshot,
    LeaseSnapshot,
    NewEpisodes,
    PlaceSnapshot,
    ProgressSnapshot,
    ReanalysisRow,
    ReanalysisSnapshot,
    ReplaySnapshot,
    RestSnapshot,
    Snapshot,
)
from remuda.wire.messages import (
    Counters,
    ExperimentState,
    ExperimentStatus,
    Used,
)

Stage = Literal["working", "draining", "settling", "releasing"]
"""Progress of the end; see ExperimentShutdown."""


class Identity(Struct, array_like=True):
    """Names, folder and priority of an experiment; only the priority may change. Stored by position: a new field goes
    to the end, with a default."""

    id: str
    name: str
    run_dir: str
    policy_file: str
    priority: int
    """Experiments with a higher priority get workers first."""
    submitted: int
    """Number among all experiments, in order of submission."""
    config_json: str = ""
    """The config of the run, as submitted and resolved; empty once the run is over."""
    policy: str = ""
    """Name of the policy; empty in a run with a single policy."""
    user: str = ""
    """Name of the key that submitted the experiment."""
    project: str = ""
    """As in the config."""


class Row(Protocol):
    """State of a lease, place or worker."""

    @property
    def key(self) -> int | str:
        """Key among rows of its kind."""
        ...


RowT = TypeVar("RowT", bound=Row)
KeyT = TypeVar("KeyT", int, str)


class Rows(Struct, Generic[RowT], frozen=True):
    """Changed rows of one kind, and the keys of removed rows."""

    put: tuple[RowT, ...] = ()
    gone: tuple[int | str, ...] = ()


class ChangedRows(Generic[KeyT]):
    """Keeps the keys of changed rows; a row itself is made only when needed."""

    def __init__(self) -> None:
        self.put: set[KeyT] = set()
        """The row of this key is new or different."""
        self._gone: set[KeyT] = set()

    def drop(self, key: KeyT) -> None:
        """The row of this key is gone."""
        self.put.discard(key)
        self._gone.add(key)

    def take(self, row: Callable[[KeyT], RowT]) -> Rows[RowT]:
        """The changes since the last call; `row` makes the row of a key."""
        rows = Rows(tuple(row(key) for key in sorted(self.put)), tuple(sorted(self._gone - self.put)))
        self.put, self._gone = set(), set()
        return rows


class HourRow(Snapshot, frozen=True):
    """Row: the use of a run from the beginning to the end of an hour; see Meter."""

    hour: int
    """Hours since 1970, UTC."""
    used: Used

    @property
    def key(self) -> int:
        """Key among rows of its kind."""
        return self.hour


class MeterSnapshot(Snapshot, frozen=True):
    """See Meter."""

    counted_us: int = 0
    """Time up to which leases are counted, by the clock of the machine since its boot."""
    hour: int = 0
    worker_us: int = 0
    gpu_us: int = 0
    cpu_us: int = 0
    before: Used = Used()
    absent: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    hours: list[HourRow] = field(default_factory=list[HourRow])


class Changes(Struct, frozen=True):
    """The changes of an experiment's rows."""

    lease: Rows[LeaseSnapshot] = Rows()
    place: Rows[PlaceSnapshot] = Rows()
    account: Rows[AccountSnapshot] = Rows()
    counted: Rows[CountedSnapshot] = Rows()
    rest: Rows[RestSnapshot] = Rows()
    reanalysis: Rows[ReanalysisRow] = Rows()
    hour: Rows[HourRow] = Rows()
    whole: bool = False
    """All rows: earlier rows in the journal, of another incarnation of the run, are void."""


class ExperimentSnapshot(Snapshot, frozen=True):
    """See Experiment."""

    state: ExperimentState
    reason: str | None
    stage: Stage
    failures: int  # in a row
    wall_s: float
    replay: ReplaySnapshot
    flow: FlowSnapshot
    leases: LeaseBookSnapshot
    dispatch: DispatchSnapshot
    progress: ProgressSnapshot
    workers_failures: FailuresSnapshot = FailuresSnapshot()
    deaths: list[DeathsSnapshot] = field(default_factory=list[DeathsSnapshot])
    reanalysis: ReanalysisSnapshot = ReanalysisSnapshot()
    stage_left_s: float | None = None
    callbacks: CallbacksSnapshot = CallbacksSnapshot()
    league: LeagueSnapshot | None = None
    """Of the first policy: the league of all policies."""
    meter: MeterSnapshot = MeterSnapshot()
    preempted_by: str = ""
    """See Preemption."""

    def with_rows(self, rows: Changes) -> ExperimentSnapshot:
        """This, with these rows."""
        replay, flow = self.replay, self.flow
        ledger = replace(replay.ledger, counted=[*rows.counted.put])
        return replace(
            self,
            replay=replace(replay, ledger=ledger),
            flow=replace(flow, accounts=[*rows.account.put]),
            leases=replace(self.leases, leases=[*rows.lease.put], places=[*rows.place.put]),
            workers_failures=replace(self.workers_failures, workers=[*rows.rest.put]),
            reanalysis=replace(self.reanalysis, newest=[*rows.reanalysis.put]),
            meter=replace(self.meter, hours=[*rows.hour.put]),
        )


class HeadSnapshot(Snapshot, frozen=True):
    """Parts of a run that change with nearly every turn, and the format, by which readers accept the rest."""

    format: int
    """Comes first in every format."""
    leases: int
    boot: str
    state: ExperimentState
    reason: str | None
    stage: Stage
    failures: int
    wall_s: float
    stage_left_s: float | None = None
    """See ExperimentShutdown.left_s; missing in earlier versions of Remuda."""
    meter: MeterSnapshot = MeterSnapshot()
    preempted_by: str = ""


class RunSnapshot(Snapshot, frozen=True):
    """Content of a journal except chunks; without rows if Changes has them."""

    format: int
    identity: Identity
    experiment: ExperimentSnapshot
    leases: int
    """Highest lease number of this coordinator."""
    boot: str = ""
    """Boot id of the machine at writing; empty if unknown."""

    def with_rows(self, rows: Changes) -> RunSnapshot:
        """This, with these rows."""
        return replace(self, experiment=self.experiment.with_rows(rows))

    def with_episodes(self, journaled: Iterable[NewEpisodes]) -> RunSnapshot:
        """Return the snapshot with all training episodes since the last row of progress.txt, and the waiting rows."""
        progress = self.experiment.progress
        progress = replace(progress, ended=[*progress.ended, *(chunk for new in journaled for chunk in new.chunks)])
        return replace(self, experiment=replace(self.experiment, progress=progress))

    @property
    def counters(self) -> Counters:
        """The run's counters when this was written."""
        ledger, flow = self.experiment.replay.ledger, self.experiment.flow
        return Counters(
            env_step=ledger.env_steps,
            train_iter=flow.train_iter,
            episode=ledger.episodes,
            policy_version=flow.policy.version,
            wall_s=self.experiment.wall_s,
        )


class FinishedRun(Snapshot, frozen=True):
    """Replaces a finished and journaled experiment, to free memory, above all the replay index. Also the row in the
    list of runs."""

    identity: Identity
    last: ExperimentStatus
    unrecoverable: bool = False
    """An unrecoverable run of a previous coordinator: at best, a user can resume the run."""
    hours: list[HourRow] = field(default_factory=list[HourRow])
    """Use of the run; see Meter.hours."""
    over: ClassVar[bool] = True

    @staticmethod
    def of(identity: Identity, last: ExperimentStatus, hours: Iterable[HourRow] = ()) -> FinishedRun:
        """Return a finished run with its last status and its use; the config is in the run folder."""
        return FinishedRun(replace(identity, config_json=""), last, hours=[*hours])

    def at(self, run_dir: str) -> FinishedRun:
        """Return the run with its folder at this place."""
        return replace(self, identity=replace(self.identity, run_dir=run_dir), last=replace(self.last, run_dir=run_dir))

    @property
    def state(self) -> ExperimentState:
        """State in the last status."""
        return self.last.state

    def status(self, now_s: float) -> ExperimentStatus:
        """Return the status shown by `remuda status`."""
        return self.last


FORMAT = 4
"""Raised when a field changes its meaning; journals of another format are not read."""
