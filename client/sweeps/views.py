"""Progress of a sweep, for people: a live table on a terminal, a line per event elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from remuda.client.progress import duration, number
from remuda.client.sweeps.record import RunRecord

PLAIN_INTERVAL_S = 30.0
"""Between two lines about a run without news, to keep log files short."""
LIVE_RUNS = 12
"""Rows of a live table: the running runs, then the newest of the rest."""


class SweepView(Protocol):
    """Shows the progress of a sweep."""

    def update(self, news: Sequence[RunRecord]) -> None:
        """Show records that may have changed."""
        ...

    def close(self) -> None:
        """End the view when the sweep is over."""
        ...


def plain_line(record: RunRecord, over: int, of: int) -> str:
    """Format a line about a run."""
    why = f" ({record.reason})" if record.reason else ""
    reached = f" | env_step {record.env_step} | return last {number(record.last_return)} best "
    shown = f"{reached}{number(record.best_return)} | {duration(record.wall_s)}" if record.env_step else ""
    return f"[{over}/{of}] {record.name}: {record.state}{why}{shown}"


class PlainSweepView:
    """Prints a line when the state of a run changes, and a line per running run every PLAIN_INTERVAL_S seconds."""

    def __init__(
        self,
        records: Sequence[RunRecord],
        output: IO[str],
        clock: Callable[[], float] = time.monotonic,
        *,
        of: int | None = None,
    ) -> None:
        """`of`: the final number of runs, if larger than the number of `records`."""
        self._records = {record.name: record for record in records}
        self._of = len(records) if of is None else of
        self._output = output
        self._clock = clock
        self._told_s = {record.name: -math.inf for record in records}

    def update(self, news: Sequence[RunRecord]) -> None:
        now_s = self._clock()
        for record in news:
            former = self._records.get(record.name)
            self._records[record.name] = record
            goes_on = record.state == "running" and now_s - self._told_s.get(record.name, -math.inf) >= PLAIN_INTERVAL_S
            if former is None or record.state != former.state or goes_on:
                self._told_s[record.name] = now_s
                over = sum(one.over for one in self._records.values())
                print(plain_line(record, over, self._of), file=self._output, flush=True)

    def close(self) -> None:
        """Do nothing: the lines stay."""


class LiveSweepView:
    """A table, redrawn in place."""

    def __init__(self, records: Sequence[RunRecord], console: Console, *, of: int | None = None) -> None:
        """`of`: see PlainSweepView."""
        self._of = len(records) if of is None else of
        self._records = {record.name: record for record in records}
        self._live = Live(self.picture(), console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def update(self, news: Sequence[RunRecord]) -> None:
        """Redraw."""
        self._records |= {record.name: record for record in news}
        self._live.update(self.picture())

    def picture(self) -> Table:
        """The table with the newest records."""
        records = list(self._records.values())
        over = sum(record.over for record in records)
        whole = Table.grid(padding=(0, 2))
        whole.add_row(f"{over} of {self._of} runs over", ProgressBar(total=self._of, completed=over, width=40))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in ("run", "state", "env_step", "last", "best", "time"):
            table.add_column(column, no_wrap=True, overflow="ellipsis")
        for record in _most_interesting(records):
            table.add_row(
                record.name,
                record.state,
                f"{record.env_step}",
                number(record.last_return),
                number(record.best_return),
                duration(record.wall_s),
            )
        outer = Table.grid()
        outer.add_row(whole)
        outer.add_row(table)
        return outer

    def close(self) -> None:
        """Remove the table before the summary."""
        self._live.stop()


def _most_interesting(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Choose LIVE_RUNS records: running runs first, then finished runs, then waiting runs; in the order of the grid."""
    rank = {"running": 0, "queued": 1, "failed": 1, "finished": 2, "stopped": 2, "waiting": 3}
    chosen = sorted(range(len(records)), key=lambda at: (rank[records[at].state], -at))[:LIVE_RUNS]
    return [records[at] for at in sorted(chosen)]


def open_view(records: Sequence[RunRecord], *, of: int | None = None) -> SweepView:
    """A live view where standard error is a terminal, plain lines elsewhere; `of`: see PlainSweepView."""
    if sys.stderr.isatty():
        return LiveSweepView(records, Console(file=sys.stderr), of=of)
    return PlainSweepView(records, sys.stderr, of=of)
