"""Output of commands: standard output for the answer alone, tables, the folder of profiles, and the end of a run."""

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
from functools import partial
from itertools import compress
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, TextIO

from remuda.cli.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table

    from remuda.config.schema import ExperimentConfig
    from remuda.training.next_command import Verb
    from remuda.wire.messages import ExperimentStatus, Status


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


def new_console() -> Console:
    """Make a console of standard output."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


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


def print_end(
    status: ExperimentStatus,
    config: ExperimentConfig,
    verb: Verb,
    *,
    options: Sequence[str] = (),
    explanation: str | None = None,
    output: IO[str] | None = None,
) -> None:
    """Print the end of a run and the next commands.

    Args:
        status: the last status.
        config: explains a run without updates.
        verb: the command that ran the run.
        options: options of the command that continues the run.
        explanation: condition, value and bound, if known.
        output: default: standard output.

    Raises RunFailedError for a failed run.
    """
    from remuda.client.progress import log_of_decisions
    from remuda.client.running import why_nothing_was_learned
    from remuda.page.process import is_installed
    from remuda.training.next_command import evaluate_command, restart_command, resume_command

    require_success(status, verb, options)
    run_dir, say = _shortest(Path(status.run_dir)), partial(print, file=output)
    say(_ending(status, explanation))
    say(f"env_step {status.env_step}, train_iter {status.train_iter}, {status.wall_s:.1f} s")
    unlearned = why_nothing_was_learned(config, reason=status.reason, train_iter=status.train_iter)
    if unlearned is not None:
        say(f"warning: {unlearned}")
    say(f"run folder: {run_dir}")
    say("\nType next:")
    begun = _has_begun(run_dir, [one.name for one in status.policies])
    bests = [status.best_return, *(one.best_return for one in status.policies)]
    if begun:
        say(f"  {evaluate_command(run_dir, has_best=any(best is not None for best in bests))}")
    say(f"  tensorboard --logdir {quote(str(run_dir / 'log'))}")
    say(f"  less {quote(str(log_of_decisions(status, run_dir, serial=verb == 'train')))}")
    if is_installed():
        say(f"  remuda page {quote(str(run_dir.parent))}")
    if status.state == "stopped":
        command = resume_command if begun else restart_command
        say(f"  {command(verb, run_dir, options=options)}")


def require_success(status: ExperimentStatus, verb: Verb, options: Sequence[str] = ()) -> None:
    """Raise RunFailedError for a failed run, with the log to read and the command that continues the run."""
    from remuda.client.progress import log_of_decisions

    if status.state == "failed":
        run_dir = Path(status.run_dir)
        log = log_of_decisions(status, _shortest(run_dir), serial=verb == "train")
        hint = resume_hint(verb, run_dir, [one.name for one in status.policies], options)
        raise RunFailedError(f"{_ending(status)}\nread why in {log}{hint}")


def resume_hint(verb: Verb, run_dir: Path, policies: Iterable[str], options: Sequence[str]) -> str:
    """Return a line with the command that continues the run; empty if a policy has no checkpoint."""
    from remuda.training.next_command import resume_command

    if not _has_begun(run_dir, policies):
        return ""
    again = resume_command(verb, _shortest(run_dir), options=options)
    return f"\nto continue from the last checkpoint, type: {again}"


def _ending(status: ExperimentStatus, explanation: str | None = None) -> str:
    from remuda.client.progress import number

    reasons = dict.fromkeys(why for why in (status.reason, explanation) if why not in (None, status.state))
    what = ": ".join([f"{status.name} {status.state}", *map(str, reasons)])
    if status.policies:
        return f"{what}; best returns: {', '.join(f'{one.name} {number(one.best_return)}' for one in status.policies)}"
    return f"{what}; best return {'none' if status.best_return is None else number(status.best_return)}"


def _has_begun(run_dir: Path, policies: Iterable[str]) -> bool:
    """Return True if each policy has a checkpoint, or if the run folder is on another machine."""
    from remuda.storage.run_folder import folder_of_policy

    folders = [folder_of_policy(run_dir, name) for name in policies or ("",)]
    return not run_dir.is_dir() or all((folder.ckpt / "index.json").exists() for folder in folders)


def _shortest(run_dir: Path) -> Path:
    """Return the shortest path to type."""
    return run_dir.relative_to(Path.cwd()) if run_dir.is_relative_to(Path.cwd()) else run_dir
