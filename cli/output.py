"""Output of commands: standard output for the answer alone, tables, and the folder of profiles."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.table import Table


@contextlib.contextmanager
def reserved_stdout(*, alone: bool = True) -> Generator[TextIO]:
    """Yield a stream to standard output. With `alone`, standard output gets only this stream; all further output of the
    body, also of environments in C code and of child processes, goes to standard error."""
    if not alone:
        yield sys.stdout
        return
    with contextlib.ExitStack() as stack:
        stream = sys.stdout
        if _descriptor(stream) == 1:
            stream = stack.enter_context(_redirect_descriptor_1())
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield stream


@contextlib.contextmanager
def _redirect_descriptor_1() -> Generator[TextIO]:
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding=sys.stdout.encoding, closefd=False) as stream:
            yield stream
    finally:
        ctypes.CDLL(None).fflush(None)  # what C code has printed may still be in its buffer
        os.dup2(kept, 1)
        os.close(kept)


def _descriptor(stream: TextIO) -> int | None:
    """Return the file descriptor; None for a stream without a descriptor."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


@dataclass(frozen=True)
class ProfileFolder:
    """A folder for profiles, or None without profiling."""

    folder: Path | None

    def keep_in(self, run_dir: Path, output: IO[str] | None = None) -> None:
        """Move the profiles to log/profile/ of this run, replacing older profiles, and print the path to `output`
        (default: standard output)."""
        if self.folder is None:
            return
        target = run_dir / "log" / "profile"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target)
        print(f"profiles: {target}", file=output)


@contextmanager
def profile_folder(asked: bool) -> Generator[ProfileFolder]:
    """Yield a temporary folder: processes begin to write before the run folder exists."""
    if not asked:
        yield ProfileFolder(None)
        return
    with tempfile.TemporaryDirectory(prefix="remuda-profile-") as folder:
        yield ProfileFolder(Path(folder))


PLAIN_WIDTH = 160
"""Characters per line if the output is not a terminal."""
MAY_WRAP = ("name", "doing", "process")
"""Columns with wrapped text."""
NARROW_WITHOUT = ("/s", "cores", "heard", "memory")
"""Columns hidden on a narrow terminal; --json has all columns."""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, narrow: bool) -> Table:
    """Make a table for a terminal; a `narrow` table has fewer columns."""
    from rich.table import Table
    from rich.text import Text

    from remuda.logbook.lines import one_line

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown = [not (narrow and column in NARROW_WITHOUT) for column in columns]
    for column in compress(columns, shown):
        made.add_column(column, no_wrap=column not in MAY_WRAP, overflow="ellipsis")
    for row in rows:  # as Text: names given by others must not be read as markup or terminal commands
        made.add_row(*(Text(one_line(cell)) for cell in compress(row, shown)))
    return made
