"""Measures sizes for a run: in this process, or by the nanny before it starts the workers."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import msgspec

from remuda.config.current import THREADS
from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.deploy.sizes import Costs, Sizes, SizingTask, choose, log_lines, settings_of
from remuda.deploy.supervision import describe_exit
from remuda.storage.atomic import write_bytes
from remuda.worker.process import bound_threads, gc_frozen

REQUEST, ANSWER = "sizes_asked.json", "sizes_measured.json"
"""Files beside the connection file of a launch."""
LONGEST_S = 60
"""Then the nanny gives up measuring."""
_SHOWN = 500
"""Characters of a problem."""


@dataclass(frozen=True)
class SizeRequest:
    """A run with sizes to be measured."""

    config: ExperimentConfig
    """Config with defaults for the sizes."""
    asked: SizingTask
    auto: frozenset[str]
    """Settings (dotted keys) to choose."""

    def write(self, folder: Path) -> None:
        """Ask the nanny; see collectors_measured. Raises OSError."""
        content = _Stored(self.config.model_dump_json(), self.asked, sorted(self.auto))
        write_bytes(folder / REQUEST, msgspec.json.encode(content), durable=False)

    def answer_file(self, folder: Path) -> Path:
        """Return the path of the nanny's answer."""
        return folder / ANSWER

    def answer(self, folder: Path) -> Measurement:
        """The nanny's answer. Raises OSError."""
        return msgspec.json.decode(self.answer_file(folder).read_bytes(), type=Measurement)


@dataclass(frozen=True)
class Measurement:
    """Measured costs, or the reason for their lack."""

    costs: Costs | None = None
    problem: str = ""

    def sizes(self, asked: SizingTask) -> Sizes | None:
        """Return the choice, the same in every process; None without costs, to keep the defaults."""
        return None if self.costs is None else choose(self.costs, asked)

    def numbers(self, request: SizeRequest) -> dict[str, int]:
        """Return the values of the auto settings; none without costs."""
        sizes = self.sizes(request.asked)
        return {} if sizes is None else {key: one for key, one in settings_of(sizes).items() if key in request.auto}

    def lines(self, request: SizeRequest) -> list[str]:
        """For the log of the run."""
        sizes = self.sizes(request.asked)
        if self.costs is None or sizes is None:
            keys = ", ".join(sorted(request.auto))
            return [f"auto: {keys}: the defaults, since nothing could be measured: {self.problem}"]
        return log_lines(self.costs, request.asked, sizes, request.auto)


def measured(request: SizeRequest) -> Measurement:
    """Measure in this process. A broken environment or algorithm is no error here: the run will report it."""
    bound_threads()
    from remuda.deploy.measuring import measure

    try:
        with NoExit():
            return Measurement(
                measure(request.config, serial=request.asked.serial, try_threads=THREADS in request.auto)
            )
    except Exception as error:  # anything that an environment or algorithm raises
        return Measurement(problem=f"{type(error).__name__}: {error}"[:_SHOWN])


def collectors_measured(folder: Path) -> int:
    """Measure for the request in `folder`, write the answer there, and return the run's number of collectors.

    A child measures: environments cannot harm this process, which never starts a thread and forks the workers later.
    Workers share the modules imported here. Raises OSError.
    """
    stored = msgspec.json.decode((folder / REQUEST).read_bytes(), type=_Stored)
    config = ExperimentConfig.model_validate_json(stored.config)
    request = SizeRequest(config, stored.asked, frozenset(stored.auto))
    with gc_frozen():
        import remuda.deploy.measuring  # noqa: F401  # pyright: ignore[reportUnusedImport]
    answer = _of_child(request)
    write_bytes(request.answer_file(folder), msgspec.json.encode(answer), durable=False)
    sizes = answer.sizes(request.asked)
    return config.collector.count if sizes is None else sizes.collectors


@dataclass(frozen=True)
class _Stored:
    """A request as JSON."""

    config: str
    asked: SizingTask
    auto: list[str]


def _of_child(request: SizeRequest) -> Measurement:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(LONGEST_S)  # ends it where an environment hangs, or the nanny is gone
            os.write(writing, msgspec.json.encode(measured(request)))
        finally:  # whatever happened, the child must not continue as a second nanny
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    os.set_blocking(reading, False)  # an environment may have left a process that holds the other end
    try:
        content = os.read(reading, 1 << 16)
    except BlockingIOError:
        content = b""
    finally:
        os.close(reading)
    if not content:
        return Measurement(
            problem=f"the measuring process ended with {describe_exit(os.waitstatus_to_exitcode(status))}"
        )
    return msgspec.json.decode(content, type=Measurement)
