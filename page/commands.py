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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
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


class OutputSizeError(Exception):
    """The command printed too much."""


class Commands:
    """Runs commands as process groups, with output in files, which takes no memory. Thread-safe; needs `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = threading.Event()

    def start(
        self, command: Sequence[str], *, folder: Path | None = None
    ) -> Callable[[float], subprocess.CompletedProcess[str]]:
        """Start a command in a folder. The result waits for the command, and kills it after the given seconds.

        Raises BrokenOffError once closed, and OSError if the command cannot start. The result raises BrokenOffError,
        subprocess.TimeoutExpired, and OutputSizeError.
        """
        with self._lock, ExitStack() as opened:
            if self._closed.is_set():
                raise BrokenOffError("the page's server is ending: the command was not started")
            output, errors = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
            self._running.add(process)
            return partial(self._wait, process, output, errors, opened.pop_all())

    def run(self, command: Sequence[str], *, folder: Path, within_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command to completion; see `start`."""
        return self.start(command, folder=folder)(within_s)

    def close(self) -> None:
        """Kill running commands, and refuse new ones. May be called again."""
        with self._lock:
            self._closed.set()
            for process in self._running:
                _kill_group(process)

    def _wait(
        self, process: subprocess.Popen[bytes], output: IO[bytes], errors: IO[bytes], opened: ExitStack, within_s: float
    ) -> subprocess.CompletedProcess[str]:
        with opened:
            try:
                code = process.wait(within_s)
            except BaseException:
                _kill_group(process)
                end_within(process, 0.0)
                raise
            finally:
                with self._lock:
                    self._running.discard(process)
            if self._closed.is_set() and code == -signal.SIGKILL:
                raise BrokenOffError("the page's server ended before the command")
            if output.seek(0, os.SEEK_END) > MOST_OUTPUT_BYTES:
                raise OutputSizeError(f"the command printed more than {MOST_OUTPUT_BYTES >> 20} MiB")
            return subprocess.CompletedProcess(process.args, code, _end_of(output), _end_of(errors, _MOST_ERROR_BYTES))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the leader of a process group and all its members."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_of(file: IO[bytes], most_bytes: int = MOST_OUTPUT_BYTES) -> str:
    file.seek(max(file.seek(0, os.SEEK_END) - most_bytes, 0))
    return file.read().decode("utf-8", "replace")


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
        self._commands = Commands()
        self._all: OrderedDict[str, RequestedEvaluation] = OrderedDict()
        self._threads: dict[str, threading.Thread] = {}
        self._count = 0

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
        with self._lock:
            if len(self._threads) >= AT_ONCE:
                return None
            try:
                wait = self._commands.start(command)
            except BrokenOffError:
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
            self._all[found.id] = found
            while len(self._all) > KEPT:
                self._all.popitem(last=False)
            thread = threading.Thread(
                target=self._wait_for, args=(found, wait), name=f"remuda-page-{found.id}", daemon=True
            )
            self._threads[found.id] = thread
            thread.start()
        return found

    def close(self) -> None:
        """End running evaluations, and refuse new ones. May be called again."""
        self._commands.close()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(KILLED_S)

    def _wait_for(
        self, evaluation: RequestedEvaluation, wait: Callable[[float], subprocess.CompletedProcess[str]]
    ) -> None:
        try:
            ended = wait(LONGEST_S)
            found = outcome(evaluation, ended.returncode, ended.stdout, ended.stderr)
        except subprocess.TimeoutExpired:
            found = structs.replace(evaluation, state="failed", message=f"it took longer than {LONGEST_S:g} s")
        except (BrokenOffError, OutputSizeError) as error:
            found = structs.replace(evaluation, state="failed", message=str(error))
        with self._lock:
            del self._threads[evaluation.id]
            if evaluation.id in self._all:
                self._all[evaluation.id] = found


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
