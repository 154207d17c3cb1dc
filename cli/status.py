"""`remuda status`: the coordinator with workers and experiments now, and a run over time (`--history`)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.connecting import ConnectionPath, connected
from remuda.cli.errors import InputError
from remuda.cli.options import DEFAULT_RUNS_DIR, AsJson, RunsDir
from remuda.cli.output import json_text, new_console, table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from remuda.logbook.series import Evaluation, Event, Interval, Moment
    from remuda.storage.notes import Notes
    from remuda.wire.messages import ExperimentStatus, RefusalCounts, Status, WorkerStatus

EXAMPLE = "remuda status --watch"
WATCH_S = 1.0
NARROW_WIDTH = 110
"""Terminals with fewer characters per line are narrow."""

Which = Annotated[
    str | None,
    typer.Argument(metavar="EXPERIMENT", help="Id, beginning of an id, or name; with --history also a run folder."),
]
History = Annotated[
    bool,
    typer.Option("--history", help="Show one run over time, read from its folder. Needs EXPERIMENT."),
]
Watch = Annotated[bool, typer.Option("--watch", help="Update every second, until Ctrl-C.")]


def status(
    experiment: Which = None,
    as_json: AsJson = False,
    watch: Watch = False,
    history: History = False,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
) -> None:
    """Show the coordinator, all workers, and all experiments with the reasons for waiting."""
    if watch and (as_json or history):
        raise InputError(f"give only one of {'--json' if as_json else '--history'} and --watch")
    if history:
        show_history(experiment, runs_dir, connection_file, as_json=as_json)
        return
    with connected(connection_file, runs_dir) as client:
        if watch:
            from rich.console import Console

            show_live(lambda: client.status(experiment), Console())
            return
        found = client.status(experiment)
    if as_json:
        print(json_text(found))
    else:
        console = new_console()
        console.print(picture(found, console.width))


def show_live(ask: Callable[[], Status], console: Console, pause: Callable[[float], None] = time.sleep) -> None:
    """Show the status of this moment in place of the last, until Ctrl-C, and wait for a restarted coordinator. Raises
    UnreachableError after RETURN_DEADLINE_S without an answer."""
    from rich.console import Group
    from rich.live import Live

    from remuda.client.client import RETURN_DEADLINE_S, with_retries

    with Live(console=console, auto_refresh=False, screen=False) as live, suppress(KeyboardInterrupt):
        shown = picture(ask(), console.width)

        def wait() -> None:
            text = f"no coordinator answers: waiting for it, at most {RETURN_DEADLINE_S:g} s"
            live.update(Group(text, "", shown), refresh=True)
            pause(WATCH_S)

        while True:
            live.update(shown, refresh=True)
            pause(WATCH_S)
            shown = picture(with_retries(ask, wait), console.width)


def picture(status: Status, width: int) -> RenderableType:
    """The whole status as tables, for a terminal with `width` characters per line."""
    from rich.console import Group
    from rich.text import Text

    from remuda.client.progress import duration

    known = status.coordinator
    head = Text(f"coordinator {known.id[:8]} at {known.address}, pid {known.pid}, up {duration(known.uptime_s)}")
    load = known.load
    busy = (
        f"longest turn {load.longest_turn_s:.3f} s in the last minute, {load.longest_turn_ever_s:.3f} s ever; "
        f"{load.descriptors} of {load.descriptor_limit} files and connections open"
    )
    narrow = width < NARROW_WIDTH
    workers = _workers(status.workers, status.experiments, narrow=narrow)
    heads = [head, Text(busy)] if load.descriptor_limit else [head]  # at its very start there is no load yet
    refused = _refused(known.refusals)
    heads += [Text(refused)] if refused else []
    return Group(*heads, "", _experiments(status.experiments, narrow=narrow), "", workers)


def _refused(refusals: RefusalCounts) -> str:
    """Return the numbers of refusals, by reason; empty without refusals."""
    from msgspec.structs import asdict

    counts = {reason.replace("_", " "): count for reason, count in asdict(refusals).items() if count}
    return f"refused: {', '.join(f'{reason} {count}' for reason, count in counts.items())}" if counts else ""


def _experiments(experiments: list[ExperimentStatus], *, narrow: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from remuda.client.progress import duration, number
    from remuda.logbook.lines import one_line

    if not experiments:
        return "no experiments"
    columns = ("experiment", "name", "state", "env_step", "/s", "train_iter", "/s", "last", "best", "time")
    rows = [
        (
            e.id[:8],
            e.name,
            e.state,
            f"{e.env_step}",
            f"{e.env_steps_per_s:.0f}",
            f"{e.train_iter}",
            f"{e.train_iters_per_s:.0f}",
            number(e.last_return),
            number(e.best_return),
            duration(e.wall_s),
        )
        for e in experiments
    ]
    whys = ((e, e.waiting_for or e.reason) for e in experiments)
    said = [f"{e.name} {e.state}: {why}" for e, why in whys if why and why != e.state]
    said += [
        f"{e.name}: {e.reanalyzed_rows} rows computed again, the newest with the target network of iteration "
        f"{e.target_train_iter}"
        for e in experiments
        if e.reanalyzed_rows
    ]
    said += [
        f"{e.name}: {p.name}: train_iter {p.train_iter}, {p.train_iters_per_s:.0f}/s, last {number(p.last_return)}, "
        f"best {number(p.best_return)}"
        for e in experiments
        for p in e.policies
    ]
    return Group(table(columns, rows, narrow=narrow), *(Text(one_line(line)) for line in said))


def _workers(workers: list[WorkerStatus], experiments: list[ExperimentStatus], *, narrow: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from remuda.logbook.lines import one_line

    if not workers:
        return "no workers: start some with `remuda worker`"
    names = {e.id: e.name for e in experiments}
    columns = ("worker", "role", "state", "experiment", "doing", "busy", "cores", "heard", "memory", "process")
    rows = [
        (
            f"{w.uuid[:8]}.{w.incarnation}",
            w.role,
            w.state,
            "-" if w.experiment is None else names.get(w.experiment, w.experiment[:8]),
            w.activity,
            "-" if w.work_share is None else f"{100 * w.work_share:.0f} %",
            f"{w.cpu_cores:.2f}",
            f"{w.beat_age_s:.1f} s",
            f"{w.rss_bytes / 2**20:.0f} MiB",
            f"{w.pid} on {w.host}",
        )
        for w in sorted(workers, key=lambda w: (w.role, w.uuid))
    ]
    return Group(table(columns, rows, narrow=narrow), *(Text(one_line(line)) for line in _hosts(workers)))


def _hosts(workers: list[WorkerStatus]) -> list[str]:
    """Return a line per machine: workers, cores and memory, as reported by the workers."""
    lines: list[str] = []
    for host in sorted({w.host for w in workers if w.cpus}):
        here = [w for w in workers if w.host == host]
        cores, memory_bytes = max(w.cpus for w in here), max(w.memory_bytes for w in here)
        lines.append(f"workers on {host}: {len(here)}; cores {cores}, memory {memory_bytes / 2**30:.1f} GiB")
    return lines


MOST_ROWS = 40
"""Rows of the table; in a longer run several intervals share a row."""
MOST_EVENTS = 20
"""Newest events shown below the table."""
_WAITS = ("data", "policy", "credit", "other")


def show_history(which: str | None, runs_dir: Path, connection_file: Path | None, *, as_json: bool) -> None:
    """Print the history. Raises InputError for an unknown run, and for a run that has written nothing yet."""
    from remuda.logbook.series import read_series
    from remuda.storage.notes import read_notes
    from remuda.storage.run_folder import RunFolder

    if which is None:
        raise InputError("name a run: remuda status --history RUN, where RUN is its folder, its id or its name")
    folder = RunFolder(_folder(which, runs_dir, connection_file))
    path = folder.series
    try:
        moments = read_series(path)
        if as_json:
            _print_json(moments)
        else:
            _print_table(list(moments), read_notes(folder))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist (yet): the first interval of this run is not over") from None


def _folder(which: str, runs_dir: Path, connection_file: Path | None) -> Path:
    """Return the run folder: `which` is a folder, a name in the runs folder, or an id or name at the coordinator."""
    from remuda.storage.run_folder import RunFolder

    for root in (Path(which), runs_dir / which):
        if RunFolder(root).config_json.is_file():
            return root
    if Path(which).is_dir() or os.sep in which:
        raise InputError(f"{which} is not a run folder: it has no config.json")
    with connected(connection_file, runs_dir) as client:
        run_dir = Path(client.status(which).experiments[0].run_dir)
    if not run_dir.is_dir():
        raise InputError(f"the run folder of {which}, {run_dir}, does not exist on this machine")
    return run_dir


def _print_json(moments: Iterable[Moment]) -> None:
    """Print a JSON list with a record per line, record by record, so that a long run needs no memory."""
    import msgspec

    separator = "["
    for moment in moments:
        print(f"{separator}{msgspec.json.encode(moment).decode()}", end="")
        separator = ",\n"
    print("]" if separator != "[" else "[]")


def _print_table(moments: Sequence[Moment], notes: Notes) -> None:
    from rich.text import Text

    console = new_console()
    for name, text in (("note", notes.note), ("tags", ", ".join(notes.tags))):
        if text:
            console.print(Text(f"{name}: {' '.join(text.split())}"))
    console.print(history_table(moments))


@dataclass
class _Row:
    """Consecutive intervals in one row of the table."""

    intervals: Sequence[Interval]
    evaluated: float | None = None
    """Mean return of the newest evaluated checkpoint saved in these intervals."""
    waits: dict[str, str] = field(default_factory=dict[str, str])
    """By role."""

    @property
    def end_s(self) -> float:
        return self.intervals[-1].wall_s

    @property
    def return_mean(self) -> float | None:
        """Mean return of all training episodes reported in these intervals."""
        told = [(each.episodes, each.return_mean) for each in self.intervals if each.return_mean is not None]
        episodes = sum(count for count, _ in told)
        return sum(count * mean for count, mean in told) / episodes if episodes else None


def history_table(moments: Sequence[Moment]) -> RenderableType:
    """The table over time and the events, for a terminal."""
    from rich.console import Group
    from rich.text import Text

    from remuda.client.progress import duration
    from remuda.logbook.lines import one_line
    from remuda.logbook.series import Evaluation, Event, Interval

    intervals = [moment for moment in moments if isinstance(moment, Interval)]
    evaluations = [moment for moment in moments if isinstance(moment, Evaluation)]
    rows = _rows(intervals, evaluations)
    roles = sorted({usage.role for interval in intervals for usage in interval.roles}, key=_place)
    columns = (
        "time",
        "env_step",
        "/s",
        "train_iter",
        "/s",
        "return",
        "evaluated",
        *(f"{role} waits" for role in roles),
    )
    shown = table(columns, [_cells(row, roles) for row in rows], narrow=False)
    told = [moment for moment in moments if isinstance(moment, Evaluation | Event)]
    events = [f"{duration(moment.wall_s):>8}  {_words(moment)}" for moment in told]
    left_out = len(events) - MOST_EVENTS
    head = [f"({left_out} events before these: --json has all)"] if left_out > 0 else []
    lines = [Text(one_line(line)) for line in (*head, *events[-MOST_EVENTS:])]
    return Group(shown if rows else "no interval is over yet", *([""] if lines else []), *lines)


def _rows(intervals: Sequence[Interval], evaluations: Sequence[Evaluation]) -> list[_Row]:
    size = -(-len(intervals) // MOST_ROWS) or 1
    rows = [_Row(intervals[begin : begin + size]) for begin in range(0, len(intervals), size)]
    begin_s = -1.0
    for row in rows:
        within = [each.return_mean for each in evaluations if begin_s < each.wall_s <= row.end_s]
        row.evaluated, begin_s = (within[-1] if within else None), row.end_s
        for role in {usage.role for interval in row.intervals for usage in interval.roles}:
            row.waits[role] = _waits(row.intervals, role)
    return rows


def _waits(intervals: Sequence[Interval], role: str) -> str:
    """Return the share of a role's waiting time, with its main reason."""
    seconds: dict[str, float] = dict.fromkeys(_WAITS, 0.0)
    total_s = 0.0
    for interval in intervals:
        for usage in interval.roles:
            if usage.role == role:
                total_s += interval.past_s * usage.processes
                shares = (usage.wait_data, usage.wait_policy, usage.wait_credit, usage.wait_other)
                for kind, share in zip(_WAITS, shares, strict=True):
                    seconds[kind] += share * interval.past_s * usage.processes
    waited = sum(seconds.values()) / total_s if total_s > 0 else 0.0
    most = max(seconds, key=seconds.__getitem__)
    return f"{100 * waited:.0f} % {most}" if round(100 * waited) else "0 %"


