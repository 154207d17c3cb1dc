"""Commands started by operators on the page: submissions, which block a request, and evaluations."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Literal, cast

from msgspec import Struct, structs

from remuda.page.growing import finite
from remuda.storage.untrusted import json_of
from remuda.wire.child_end import KILLED_S, end_within

AT_ONCE = 2
KEPT = 100
"""The newest are remembered."""
LONGEST_S = 3_600.0
MOST_RETURNS = 1_000
MOST_OUTPUT_BYTES = 16 << 20
_MOST_ERROR_BYTES = 64 << 10
"""Bytes read from the end of standard error."""
_TAIL_LINES = 3


class BrokenOffError(Exception):
    """The page ended before the command; the text is for the waiting user."""


class Commands:
    """Runs commands to completion, as separate process groups. Thread-safe; needs `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._going_on: set[subprocess.Popen[str]] = set()
        self._closed = threading.Event()

    def run(self, command: Sequence[str], *, folder: Path, within_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command in a folder, and return its exit code and output. After `within_s` the command is killed.

        Raises BrokenOffError once closed, subprocess.TimeoutExpired, and OSError for a command that cannot start.
        """
        with self._lock:
            if self._closed.is_set():
                raise BrokenOffError("the page's server is ending: the command was not started")
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._going_on.add(process)
        try:
            with process:
                try:
                    output, errors = process.communicate(timeout=within_s)
                except BaseException:
                    kill_group(process)
                    raise
        finally:
            with self._lock:
                self._going_on.discard(process)
        if self._closed.is_set() and process.returncode == -signal.SIGKILL:
            raise BrokenOffError("the page's server ended before the command")
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def close(self) -> None:
        """Kill running commands, and refuse new ones. May be called again."""
        with self._lock:
            self._closed.set()
            for process in self._going_on:
                kill_group(process)


def kill_group(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill the leader of a process group and all its members."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class RequestedEvaluation(Struct, frozen=True, kw_only=True):
    """An evaluation requested by an operator."""

    id: str
    run: str
    train_iter: int | str
    episodes: int
    deterministic: bool
    state: Literal["running", "done", "failed"] = "running"
    began_s: float
    return_mean: float | None = None
    return_std: float | None = None
    returns: list[float | None] = []
    length_mean: float | None = None
    message: str | None = None
    """Reason of a failure."""


class Evaluations:
    """Starts evaluations and waits for the results, in a thread per evaluation. Thread-safe; needs `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: OrderedDict[str, RequestedEvaluation] = OrderedDict()
        self._going_on: dict[str, tuple[subprocess.Popen[bytes], threading.Thread]] = {}
        self._count = 0
        self._closed = False

    @property
    def all(self) -> list[RequestedEvaluation]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._all.values()))

    def of(self, run: str) -> list[RequestedEvaluation]:
        """Return the evaluations of a run, the newest first."""
        return [each for each in self.all if each.run == run]

    def begin(
        self, run: str, train_iter: int | str, episodes: int, deterministic: bool, command: Sequence[str]
    ) -> RequestedEvaluation | None:
        """Start an evaluation; return None at the limit or once closed. Raises OSError if the command cannot start."""
        with self._lock, ExitStack() as opened:
            if len(self._going_on) >= AT_ONCE or self._closed:
                return None
            self._count += 1
            found = RequestedEvaluation(
                id=f"e{self._count}",
                run=run,
                train_iter=train_iter,
                episodes=episodes,
                deterministic=deterministic,
                began_s=time.time(),
            )
            # files, since output of any size takes no memory here
            output, errors = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
            self._all[found.id] = found
            while len(self._all) > KEPT:
                self._all.popitem(last=False)
            thread = threading.Thread(
                target=self._wait_for,
                args=(found, process, output, errors, opened.pop_all()),
                name=f"remuda-page-{found.id}",
                daemon=True,
            )
            self._going_on[found.id] = process, thread
            thread.start()
        return found

    def close(self) -> None:
        """End running evaluations, and refuse new ones. May be called again."""
        with self._lock:
            self._closed = True
            going_on = list(self._going_on.values())
        for process, _ in going_on:
            kill_group(process)
        for _, thread in going_on:
            thread.join(KILLED_S)

    def _wait_for(
        self,
        evaluation: RequestedEvaluation,
        process: subprocess.Popen[bytes],
        output: IO[bytes],
        errors: IO[bytes],
        opened: ExitStack,
    ) -> None:
        with opened:
            try:
                code = process.wait(LONGEST_S)
                found = _outcome(evaluation, code, output, errors)
            except subprocess.TimeoutExpired:
                kill_group(process)
                end_within(process, 0.0)
                found = structs.replace(evaluation, state="failed", message=f"it took longer than {LONGEST_S:g} s")
        with self._lock:
            del self._going_on[evaluation.id]
            if evaluation.id in self._all:
                self._all[evaluation.id] = found


def _outcome(evaluation: RequestedEvaluation, code: int, output: IO[bytes], errors: IO[bytes]) -> RequestedEvaluation:
    if output.seek(0, os.SEEK_END) > MOST_OUTPUT_BYTES:
        text = f"the command printed more than {MOST_OUTPUT_BYTES >> 20} MiB"
        return structs.replace(evaluation, state="failed", message=text)
    output.seek(0)
    errors.seek(max(errors.seek(0, os.SEEK_END) - _MOST_ERROR_BYTES, 0))
    return outcome(evaluation, code, output.read().decode("utf-8", "replace"), errors.read().decode("utf-8", "replace"))


def outcome(evaluation: RequestedEvaluation, code: int, output: str, errors: str) -> RequestedEvaluation:
    """Return the evaluation with the printed results of `remuda evaluate --json`."""
    try:
        content = json_of(output) if code == 0 else None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        tail = "\n".join(errors.strip().splitlines()[-_TAIL_LINES:]) or f"the command ended with {code}"
        return structs.replace(evaluation, state="failed", message=tail)
    result = cast("dict[str, object]", content)
    if isinstance(result.get("policies"), dict):
        return _of_policies(evaluation, cast("dict[str, dict[str, object]]", result["policies"]))
    each = [cast("dict[str, object]", one) for one in _list(result.get("each")) if isinstance(one, dict)]
    returns = [_number(one.get("return")) for one in each]
    return structs.replace(
        evaluation,
        state="done",
        return_mean=_number(result.get("reward_mean")),
        return_std=_number(result.get("reward_std")),
        returns=returns[:MOST_RETURNS],
        length_mean=_number(result.get("avg_envstep_per_episode")),
    )


def _of_policies(evaluation: RequestedEvaluation, result: Mapping[str, Mapping[str, object]]) -> RequestedEvaluation:
    """Return the evaluation of several policies in one game: the mean of the returns, and a text with all returns."""
    means = {name: _number(its.get("reward_mean")) for name, its in result.items()}
    text = ", ".join(f"{name} {'–' if mean is None else format(mean, '.4g')}" for name, mean in means.items())
    known = [mean for mean in means.values() if mean is not None]
    return structs.replace(
        evaluation, state="done", return_mean=sum(known) / len(known) if known else None, message=f"returns: {text}"
    )


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _number(value: object) -> float | None:
    return finite(float(value)) if isinstance(value, int | float) else None
