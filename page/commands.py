"""Commands started by operators on the page: submissions, which block a request, replays, and evaluations."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
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
MOST_FOLLOWED_BYTES = 128 << 20
_MOST_ERROR_BYTES = 64 << 10
"""Bytes read from the end of standard error."""
_TAIL_LINES = 3
_LOOK_S = 1.0
"""Most seconds between two looks at a silent command."""
_END_S = 10.0
"""Most seconds from the end of the output of a command to its own end."""
_PIECE_BYTES = 64 << 10


class CommandError(Exception):
    """The command took too long, printed too much or failed; the text is for the waiting user."""


class BrokenOffError(CommandError):
    """The page ended before the command."""


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

        Raises BrokenOffError once closed, and OSError if the command cannot start. The result raises CommandError.
        """
        with ExitStack() as opened:
            output, errors = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = self._started(command, folder, output, errors)
            return partial(self._wait, process, output, errors, opened.pop_all())

    def follow(self, command: Sequence[str], *, within_s: float) -> Generator[bytes]:
        """Start a command, and yield its whole lines as they come, and b"" for each second of silence. The command is
        killed when the reader leaves. Raises as `start` and its result."""
        end_s, left, rest, silent = time.monotonic() + within_s, MOST_FOLLOWED_BYTES, b"", True
        with tempfile.TemporaryFile() as errors:
            process = self._started(command, None, subprocess.PIPE, errors)
            with self._reaped(process), cast("IO[bytes]", process.stdout) as output:
                ready = select.poll()
                ready.register(output, select.POLLIN)
                while (piece := b"" if silent else os.read(output.fileno(), _PIECE_BYTES)) or silent:
                    whole, end, rest = (rest + piece).rpartition(b"\n")
                    yield whole + end
                    left -= len(piece)
                    if time.monotonic() > end_s or left < 0:
                        raise _too_long(within_s) if left >= 0 else _too_much(MOST_FOLLOWED_BYTES)
                    silent = not ready.poll(1_000 * _LOOK_S)
                code = end_within(process, _END_S)
            self._require_open(code)
            if code:
                raise CommandError(_last_words(_end_of(errors, _MOST_ERROR_BYTES), code))

    def run(self, command: Sequence[str], *, folder: Path, within_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command to completion; see `start`."""
        return self.start(command, folder=folder)(within_s)

    def close(self) -> None:
        """Kill running commands, and refuse new ones. May be called again."""
        with self._lock:
            self._closed.set()
            for process in self._running:
                _kill_group(process)

    def _started(
        self, command: Sequence[str], folder: Path | None, output: IO[bytes] | int, errors: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed.is_set():
                raise BrokenOffError("the page's server is ending: the command was not started")
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
            self._running.add(process)
            return process

    @contextlib.contextmanager
    def _reaped(self, process: subprocess.Popen[bytes]) -> Generator[None]:
        """Kill the process if the body fails."""
        try:
            yield
        except BaseException:
            _kill_group(process)
            end_within(process, 0.0)
            raise
        finally:
            with self._lock:
                self._running.discard(process)

    def _require_open(self, code: int | None) -> None:
        if self._closed.is_set() and code == -signal.SIGKILL:
            raise BrokenOffError("the page's server ended before the command")

    def _wait(
        self, process: subprocess.Popen[bytes], output: IO[bytes], errors: IO[bytes], opened: ExitStack, within_s: float
    ) -> subprocess.CompletedProcess[str]:
        with opened:
            try:
                with self._reaped(process):
                    code = process.wait(within_s)
            except subprocess.TimeoutExpired:
                raise _too_long(within_s) from None
            self._require_open(code)
            if output.seek(0, os.SEEK_END) > MOST_OUTPUT_BYTES:
                raise _too_much(MOST_OUTPUT_BYTES)
            return subprocess.CompletedProcess(process.args, code, _end_of(output), _end_of(errors, _MOST_ERROR_BYTES))


def _too_long(within_s: float) -> CommandError:
    return CommandError(f"it took longer than {within_s:g} s")


def _too_much(most_bytes: int) -> CommandError:
    return CommandError(f"the command printed more than {most_bytes >> 20} MiB")


def _last_words(errors: str, code: int) -> str:
    return "\n".join(errors.strip().splitlines()[-_TAIL_LINES:]) or f"the command ended with {code}"


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
        except CommandError as error:
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
        return structs.replace(evaluation, state="failed", message=_last_words(errors, code))
    result = cast("dict[str, object]", content)
    if isinstance(result.get("policies"), dict):
        return _of_policies(evaluation, cast("dict[str, dict[str, object]]", result["policies"]))
    each = result.get("each")
    episodes = cast("list[object]", each) if isinstance(each, list) else []
    returns = [_number(cast("dict[str, object]", one).get("return")) for one in episodes if isinstance(one, dict)]
    return structs.replace(
        evaluation,
        state="done",
        return_mean=_number(result.get("reward_mean")),
        return_std=_number(result.get("reward_std")),
        returns=returns[:MOST_RETURNS],
    )


def _of_policies(evaluation: RequestedEvaluation, result: Mapping[str, Mapping[str, object]]) -> RequestedEvaluation:
    """Return the evaluation of several policies in one game: the mean of the returns, and a text with all returns."""
    means = {name: _number(its.get("reward_mean")) for name, its in result.items()}
    text = ", ".join(f"{name} {'–' if mean is None else format(mean, '.4g')}" for name, mean in means.items())
    known = [mean for mean in means.values() if mean is not None]
    return structs.replace(
        evaluation, state="done", return_mean=sum(known) / len(known) if known else None, message=f"returns: {text}"
    )


def _number(value: object) -> float | None:
    return finite(float(value)) if isinstance(value, int | float) else None