def _cells(row: _Row, roles: Sequence[str]) -> list[str]:
    from remuda.client.progress import duration, number

    last = row.intervals[-1]
    return [
        duration(last.wall_s),
        f"{last.env_step}",
        f"{_rate(row.intervals, [each.env_steps_per_s for each in row.intervals]):.0f}",
        f"{last.train_iter}",
        f"{_rate(row.intervals, [each.train_iters_per_s for each in row.intervals]):.0f}",
        number(row.return_mean),
        number(row.evaluated),
        *(row.waits.get(role, "-") for role in roles),
    ]


def _rate(intervals: Sequence[Interval], rates: Sequence[float]) -> float:
    """The time average of `rates`."""
    total_s = sum(interval.past_s for interval in intervals)
    weighted = sum(rate * interval.past_s for rate, interval in zip(rates, intervals, strict=True))
    return weighted / total_s if total_s > 0 else 0.0


def _words(moment: Evaluation | Event) -> str:
    from remuda.client.progress import number
    from remuda.logbook.series import Event

    if isinstance(moment, Event):
        return moment.text
    best = " (the best so far)" if moment.best else ""
    return f"{moment.checkpoint}: mean return {number(moment.return_mean)} over {moment.episodes} episodes{best}"


def _place(role: str) -> tuple[int, str]:
    """Return the sort key of a role: roles in the order of the data path."""
    order = ("collector", "learner", "evaluator", "coordinator")
    return (order.index(role) if role in order else len(order), role)
