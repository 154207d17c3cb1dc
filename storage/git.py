"""Which source a run was started from: the commit and the changes on top of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from remuda.storage.atomic import replacing
from remuda.storage.run_folder import RunFolder

_DEADLINE_S = 10.0
# A repository's own config may name programs to run (fsmonitor, external diff, textconv): none of them is started.
_GIT = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "color.ui=false")
_SAFE_DIFF = ("--no-ext-diff", "--no-textconv")


def record_git(run_dir: Path, cwd: Path) -> str | None:
    """Write git_log.txt and git_diff.txt into `run_dir` when `cwd` lies inside a git repository.

    Returns a warning for the log where git could not tell (not installed, too slow, no commit yet), else None. Never
    raises for that: a run does not fail for want of its provenance.
    """
    cwd = cwd.absolute()
    if not any((folder / ".git").exists() for folder in (cwd, *cwd.parents)):
        return None
    run = RunFolder(run_dir)
    try:
        _write(run.git_log, cwd, ("describe", "--always", "--dirty"), ("log", "--stat", "-n", "5", *_SAFE_DIFF))
        _write(run.git_diff, cwd, ("diff", "HEAD", *_SAFE_DIFF))
    except subprocess.CalledProcessError as error:
        reason = bytes(error.stderr).decode(errors="replace").strip().splitlines()
        return f"the git state of {cwd} was not recorded: {reason[-1] if reason else error}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the git state of {cwd} was not recorded: {error}"
    return None


def _write(path: Path, cwd: Path, *commands: tuple[str, ...]) -> None:
    """Write the output of the commands, a blank line between them, straight to disk: a diff may be large."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    with replacing(path, durable=False) as temporary, open(temporary, "wb") as file:
        for number, command in enumerate(commands):
            if number:
                file.write(b"\n")
                file.flush()
            subprocess.run(
                (*_GIT, *command),
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.PIPE,
                timeout=_DEADLINE_S,
                check=True,
            )
