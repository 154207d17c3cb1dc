"""A profiler: samples the stacks of all threads every few milliseconds."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from remuda.storage.atomic import write_text

INTERVAL_S = 0.005
"""Average pause. Pauses are random, so that samples do not coincide with periodic work of the process."""
ROWS = 25
"""Functions in every table."""

_EXPLANATION = """\
own: time in the function itself and in the C code that it calls, most of it at the line in the last column.
all: also time in the Python functions that it calls. Waiting counts like working. The other threads are sampled
while the main thread has the interpreter: at that time they wait, or compute in C code.
The .folded file beside this one holds whole stacks, for speedscope.app or flamegraph.pl.
"""

Stack = tuple[CodeType, ...]
"""Outermost function first."""


@dataclass(frozen=True)
class Sight:
    """A thread's stack: its functions, and the line in the innermost function."""

    thread: str
    stack: Stack
    line: int


@dataclass
class Profile:
    """Seconds by sample. The seconds of a thread add up to its sampled time."""

    seconds: defaultdict[Sight, float] = field(default_factory=lambda: defaultdict(float))
    looks: int = 0
    looking_s: float = 0.0
    """Time spent on sampling."""

    def note(self, frame: FrameType, thread: str, seconds: float) -> None:
        """Add a sample of `thread` in `frame`, with this number of seconds."""
        line, stack = frame.f_lineno, [frame.f_code]
        caller = frame.f_back
        while caller is not None:
            stack.append(caller.f_code)
            caller = caller.f_back
        self.seconds[Sight(thread, tuple(reversed(stack)), line)] += seconds

    def text(self, title: str) -> str:
        """Return a page for people: the most expensive functions of each thread."""
        by_thread: defaultdict[str, dict[Sight, float]] = defaultdict(dict)
        for sight, seconds in self.seconds.items():
            by_thread[sight.thread][sight] = seconds
        longest_s = max((sum(seen.values()) for seen in by_thread.values()), default=0.0)
        share = 100 * self.looking_s / longest_s if longest_s else 0.0
        parts = [
            f"{title}: {longest_s:.1f} s, sampled {self.looks} times; sampling took {share:.1f} %\n",
            _EXPLANATION,
            *(
                _thread_text(thread, by_thread[thread])
                for thread in sorted(by_thread, key=lambda name: (name != "MainThread", name))
            ),
        ]
        return "\n".join(parts)

    def folded(self) -> str:
        """Return a line per stack: functions, outermost first, separated by semicolons, and microseconds."""
        stacks: Counter[str] = Counter()
        for sight, seconds in self.seconds.items():
            names = [sight.thread, *(f"{code.co_qualname} ({_file(code)})" for code in sight.stack)]
            stacks[";".join(name.replace(";", ",") for name in names)] += round(1e6 * seconds)
        return "".join(f"{stack} {microseconds}\n" for stack, microseconds in sorted(stacks.items()))


