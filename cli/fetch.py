"""`remuda fetch`: a run from a bucket, to read on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "remuda fetch s3://bucket/runs/first first"

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="The run's address: s3://bucket/runs/first.")]
Target = Annotated[Path | None, typer.Argument(metavar="DIR", help="A new folder (default: the last part of ADDRESS).")]


def fetch(address: Address, target: Target = None) -> None:
    """Copy the newest state of a run from a bucket into a new folder, for evaluate, plot, logs and the page.

    The run is not taken over: a process that trains it goes on. To continue a run on this machine, use
    train --resume --run-dir ADDRESS. A coordinator's address gives all of its runs, ADDRESS/RUN this run alone.
    """
    from remuda.cli.errors import InputError
    from remuda.storage.bucket.address import address_of
    from remuda.storage.bucket.restore import restore_found
    from remuda.storage.bucket.store import Retries, Store

    place = address_of(address)
    if place is None:
        raise InputError(f"{address} is no address: an address looks like s3://bucket/runs/first")
    folder = (target or Path(place.rpartition("/")[2])).absolute()
    if folder.exists():
        raise InputError(f"{folder} exists: name a new folder, as in: remuda fetch {place} DIR")
    found = restore_found(
        Store.at(place, Retries()), place, folder, lambda text: print(text, file=sys.stderr, flush=True)
    )
    is_run = any(file.path == "config.json" for file in found.files)
    what, then = ("run folder", f"evaluate {folder} -n 20 -d") if is_run else ("folder of runs", f"plot {folder}")
    print(f"{what} {folder}: {len(found.files)} files of generation {found.epoch}/{found.number}")
    print(f"\nType next:\n  remuda {then}")
