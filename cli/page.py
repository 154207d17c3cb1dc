"""`remuda page`: a page about stored runs, or the link to the page of a coordinator."""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import typer

from remuda.cli.connecting import ConnectionPath, connection_path
from remuda.cli.errors import InputError
from remuda.cli.options import DEFAULT_RUNS_DIR, on_disk

if TYPE_CHECKING:
    from remuda.page.process import PageProcess, Tokens

EXAMPLE = "remuda page runs"

PageSwitch = Annotated[
    bool | None,
    typer.Option(
        "--page/--no-page",
        envvar="REMUDA_PAGE",
        help="Serve a page about the herd and its runs, and print the link to it (default: if remuda[page] is "
        "installed).",
    ),
]
PageAt = Annotated[
    str | None,
    typer.Option(
        "--page-at",
        metavar="[HOST:]PORT",
        help="Where the page is served; without HOST only to this machine (default: the former port, else a free one).",
    ),
]
Folder = Annotated[
    Path,
    typer.Argument(
        metavar="RUNS_DIR", envvar="REMUDA_RUNS_DIR", help="The folder of all run folders.", callback=on_disk
    ),
]
At = Annotated[
    str,
    typer.Option("--at", metavar="[HOST:]PORT", help="Where to serve it; without HOST only to this machine."),
]
LinkOnly = Annotated[
    bool, typer.Option("--link", help="Print the link to the page that the coordinator of RUNS_DIR serves, and end.")
]
Right = Annotated[
    Literal["viewer", "operator"] | None,
    typer.Option(
        "--right",
        help="What the link allows: viewer reads; operator also submits, stops, evaluates (default: viewer; "
        "with --link operator).",
    ),
]


def page(
    runs_dir: Folder = DEFAULT_RUNS_DIR,
    at: At = "0",
    link: LinkOnly = False,
    right: Right = None,
    connection_file: ConnectionPath = None,
) -> None:
    """Serve a page about the runs in RUNS_DIR, also finished runs, until Ctrl-C. The page needs no coordinator; with a
    running coordinator, the page also shows its workers."""
    if link:
        print(_link(runs_dir, connection_file, right or "operator"))
        return
    from remuda.page.process import Tokens
    from remuda.worker.shutdown_guard import ShutdownGuard

    if not runs_dir.is_dir():
        raise InputError(f"{runs_dir} is not a folder: give the folder that holds the run folders")
    _require()
    file = connection_path(connection_file, runs_dir)
    ended = threading.Event()
    with ShutdownGuard() as guard, _serving([at], Tokens.fresh(), runs_dir, file if file.exists() else None) as served:
        guard.on_end(ended.set)
        _print_link(served, right or "viewer")
        ended.wait()


@contextmanager
def coordinator_page(
    wanted: bool | None, at: str | None, *, coordinator: str, runs_dir: Path, connection_file: Path, keys_dir: Path
) -> Generator[None]:
    """Serve the page of the coordinator with this id while the body runs, and print the link. Takes the port of the
    former page, if free, so that an open page finds the new one. Raises InputError."""
    if not _is_wanted(True if wanted is None and at is not None else wanted):
        yield
        return
    from remuda.page.process import AddressFile, Tokens
    from remuda.wire.keys.secret_file import read_secret

    kept = AddressFile(keys_dir)
    tokens = Tokens.of(read_secret(keys_dir / "operator"))
    addresses = [at] if at is not None else [str(kept.port), "0"] if kept.port is not None else ["0"]
    with _serving(addresses, tokens, runs_dir, connection_file) as served:
        kept.write(served.url, coordinator, serving=True)
        _print_link(served, "viewer")
        print(f"for a link that allows actions: remuda page {quote(str(runs_dir))} --link", file=sys.stderr, flush=True)
        try:
            yield
        finally:
            with suppress(OSError):
                kept.write(served.url, coordinator, serving=False)


@contextmanager
def launch_page(wanted: bool | None, *, runs_dir: Path, connection_file: Path) -> Generator[None]:
    """Serve the page of a launch while the body runs, and print a link with all permissions, for the user of the
    command. Raises InputError."""
    if not _is_wanted(wanted):
        yield
        return
    from remuda.page.process import Tokens

    with _serving(["0"], Tokens.fresh(), runs_dir, connection_file, of_launch=True) as served:
        _print_link(served, "operator")
        yield


def check_page(wanted: bool | None) -> None:
    """Raise InputError for a requested page that cannot be served, before anything is started."""
    if wanted:
        _require()


def _is_wanted(wanted: bool | None) -> bool:
    from remuda.page.process import is_installed

    check_page(wanted)
    return is_installed() if wanted is None else wanted


def _require() -> None:
    from remuda.page.process import INSTALL, is_installed

    if not is_installed():
        raise InputError(f"the page needs packages that are not installed: {INSTALL}")


@contextmanager
def _serving(
    addresses: Sequence[str], tokens: Tokens, runs_dir: Path, connection_file: Path | None, of_launch: bool = False
) -> Generator[PageProcess]:
    """Serve the page at the first free address."""
    from remuda.coordinator.monitoring.address import HttpAddressError
    from remuda.page.process import PageProcess

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def begun(address: str) -> PageProcess:
        return PageProcess(
            address, tokens, runs_dir=runs_dir, connection_file=connection_file, of_launch=of_launch, say=say
        )

    try:
        try:
            served = begun(addresses[0])
        except HttpAddressError:
            if len(addresses) == 1:
                raise
            served = begun(addresses[1])
    except HttpAddressError as error:
        raise InputError(f"the page cannot be served at {error}") from error
    with served:
        yield served


def _print_link(served: PageProcess, right: Literal["viewer", "operator"]) -> None:
    print(f"page: {served.link(right)}", file=sys.stderr, flush=True)
    if not served.is_loopback:
        text = "it is served without encryption to all who reach that port, and whoever has the link may use it"
        print(text, file=sys.stderr, flush=True)
    elif any(name in os.environ for name in ("SLURM_JOB_ID", "SSH_CONNECTION")):
        node, port = platform.node(), urlsplit(served.url).port
        tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {node}"
        text = f"the link works on the node {node}; elsewhere type this first, and leave it running:\n  {tunnel}"
        print(text, file=sys.stderr, flush=True)


def _link(runs_dir: Path, connection_file: Path | None, right: Literal["viewer", "operator"]) -> str:
    from remuda.page.process import AddressFile, Tokens, link
    from remuda.wire.connection_file import read
    from remuda.wire.keys.secret_file import read_secret

    connection = read(connection_path(connection_file, runs_dir))
    keys_dir = Path(connection.keys_dir)
    tokens = Tokens.of(read_secret(keys_dir / "operator"))
    url = AddressFile(keys_dir).url_of(connection.coordinator)
    if url is None:
        raise InputError("this coordinator serves no page: it was started with --no-page, or without remuda[page]")
    return link(url, tokens.operator if right == "operator" else tokens.viewer)
