"""`remuda examples`: the configs and scripts that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.errors import InputError
from remuda.cli.options import AsJson

if TYPE_CHECKING:
    from remuda.client.examples import Example

EXAMPLE = "remuda examples cartpole_dqn --copy ."
COLUMNS = ("name", "algorithm", "environment", "needs", "ends")

Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Print this one, and nothing else (default: list all).")
]
Copy = Annotated[
    Path | None,
    typer.Option(
        "--copy", metavar="DIR", help="Copy it, and the files that it needs, into DIR; nothing is overwritten."
    ),
]


def examples(name: Name = None, copy_to: Copy = None, as_json: AsJson = False) -> None:
    """List the configs and scripts that come with Remuda, print one, or copy one to change it.

    The name of a config works wherever a command takes a file: remuda train cartpole_dqn. An existing file with that
    name comes first."""
    from remuda.client import examples as stored

    if name is None:
        if copy_to is not None:
            raise InputError("--copy: name the example to copy: remuda examples NAME --copy DIR")
        _list(stored.examples(), as_json=as_json)
        return
    try:
        found = stored.find(name)
        if copy_to is None:
            print(found.file.read_text(encoding="utf-8"), end="")
            return
        copies = stored.copy(found, copy_to)
    except stored.ExampleError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise InputError(f"--copy: {error}") from error
    print("\n".join(str(path) for path in copies))


def _list(found: list[Example], *, as_json: bool) -> None:
    rows = [
        (one.name, one.algorithm, one.environment, f"remuda[{one.extra}]" if one.extra else "", one.ends)
        for one in found
    ]
    if as_json:
        import json

        print(json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows], indent=2))
        return
    widths = [max(len(row[column]) for row in (COLUMNS, *rows)) for column in range(len(COLUMNS) - 1)]
    for row in (COLUMNS, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]).rstrip())
