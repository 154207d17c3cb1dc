"""`remuda report` and `remuda quota`: the use of the herd by user, project, run and day, and its limits."""

from __future__ import annotations

import csv
import json
import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.connecting import ConnectionPath, connected
from remuda.cli.errors import InputError
from remuda.cli.options import DEFAULT_RUNS_DIR, AsJson, RunsDir, epilog, new_group
from remuda.cli.output import PLAIN_WIDTH, new_console, table

if TYPE_CHECKING:
    from remuda.wire.messages import AccountStatus, Quota, Used

REPORT_EXAMPLE = "remuda report --by user --since 7d"

By = Annotated[Literal["user", "project", "run", "day"], typer.Option(help="What a line is about.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="24h, 7d, 2026-11-28 or 2026-11-28T14 (UTC); default: all."),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="As --since: the hour after the last (default: now).")]
Watts = Annotated[
    tuple[float, float] | None,
    typer.Option(metavar="CORE GPU", help="Watts of a busy core and of a leased GPU: adds kwh_estimated."),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")]
Account = Annotated[str, typer.Argument(metavar="ACCOUNT", help="user/NAME (the name of a key) or project/NAME.")]
Weight = Annotated[
    float | None, typer.Option(metavar="W", min=1e-6, help="Share of the herd beside other accounts (1).")
]
Workers = Annotated[int | None, typer.Option(metavar="N", min=0, help="Most workers at a time.")]
WorkerHours = Annotated[float | None, typer.Option(metavar="H", min=0.0, help="Most worker-hours in --days.")]
EnvSteps = Annotated[int | None, typer.Option(metavar="N", min=0, help="Most environment steps in --days.")]
Days = Annotated[int | None, typer.Option(metavar="D", min=1, max=366, help="Days until now for both limits (7).")]

_HEADS = {"user": ("user",), "project": ("project",), "run": ("name", "experiment", "user", "project"), "day": ("day",)}

group = new_group("Weights and limits of users and projects at a coordinator.", example="remuda quota show")


def report(
    by: By = "user",
    since: Since = None,
    until: Until = None,
    watts: Watts = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
) -> None:
    """Show what the runs of a coordinator have used: time of workers, GPUs and processors, steps, updates and bytes.

    Hours are whole: a run counts in each hour with what was counted in the hour.
    """
    if as_csv and as_json:
        raise InputError("give only one of --csv and --json")
    if watts is not None and not all(0 <= each < 1e6 for each in watts):
        raise InputError(f"--watts {watts[0]:g} {watts[1]:g}: give the watts of a core and of a GPU, 0 or more")
    from remuda.wire.messages import Used

    now_s = time.time()
    with connected(connection_file, runs_dir) as client:
        lines = client.bill(
            by,
            since_hour=0 if since is None else hour_of(since, now_s),
            until_hour=None if until is None else hour_of(until, now_s),
        )
    rows: list[dict[str, str | float]] = [
        {head: getattr(line, head) for head in (*_HEADS[by], "runs")} | _amounts(line.used, watts) for line in lines
    ]
    total = _amounts(sum((line.used for line in lines), Used()), watts)
    if as_json:
        print(json.dumps(rows, indent=2))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, [*_HEADS[by], "runs", *total], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    elif not rows:
        print("nothing was used in this time")
    else:
        _print_table(rows, total, _HEADS[by])


def hour_of(text: str, now_s: float) -> int:
    """Return the hour since 1970 (UTC) that a user means. Raises InputError."""
    if (ago := re.fullmatch(r"(\d{1,5})([hd])", text)) is not None:
        return int(now_s // 3_600) - int(ago[1]) * (24 if ago[2] == "d" else 1)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "write 24h, 7d, 2026-11-28 or 2026-11-28T14"
        raise InputError(f"{text!r} is no time: {hint}; dates are in UTC") from error
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() // 3_600)


def _amounts(used: Used, watts: tuple[float, float] | None) -> dict[str, str | float]:
    """The amounts with their names, times in seconds."""
    times = {"worker_s": used.worker_us / 1e6, "gpu_s": used.gpu_us / 1e6, "cpu_s": used.cpu_us / 1e6}
    counts = {"env_steps": used.env_steps, "updates": used.updates, "payload_bytes": used.payload_bytes}
    core, gpu = watts or (0.0, 0.0)
    energy = {"kwh_estimated": (core * used.cpu_us + gpu * used.gpu_us) / 3.6e12}
    return {**times, **counts, **(energy if watts is not None else {})}


def _print_table(rows: Sequence[dict[str, str | float]], total: dict[str, str | float], heads: Sequence[str]) -> None:
    lines = [[_cell(name, value) for name, value in row.items()] for row in rows]
    if len(rows) > 1:
        lines.append(["all", *[""] * len(heads), *(_cell(name, value) for name, value in total.items())])
    new_console().print(table([*rows[0]], lines, narrow=False))


def _cell(name: str, value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.6f}" if name == "kwh_estimated" else f"{value:.1f}"
    return (str(value)[:8] if name == "experiment" else str(value)) or "-"


# --- quotas ---


@group.command(epilog=epilog("remuda quota show"))
def show(as_json: AsJson = False, runs_dir: RunsDir = DEFAULT_RUNS_DIR, connection_file: ConnectionPath = None) -> None:
    """Show all accounts with a quota or with recent use, and the order of the queue."""
    import msgspec

    with connected(connection_file, runs_dir) as client:
        accounts = client.quotas()
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(accounts), indent=2).decode())
        return
    from rich.console import Console

    columns = ("account", "weight", "share_h", "workers", "worker_h", "env_steps", "days")
    rows = [_row(each) for each in sorted(accounts, key=lambda each: each.share_hours)]
    Console(highlight=False, width=PLAIN_WIDTH).print(table(columns, rows, narrow=False) if rows else "no accounts yet")


def _row(account: AccountStatus) -> list[str]:
    quota, used = account.quota, account.used
    return [
        quota.account,
        f"{quota.weight:g}",
        f"{account.share_hours:.3f}",
        f"{account.workers}" + _of(quota.workers),
        f"{used.worker_us / 3.6e9:.3f}" + _of(quota.worker_hours),
        f"{used.env_steps}" + _of(quota.env_steps),
        f"{quota.days}",
    ]


def _of(most: float | None) -> str:
    return "" if most is None else f" of {most if isinstance(most, int) else format(most, 'g')}"


@group.command("set", epilog=epilog("remuda quota set user/alice --weight 2 --workers 8 --worker-hours 100"))
def set_(
    account: Account,
    weight: Weight = None,
    workers: Workers = None,
    worker_hours: WorkerHours = None,
    env_steps: EnvSteps = None,
    days: Days = None,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
) -> None:
    """Set weight and limits of a user or project; options left out keep their values.

    A limit holds back runs that have not begun, and further workers; no worker is taken away.
    """
    from msgspec.structs import replace

    given = {"weight": weight, "workers": workers, "worker_hours": worker_hours, "env_steps": env_steps, "days": days}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise InputError("give at least one of --weight, --workers, --worker-hours, --env-steps and --days")
    quota = _quota(account)
    with connected(connection_file, runs_dir) as client:
        known = next((each.quota for each in client.quotas() if each.quota.account == account), quota)
        client.set_quota(replace(known, **changes))


@group.command(epilog=epilog("remuda quota clear user/alice"))
def clear(account: Account, runs_dir: RunsDir = DEFAULT_RUNS_DIR, connection_file: ConnectionPath = None) -> None:
    """Remove weight and limits of a user or project."""
    quota = _quota(account)
    with connected(connection_file, runs_dir) as client:
        limited = [each.quota.account for each in client.quotas() if not each.quota.is_empty]
        if account not in limited:
            raise InputError(f"{account} has no quota; accounts with a quota: {', '.join(limited) or 'none'}")
        client.set_quota(quota)


def _quota(account: str) -> Quota:
    """Return the quota of an account without limits. Raises InputError."""
    import msgspec

    from remuda.wire.messages import Quota

    try:
        return msgspec.convert({"account": account}, Quota)
    except msgspec.ValidationError:
        raise InputError(f"{account!r} is no account: write user/NAME or project/NAME") from None
