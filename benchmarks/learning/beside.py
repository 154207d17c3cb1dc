"""How long something took, and how much other work the machine had meanwhile: beside much of it seconds say little."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

Number = Callable[[], float]


@dataclass(frozen=True)
class Took:
    """What a Stopwatch has measured."""

    wall_s: float
    other_cores: float
    """Cores that other programs than this one and its processes kept busy, on average."""
    processor_s: float
    """Processor time of this program and its processes. Other work lengthens it far less than it lengthens `wall_s`."""


class Stopwatch:
    """Runs from when it is made. What it is asked about must have ended: processes count once they were waited for."""

    def __init__(self, now_s: Number | None = None, busy_s: Number | None = None, own_s: Number | None = None) -> None:
        """`now_s` reads the clock, `busy_s` the processor time of the whole machine, and `own_s` our part of it."""
        self._read: tuple[Number, ...] = (now_s or time.perf_counter, busy_s or machine_busy_s, own_s or processor_s)
        self._begin = [read() for read in self._read]

    def took(self) -> Took:
        """The time since it was made."""
        wall_s, busy_s, own_s = (read() - begin for read, begin in zip(self._read, self._begin, strict=True))
        return Took(wall_s, max(0.0, busy_s - own_s) / wall_s if wall_s else 0.0, own_s)


def machine_busy_s() -> float:
    """Seconds that all cores together were at work since the machine started."""
    times = psutil.cpu_times()
    named = times._asdict()  # `guest` and `guest_nice` are part of `user` and `nice`
    idle = ("idle", "iowait", "guest", "guest_nice")
    return float(sum(value for name, value in named.items() if name not in idle))


def processor_s() -> float:
    """Seconds of processor time of this process, and of all that it has waited for."""
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in own)
