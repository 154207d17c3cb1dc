"""`remuda status`: the coordinator, its workers and its experiments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.connecting import ConnectionPath, connected
from remuda.cli.errors import InputError
from remuda.cli.options import DEFAULT_RUNS_DIR, AsJson, RunsDir
from remuda.cli.output import PLAIN_WIDTH, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from remuda.client.client import Client
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
    """Show the coordinator, its workers and its experiments, with the reasons for waiting."""
    if as_json and watch:
        raise InputError("give only one of --json and --watch; a program can call --json repeatedly")
    if history and watch:
        raise InputError("give only one of --history and --watch")
    if history:
        from remuda.cli.history import show_history

        show_history(experiment, runs_dir, connection_file, as_json=as_json)
        return
    with connected(connection_file, runs_dir) as client:
        if watch:
            _watch(client, experiment)
            return
        found = client.status(experiment)
    if as_json:
        print(json_text(found))
    else:
        from rich.console import Console

        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = PLAIN_WIDTH
        console.print(picture(found, console.width))


def _watch(client: Client, experiment: str | None) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, auto_refresh=False, screen=False) as live:
        try:
            while True:
                live.update(picture(client.status(experiment), console.width), refresh=True)
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            return


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
    heads = (
        [head, Text(busy)] if load.descriptor_limit else [head]
    )  # at its very start it has not measured its load yet
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


def json_text(status: Status) -> str:
    """Return the status as JSON, with the notes of runs in folders of this machine."""
    import msgspec

    from remuda.storage.notes import read_notes
    from remuda.storage.run_folder import RunFolder

    plain = msgspec.to_builtins(status)
    plain.pop("type", None)
    for each in plain["experiments"]:
        each |= msgspec.to_builtins(read_notes(RunFolder(Path(each["run_dir"]))))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
