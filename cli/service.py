"""`remuda coordinator` and `remuda worker`: the processes of a herd, in the foreground."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.connecting import ConnectionPath, connection_path
from remuda.cli.errors import FAILED, InputError, RunFailedError
from remuda.cli.options import DEFAULT_RUNS_DIR, LimitOption, RunsDir, RunsDirOrAddress, on_disk, parse_limits
from remuda.cli.page import PageAt, PageSwitch, check_page, coordinator_page
from remuda.wire.patience import COORDINATOR_TIMEOUT_S, spoken

if TYPE_CHECKING:
    from remuda.coordinator.settings import Settings
    from remuda.deploy.rank_place import RankPlace
    from remuda.storage.bucket.shipping import Shipping
    from remuda.worker.shutdown_guard import ShutdownGuard

COORDINATOR_EXAMPLE = "remuda coordinator --runs-dir runs"
WORKER_EXAMPLE = "remuda worker collector --count 2 --runs-dir runs"

AllowCode = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="Folder from which the configs of other users may name code (env.make and the like); repeatable.",
    ),
]
Bind = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR",
        help="host:port to listen on (default: the former address, else a free port of 127.0.0.1).",
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="What the connection file names, where others reach this machine by another address than it chooses.",
    ),
]
StreamPort = Annotated[
    int,
    typer.Option(
        metavar="PORT",
        min=0,
        max=65_535,
        help="Port for the files of workers that do not see the runs folder (default: any free port).",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Serve /health and /metrics (Prometheus) there, without a key; without HOST only to this machine "
        "(default: not served).",
    ),
]
RoleArgument = Annotated[
    Literal["collector", "evaluator", "learner", "reanalyzer", "inference"],
    typer.Argument(metavar="ROLE", help="collector, evaluator, learner, reanalyzer or inference."),
]
Count = Annotated[int, typer.Option(metavar="N", min=1, help="Number of workers.")]
CoordinatorTimeout = Annotated[
    float,
    typer.Option(
        metavar="S",
        min=1.0,
        help="Seconds that workers wait for a coordinator that is missing or silent, before they end.",
    ),
]


def coordinator(
    bind: Bind = None,
    advertise: Advertise = None,
    stream_port: StreamPort = 0,
    runs_dir: RunsDirOrAddress = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
    limit: LimitOption = None,
    http: Http = None,
    page: PageSwitch = None,
    page_at: PageAt = None,
    allow_code: AllowCode = None,
) -> None:
    """Run a coordinator until told to end. After a crash, the next start continues every experiment.

    A first Ctrl-C stops every experiment cleanly, saves, and ends. A second Ctrl-C ends at once; the next start
    continues. At an address such as s3://bucket/herd, all runs are copied there, and after the loss of this machine the
    next start on another machine continues.
    """
    from remuda.coordinator.__main__ import GRACE_S
    from remuda.coordinator.settings import Settings
    from remuda.logbook.streams import best_effort_stderr
    from remuda.worker.shutdown_guard import ShutdownGuard

    check_page(page)
    address = None if bind is None else _address(bind)
    advertised, limits = None if advertise is None else _advertised(advertise), parse_limits(limit or [])
    folder = on_disk(runs_dir)
    settings = Settings(
        folder.absolute(),
        connection_path(connection_file, folder),
        address,
        persistent=True,
        limits=limits,
        stream_port=stream_port,
        advertised=advertised,
        http=http,
        allowed_code=tuple(folder.absolute() for folder in allow_code or []),
    )
    with (
        _bucket(runs_dir) as bucket,
        _input_errors(),
        best_effort_stderr(),
        ShutdownGuard(grace_s=GRACE_S) as guard,
    ):
        if bucket is not None:
            bucket.when_moved(guard.end)
        _serve(settings, guard, page, page_at)


def _bucket(runs_dir: Path) -> AbstractContextManager[Shipping | None]:
    """Open the bucket of a runs folder at an address, to continue all runs, or to begin. Raises BucketError."""
    from remuda.storage.bucket.address import address_of_folder
    from remuda.storage.bucket.shipping import Shipping

    address = address_of_folder(runs_dir)
    if address is None:
        return nullcontext()
    say = partial(print, file=sys.stderr, flush=True)
    return Shipping(address, "resume", say, has_runs=True)  # also for a new herd


def _serve(settings: Settings, guard: ShutdownGuard, page: bool | None, page_at: str | None) -> None:
    from remuda.coordinator.service import Service
    from remuda.worker.process import gc_frozen

    file = settings.connection_file
    with gc_frozen():
        service = Service(settings, guard)
    others = "" if service.address == service.listens_on else f", reached at {service.address}"
    print(f"coordinator listens on {service.listens_on}{others}; connection file {file}", file=sys.stderr)
    print(
        f"workers join with: remuda worker collector --connection-file {quote(str(file))}",
        file=sys.stderr,
        flush=True,
    )
    for line in service.monitoring_lines:
        print(line, file=sys.stderr, flush=True)
    with coordinator_page(
        page,
        page_at,
        coordinator=service.id,
        runs_dir=settings.runs_dir,
        connection_file=file,
        keys_dir=settings.keys_dir,
    ):
        service.run()


@contextmanager
def _input_errors() -> Generator[None]:
    """Explain errors in the options, or of the machine, when a coordinator cannot be served."""
    from remuda.coordinator.addresses import CannotListenError, ConnectionFileTakenError
    from remuda.coordinator.monitoring.address import HttpAddressError
    from remuda.storage.lock import FolderOwnedError
    from remuda.training.journal_database import JournalError

    try:
        yield
    except HttpAddressError as error:
        raise InputError(f"--http {error}") from error
    except CannotListenError as error:
        raise InputError(f"{error.option} {error}: choose an address of this machine and a free port") from error
    except ConnectionFileTakenError as error:
        raise InputError(f"{error}: choose another --connection-file") from error
    except FolderOwnedError as error:
        raise InputError(f"{error}: two coordinators cannot share a runs folder") from error
    except JournalError as error:
        raise RunFailedError(str(error)) from error
    except OSError as error:
        if error.filename is None:
            raise RunFailedError(str(error)) from error
        raise InputError(f"{error.filename} cannot be written: {error.strerror}; choose another --runs-dir") from error


def worker(
    role: RoleArgument,
    count: Count = 1,
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
    coordinator_timeout: CoordinatorTimeout = COORDINATOR_TIMEOUT_S,
) -> None:
    """Join a coordinator with workers of a role.

    Crashed workers are restarted, however often, after pauses that double up to 32 s. If the coordinator is silent or
    restarted, the workers wait and continue their work. Under torchrun a learner is one rank, and torchrun restarts the
    ranks.
    """
    file = connection_path(connection_file, runs_dir)
    place = _rank_place(role, count)
    if place is not None:
        from remuda.deploy.torchrun import run_rank

        exit_code = run_rank(place, file, runs_dirs=[runs_dir.absolute()], coordinator_timeout_s=coordinator_timeout)
        _exit_with(exit_code)
        return

    from remuda.deploy.nanny import new_workers, supervise

    missing = "" if file.exists() else f", which does not exist yet; waiting at most {spoken(coordinator_timeout)}"
    whom = role if count == 1 else f"{count} {role}s"
    print(f"{whom} for the coordinator of {file}{missing}", file=sys.stderr, flush=True)
    exit_code = supervise(
        new_workers({role: count}), file, runs_dirs=[runs_dir.absolute()], coordinator_timeout_s=coordinator_timeout
    )
    _exit_with(exit_code)


def _exit_with(exit_code: int) -> None:
    if exit_code:
        raise typer.Exit(exit_code if exit_code in (FAILED, 3) else FAILED)


def _rank_place(role: str, count: int) -> RankPlace | None:
    """Return the learner rank of this process; None if torchrun did not start the process.

    Raises InputError, RankPlaceError.
    """
    from remuda.deploy.rank_place import rank_place

    place = rank_place(os.environ)
    if place is not None and (role != "learner" or count != 1):
        raise InputError(
            "torchrun starts the ranks of one learner: start other workers without it (or without its environment "
            "variables RANK and WORLD_SIZE)"
        )
    return place


def _advertised(text: str) -> str:
    """Check an advertised address. Raises InputError for a malformed address."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?", text):
        raise InputError(f"--advertise {text!r}: a host such as 10.0.0.5 or node7, or host:port")
    return text


def _address(bind: str) -> str:
    """Return the address in ZeroMQ's form. Raises InputError for a malformed address."""
    host, _, port = bind.removeprefix("tcp://").rpartition(":")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InputError(f"--bind {bind!r}: an address of IPv6 is written in brackets, as in [2001:db8::7]:5555")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InputError(f"--bind {bind!r}: an address is host:port, such as 127.0.0.1:5555 (port 0: any free port)")
    return f"tcp://{host}:{port}"
