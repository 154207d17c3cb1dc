"""All views of the page as objects for JSON, from run folders and, if present, the coordinator."""

from __future__ import annotations

import socket
import threading
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from shlex import quote

from msgspec import Struct
from pydantic import JsonValue

from remuda.client.sweeps.record import SweepFileError, read_sweep
from remuda.config.algorithms.base import EXAMPLES
from remuda.page import log_files
from remuda.page.checkpoints import Checkpoints, Films, checkpoints
from remuda.page.commands import Evaluations
from remuda.page.comparing import MOST_RUNS, Comparison, Settings, compared, origins_and_text, side_by_side
from remuda.page.coordinator_link import CoordinatorLink, Presence
from remuda.page.curves import Charts, Quantity, csv_pieces, curves
from remuda.page.herd import Failure, Herd, LedgerView, Queue, failures_of, herd, ledger_view, newest, queue
from remuda.page.library import REQUEST_S, Budget, Library
from remuda.page.lineage import Family, family
from remuda.page.process import PageRight
from remuda.page.run_ids import MOST_DEPTH, RunIds, UnknownRunError, whole_run
from remuda.page.run_rows import run_ids, run_rows, with_headline
from remuda.page.series_reader import EVALUATION_NAMES, INTERVAL_NAMES, newest_interval
from remuda.page.stored_runs import RunRow, StoredRuns
from remuda.page.timeline import RecentShares, Timeline, timeline
from remuda.storage.untrusted import read_bounded
from remuda.wire.messages import OVER, Status

API = 3
MOST_CURVES = 200
_RECENT_RUNS = 20
"""Number of recently changed runs whose failures are shown, besides failures of running runs."""
_MOST_LOOKED_INTO = 20
"""Most running runs with a current wait in a list."""
_MOST_FILMS = 64
"""Most runs with remembered films."""
_MOST_EXAMPLE_BYTES = 64 << 10


class Session(Struct, frozen=True, kw_only=True):
    """Facts about this page, and the permissions of its user."""

    right: PageRight
    live: bool
    of_launch: bool
    """True for a herd that was started for a run, and ends with the run."""
    coordinator: Presence
    since_s: float | None
    """Begin of the coordinator's silence: seconds since 1970; None while the coordinator answers."""
    version: str
    api: int
    runs_dir: str
    host: str
    actions: list[str]
    operator_command: str
    """Prints a link with the right operator, on the machine of the runs folder."""


class SweepView(Struct, frozen=True):
    """A sweep."""

    sweep: str
    runs: int


class RunList(Struct, frozen=True):
    """All runs."""

    runs: list[RunRow]
    complete: bool
    sweeps: list[SweepView]


class RunView(Struct, frozen=True):
    """A run."""

    run: RunRow
    ledger: LedgerView | None
    """None if unknown: for runs of earlier versions, and before the first interval."""
    stop: dict[str, object]