class Profiler:
    """Samples every thread of this process between `start` and `stop`, which only the main thread may call.

    A timer interrupts the main thread. A separate sampling thread would have to wait for the interpreter lock, and so
    see other threads only where they release it: in system calls and some libraries, never in Python code. System calls
    that the timer interrupts continue by themselves; forked children have no timer.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.profile = Profile()
        self._interval_s = interval_s
        self._pauses = random.Random(0)  # noqa: S311  (not for secrets)
        self._names: dict[int, str] = {}
        self._main = threading.get_ident()
        self._last_s = 0.0
        self._stopped = False
        self._former: Callable[[int, FrameType | None], object] | int | None = None

    def start(self) -> None:
        """Begin. Uses SIGALRM, which is then unavailable to the process. Raises ValueError in another thread."""
        self._last_s = time.perf_counter()
        self._former = signal.signal(signal.SIGALRM, self._look)
        signal.siginterrupt(signal.SIGALRM, False)
        self._set_timer()

    def stop(self) -> None:
        """End; `profile` does not change any more."""
        self._stopped = True  # a sample under way sets no timer again, whose signal would end the process
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self._former)

    def _set_timer(self) -> None:
        if self._stopped:
            return
        signal.setitimer(signal.ITIMER_REAL, self._interval_s * self._pauses.uniform(0.5, 1.5))

    def _look(self, number: int, frame: FrameType | None) -> None:
        now_s = time.perf_counter()
        seconds, self._last_s = now_s - self._last_s, now_s
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # documented, for uses such as this
        if (interrupted := _below_looks(frame)) is not None:
            frames[self._main] = interrupted  # and not this function
        for ident, seen in frames.items():
            self.profile.note(seen, self._name(ident), seconds)
        self.profile.looks += 1
        self.profile.looking_s += time.perf_counter() - now_s
        self._set_timer()

    def _name(self, ident: int) -> str:
        if ident not in self._names:
            self._names |= {thread.ident: thread.name for thread in threading.enumerate() if thread.ident is not None}
            self._names.setdefault(ident, "a thread that Python did not start")
        return self._names[ident]


def _below_looks(frame: FrameType | None) -> FrameType | None:
    """Return the frame that the profiler interrupted first: a late signal may interrupt the look before."""
    below, caller = frame, frame
    while caller is not None:
        if caller.f_code is Profiler._look.__code__:  # pyright: ignore[reportPrivateUsage]
            below = caller.f_back
        caller = caller.f_back
    return below


@contextmanager
def profiled(folder: Path | None, name: str) -> Generator[None]:
    """Profile this process while the body runs; then, also after an error, write `<name>.txt` and `<name>.folded`.

    Does nothing when `folder` is None. Raises OSError when the files cannot be written.
    """
    if folder is None:
        yield
        return
    profiler = Profiler()
    profiler.start()
    try:
        yield
    finally:
        profiler.stop()
        folder.mkdir(parents=True, exist_ok=True)
        title = f"{name} (pid {os.getpid()})"
        write_text(folder / f"{name}.txt", profiler.profile.text(title), durable=False)
        write_text(folder / f"{name}.folded", profiler.profile.folded(), durable=False)


# --- tables ---------------------------------------------------------------------------------------------------------


def _thread_text(thread: str, seen: Mapping[Sight, float]) -> str:
    own: defaultdict[CodeType, float] = defaultdict(float)
    everything: defaultdict[CodeType, float] = defaultdict(float)
    lines: defaultdict[CodeType, Counter[int]] = defaultdict(Counter)
    for sight, seconds in seen.items():
        leaf = sight.stack[-1]
        own[leaf] += seconds
        lines[leaf][sight.line] += round(1e6 * seconds)
        for code in set(sight.stack):
            everything[code] += seconds
    total_s = sum(own.values())

    def table(heading: str, by: Mapping[CodeType, float]) -> list[str]:
        rows = [f"{heading}:", "  own s   own %   all s   all %  function"]
        for code in sorted(by, key=lambda code: (-by[code], code.co_qualname))[:ROWS]:
            at = f"{_file(code)}:{lines[code].most_common(1)[0][0] if code in lines else code.co_firstlineno}"
            shares = f"{_cells(own.get(code, 0.0), total_s)} {_cells(everything[code], total_s)}"
            rows.append(f"{shares}  {code.co_qualname}  {at}")
        return rows

    return "\n".join(
        [
            f"=== {thread}: {total_s:.1f} s ===",
            *table("by own time", own),
            "",
            *table("by all time", everything),
            "",
        ]
    )


def _cells(seconds: float, total_s: float) -> str:
    return f"{seconds:7.2f} {100 * seconds / total_s if total_s else 0.0:7.1f}"


def _file(code: CodeType) -> str:
    """Return the file's name with its folder's name."""
    return "/".join(Path(code.co_filename).parts[-2:])
