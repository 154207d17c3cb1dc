"""Source version of a run: the commit and the changes since.

Two steps, possibly in two processes: `capture_git` asks git in the user's working directory, and `write_git` writes the
answer into the run folder.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryFile

from remuda.storage.atomic import write_bytes
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import MAX_DIFF_BYTES, MAX_LOG_BYTES, GitState, shortened

_DEADLINE_S = 10.0
"""Seconds for all git commands together."""
# The config of a repository may name programs: none is started. fsmonitor and hooks are switched off here, gpg by
# `_LOG` (showSignature, and formats with %G), external diffs, textconv and programs of submodules by `_SAFE_DIFF`,
# filters by `_no_filters`, and the fetching of missing objects by `_ENVIRONMENT`.
_GIT = (
    *("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.devnull, "-c", "color.ui=false"),
    *("-c", "log.showSignature=false", "-c", "protocol.allow=never"),
)
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_SAFE_DIFF = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--submodule=short")
_LOG = ("log", "--stat", "-n", "5", "--no-show-signature", "--pretty=medium", *_SAFE_DIFF)
_FILTERS = ("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
_NOTHING_FOUND = 1
_CUT = b"\n... cut here: longer than what is recorded\n"


class _GitError(Exception):
    """Git failed, for the reason in the text."""


def capture_git(cwd: Path) -> GitState | None:
    """Ask git for the state of the repository around `cwd`; None outside a repository.

    If git fails (not installed, too slow, no commit yet), the state has a warning for the log, and nothing is raised: a
    run does not fail because its source is unknown. Programs that the repository names do not run.
    """
    cwd = cwd.absolute()
    if not any((folder / ".git").exists() for folder in (cwd, *cwd.parents)):
        return None
    git = _Git(cwd, time.monotonic() + _DEADLINE_S)
    try:
        unfiltered = _no_filters(git.ask(*_FILTERS, may_find_nothing=True))
        diff = git.ask(*unfiltered, "diff", "HEAD", *_SAFE_DIFF, limit_bytes=MAX_DIFF_BYTES)
        commit = git.ask("describe", "--always").rstrip(b"\n")
        log = b"%b%b\n\n%b" % (commit, b"-dirty" if diff else b"", git.ask(*_LOG))
    except (_GitError, OSError) as error:
        return GitState(warning=shortened(f"the git state of {cwd} was not recorded: {error}"))
    return GitState(log=_cut(log, MAX_LOG_BYTES), diff=_cut(diff, MAX_DIFF_BYTES))


def write_git(run_dir: Path, state: GitState | None) -> str | None:
    """Write git_log.txt and git_diff.txt into `run_dir`, if known; returns the warning, if any."""
    if state is None:
        return None
    run = RunFolder(run_dir)
    for path, content in ((run.git_log, state.log), (run.git_diff, state.diff)):
        if content is not None:
            write_bytes(path, content, durable=False)
    return state.warning


def record_git(run_dir: Path, cwd: Path) -> str | None:
    """Do both steps, for a process that runs in the user's working directory and writes the run folder."""
    return write_git(run_dir, capture_git(cwd))


class _Git:
    """Runs git commands in one folder, all before one deadline."""

    def __init__(self, cwd: Path, end_s: float) -> None:
        self._cwd = cwd
        self._end_s = end_s

    def ask(self, *command: str, limit_bytes: int = MAX_LOG_BYTES, may_find_nothing: bool = False) -> bytes:
        """Return the beginning of git's output: at most the limit and one byte. Raises _GitError, OSError.

        Git writes to a temporary file, so a long output takes no memory.
        """
        with TemporaryFile() as output:
            try:
                ended = subprocess.run(
                    (*_GIT, *command),
                    cwd=self._cwd,
                    env={**os.environ, **_ENVIRONMENT},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.PIPE,
                    timeout=max(0.0, self._end_s - time.monotonic()),
                )
            except subprocess.TimeoutExpired:
                raise _GitError(f"git took longer than {_DEADLINE_S:g} s") from None
            if ended.returncode and not (may_find_nothing and ended.returncode == _NOTHING_FOUND):
                reason = ended.stderr.decode(errors="replace").strip().splitlines()
                raise _GitError(reason[-1] if reason else f"git ended with exit code {ended.returncode}")
            output.seek(0)
            return output.read(limit_bytes + 1)


def _no_filters(names: bytes) -> list[str]:
    """Return options to disable every filter: a program that git runs to compare a changed file.

    `names` are the keys `filter.<name>.<what>`, each with a null byte at the end. Raises _GitError for a name without
    an equivalent option.
    """
    if len(names) > MAX_LOG_BYTES:
        raise _GitError("its config names too many filters")
    filters = {key.rpartition(".")[0] for key in names.decode(errors="surrogateescape").split("\0") if key}
    if any("=" in name for name in filters):
        raise _GitError('its config names a filter with "=" in its name')
    blank = ("clean=", "smudge=", "process=", "required=false")
    return [word for name in sorted(filters) for setting in blank for word in ("-c", f"{name}.{setting}")]


def _cut(text: bytes, limit_bytes: int) -> bytes:
    return text if len(text) <= limit_bytes else text[: limit_bytes - len(_CUT)] + _CUT