class Views:
    """All views. Thread-safe; needs `close`."""

    def __init__(self, runs_dir: Path, link: CoordinatorLink, *, of_launch: bool = False) -> None:
        """Set up the views. `of_launch` marks a herd that was started for a run. The folder may lie among unrelated
        files, so only sibling folders are scanned."""
        self.ids = RunIds(runs_dir, 1 if of_launch else MOST_DEPTH)
        self._of_launch = of_launch
        self.link = link
        self.stored = StoredRuns(self.ids)
        self.library = Library(self.ids)
        self.evaluations = Evaluations()
        self._going_on = RecentShares(self.library, self.ids)
        self._films: OrderedDict[str, Films] = OrderedDict()
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the threads and running evaluations."""
        self.evaluations.close()
        self.library.close()
        self.link.close()

    def session(self, right: PageRight, actions: Sequence[str]) -> Session:
        """Return the session of a user with this right and these actions."""
        seen = self.link.look()
        return Session(
            right=right,
            live=seen.presence != "none",
            of_launch=self._of_launch,
            coordinator=seen.presence,
            since_s=seen.silent_since_s,
            version=version("remuda"),
            api=API,
            runs_dir=self.ids.runs_dir.name,
            host=socket.gethostname(),
            actions=list(actions),
            operator_command=self._operator_command(),
        )

    def _operator_command(self) -> str:
        runs_dir, file = self.ids.runs_dir, self.link.connection_file
        if file is None:
            return f"remuda page {quote(str(runs_dir))} --right operator"
        where = "" if file == runs_dir / "connection.json" else f" --connection-file {quote(str(file))}"
        return f"remuda page {quote(str(runs_dir))} --link{where}"

    # --- facts of the coordinator ---

    def herd(self) -> Herd:
        """Raises NoCoordinatorError."""
        status = self.link.status()
        return herd(status, run_ids(status, self.ids), self.failures(status))

    def queue(self) -> Queue:
        """Raises NoCoordinatorError."""
        status = self.link.status()
        return queue(status, run_ids(status, self.ids))

    def failures(self, status: Status) -> list[Failure]:
        """Return the failures of running and recently changed runs."""
        going = [run for each in status.experiments if each.state not in OVER and (run := self.ids.id_of(each.run_dir))]
        recent = [each.run for each in self.stored.all()[:_RECENT_RUNS]]
        budget = Budget(REQUEST_S)
        found: list[Failure] = []
        for run in dict.fromkeys([*going, *recent]):
            try:
                with self.library.series(self._first_policy(run), budget) as reader:
                    found += failures_of(run, reader.events)
            except (UnknownRunError, OSError):
                continue  # no folder yet, or removed
        return newest(found)

    # --- runs ---

    def runs(self) -> RunList:
        rows = self._with_headlines(run_rows(self.stored.all(), self.link.recent_status(), self.ids))
        sweeps = [SweepView(name, count) for name, count in sorted(self.stored.sweeps().items())]
        return RunList(rows, self.stored.complete, sweeps)

    def row(self, run: str) -> RunRow:
        """Return the row of a run, also for the id of a policy. Raises UnknownRunError."""
        run = whole_run(run)
        stored = self.stored.one(run)
        row = next(row for row in run_rows([stored], self._status_of(run), self.ids) if row.run == run)
        return self._with_headlines([row], self._stop(run))[0]

    def _with_headlines(self, rows: Sequence[RunRow], stop: Mapping[str, object] | None = None) -> list[RunRow]:
        """Return the rows with sentences. Only the first of many running runs mention their current wait."""
        status = self.link.recent_status()
        waiting = [] if status is None else queue(status, run_ids(status, self.ids)).experiments
        queued = {each.id: each for each in waiting}
        running = [row.run for row in rows if row.state == "running" and row.why is None and row.run is not None]
        recent = {run: self._going_on.shares(run) for run in running[:_MOST_LOOKED_INTO]}
        return [
            with_headline(row, queued.get(row.experiment or ""), recent.get(row.run or "", {}), stop or {})
            for row in rows
        ]

    def _stop(self, run: str) -> dict[str, object]:
        """The bounds of a run's config. Raises UnknownRunError."""
        stop = self.stored.settings(run).get("stop")
        return dict(stop) if isinstance(stop, dict) else {}

    def run(self, run: str) -> RunView:
        """Return one run. Raises UnknownRunError, OSError."""
        row = self.row(run)
        return RunView(
            run=row,
            ledger=self._ledger(run, row),
            stop=self._stop(run),
        )

    def _ledger(self, run: str, row: RunRow) -> LedgerView | None:
        """Return the counts of the coordinator, or of the newest interval in the run's time series."""
        status = None if row.run is None else self._status_of(row.run)
        live = [] if status is None else [each.ledger for each in status.experiments if each.id == row.experiment]
        if live and live[0] is not None:
            return ledger_view(live[0])
        last = newest_interval(self.ids.folder(self._first_policy(run)).series)
        return None if last is None or last.ledger is None else ledger_view(last.ledger)

    def alive(self, run: str) -> list[tuple[str, int]]:
        """Return UUIDs and incarnations of the current workers of a run; empty without a coordinator."""
        status = self.link.recent_status()
        if status is None:
            return []
        of_run = {experiment for experiment, its in run_ids(status, self.ids).items() if its == run}
        return [(worker.uuid, worker.incarnation) for worker in status.workers if worker.experiment in of_run]

    def curves(self, runs: Sequence[str], quantities: Sequence[Quantity], points: int) -> Charts:
        """Return the curves of some runs, or of all policies of the runs. Raises UnknownRunError."""
        known = {each.run: each for each in self.stored.all()}
        chosen = [known[run] if run in known else self.stored.one(run) for run in self._each_policy(runs)]
        return curves(self.library, chosen, quantities, points=points, budget=Budget(REQUEST_S))

    def metrics(self, runs: Sequence[str]) -> dict[str, list[str]]:
        """Return the names of the quantities of these runs by source. Raises UnknownRunError, OSError."""
        columns = [self.library.columns(run) for run in self._each_policy(runs)]
        progress = dict.fromkeys(name for names in columns for name in names)
        found = {"evaluation": [*EVALUATION_NAMES], "interval": [*INTERVAL_NAMES], "progress": [*progress]}
        budget, logged = Budget(REQUEST_S), dict[str, None]()
        with self.library.first():
            for run in self._each_policy(runs):
                with self.library.series(run, budget) as reader:
                    logged.update(dict.fromkeys(reader.logged))
        return {**found, "callback": [*logged]} if logged else found

    def csv(self, runs: Sequence[str], quantity: Quantity) -> Generator[bytes]:
        """Returns all values of these runs as a CSV table, in pieces. Raises UnknownRunError."""
        return csv_pieces([(run, self.ids.folder(run)) for run in self._each_policy(runs)], quantity)

    def _each_policy(self, runs: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(one for run in runs for one in self.ids.each_policy(run)))

    def timeline(self, run: str, buckets: int, from_s: float, to_s: float) -> Timeline:
        """Return the timeline of a run or policy. Raises UnknownRunError, OSError."""
        run = self._first_policy(run)
        with self.library.first(), self.library.series(run, Budget(REQUEST_S)) as reader:
            return timeline(reader, buckets=buckets, from_s=from_s, to_s=to_s)

    def checkpoints(self, run: str) -> Checkpoints:
        """Return the checkpoints of a run or policy. Raises UnknownRunError, OSError."""
        folder = self.ids.folder(self._first_policy(run))
        return checkpoints(folder, self.films(run), self.evaluations.of(whole_run(run)))

    def films(self, run: str) -> Films:
        """Return the films of a run. Raises UnknownRunError."""
        folder = self.ids.folder(run)
        with self._lock:
            found = self._films.setdefault(run, Films(folder))
            self._films.move_to_end(run)
            while len(self._films) > _MOST_FILMS:
                self._films.popitem(last=False)
        return found

    def logs(self, run: str) -> list[log_files.LogFile]:
        """Return the logs of a run. Raises UnknownRunError."""
        return log_files.log_files(self.ids.folder(run).log, self.alive(run))

    def settings(self, runs: Sequence[str]) -> Settings:
        """Side by side. Raises UnknownRunError."""
        folders = [self.ids.folder(run) for run in runs]
        loaded = [origins_and_text(folder) for folder in folders]
        texts = [text for _, text in loaded if text is not None and len(runs) == 1]
        return side_by_side(
            runs, [self.stored.settings(run) for run in runs], [origins for origins, _ in loaded], texts
        )

    def compared(self, runs: Sequence[str], sweep: str | None) -> Comparison:
        """Return a table of these runs; otherwise of the sweep's runs, or of all runs."""
        rows = [row for row in run_rows(self.stored.all(), self.link.recent_status(), self.ids) if row.run is not None]
        if runs:
            wanted = set(runs)
            rows = [row for row in rows if row.run in wanted]
        elif sweep is not None:
            rows = [row for row in rows if row.sweep == sweep]
        rows = rows[:MOST_RUNS]
        return compared(rows, {row.run: self._settings_of(row.run) for row in rows if row.run is not None})

    def lineage(self, sweep: str) -> Family:
        """Return the lineage of a sweep's population. Raises UnknownRunError."""
        if sweep not in self.stored.sweeps():
            raise UnknownRunError(f"there is no sweep {sweep[:100]!r}")
        try:
            content = read_sweep(self.ids.runs_dir / sweep, follow_link=False)
        except (SweepFileError, OSError) as error:
            return Family(problem=str(error))
        rows = run_rows(self.stored.all(), self.link.recent_status(), self.ids)
        return Family() if content is None else family(sweep, content, {row.run: row for row in rows if row.run})

    def examples(self) -> list[dict[str, str]]:
        """`name` and `text` of configs to begin with."""
        files = sorted(EXAMPLES.glob("*.yaml"))
        return [
            {"name": file.name, "text": read_bounded(file, most_bytes=_MOST_EXAMPLE_BYTES).decode()} for file in files
        ]

    def _first_policy(self, run: str) -> str:
        """Return the id of the first policy of a run with several policies; otherwise the run's own id. Raises
        UnknownRunError."""
        return self.ids.each_policy(run)[0]

    def _settings_of(self, run: str) -> dict[str, JsonValue]:
        try:
            return dict(self.stored.settings(run))
        except UnknownRunError:
            return {}

    def _status_of(self, run: str) -> Status | None:
        """Return the status with the experiments of a run alone."""
        status = self.link.recent_status()
        if status is None:
            return None
        return Status(
            status.coordinator, [], [each for each in status.experiments if self.ids.id_of(each.run_dir) == run]
        )
