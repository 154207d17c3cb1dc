"""Settings of a coordinator, with limits on the silence of workers, on time without progress, and on holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeAlias

from remuda.wire.keys.folder import FOLDER
from remuda.wire.messages import Phase

BEATS_PER_S = 200
"""Beats per second of the whole herd. Workers of a larger herd beat less often, and the time limit for silence grows
accordingly."""
LONGEST_BEAT_INTERVAL_S = 5.0


@dataclass(frozen=True)
class Limits:
    """Time limits for silence and for work without progress."""

    beat_interval_s: float = 1.0
    """Interval in a small herd."""
    lost_after_s: float = 10.0
    """After this time without any message the process is dead or cut off."""
    stuck_after_s: float = 60.0
    """After this time with beats but no progress, the worker is stuck: its environment or device hangs."""
    hopeless_after_s: float = 120.0
    """After this time without progress the worker loses the lease. The worker's process then prints the stacks and
    ends, and the nanny restarts the worker."""

    @classmethod
    def of(cls, settings: Iterable[str]) -> Limits:
        """Return limits with these changes, e.g. `lost_after_s=20`. Raises ValueError."""
        names = [each.name for each in fields(cls)]
        given: dict[str, float] = {}
        for setting in settings:
            name, _, number = setting.partition("=")
            if name not in names:
                raise ValueError(f"unknown limit {setting!r}; known: {', '.join(names)}")
            given[name] = _seconds(setting, number)
        limits = cls(**given)
        if limits.lost_after_s < 2 * limits.beat_interval_s:
            raise ValueError(f"lost_after_s={limits.lost_after_s:g}: expected at least two heartbeats")
        if limits.hopeless_after_s < limits.stuck_after_s:
            raise ValueError(f"hopeless_after_s={limits.hopeless_after_s:g}: expected at least stuck_after_s")
        return limits


def _seconds(setting: str, number: str) -> float:
    try:
        seconds = float(number)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        raise ValueError(f"{setting!r}: expected a positive number of seconds, e.g. lost_after_s=20")
    return seconds


LongestWithoutProgress: TypeAlias = Mapping[Phase, float]
"""Time limits without progress by activity, where a run sets limits. Limits apply to all
remaining activities."""


@dataclass(frozen=True)
class Hold:
    """The disk of a run accepts no writes, or no more data of its workers."""

    why: str
    until_s: float
    """Time, by the coordinator's clock, at which the run fails unless the disk accepts writes before."""
    journals: bool = False
    """The journal can still be written: messages about the run are handled."""

    def explain(self, now_s: float) -> str:
        """Return the cause and the remaining time, for people."""
        left_s = max(self.until_s - now_s, 0.0)
        return f"{self.why}; the run fails in {left_s:.0f} s unless its disk takes writes before"


@dataclass(frozen=True)
class Settings:
    """Settings given at the start of a coordinator."""

    runs_dir: Path
    connection_file: Path
    address: str | None = None
    """Address to listen on, e.g. tcp://127.0.0.1:5555. None: the address of the previous coordinator, if free,
    otherwise any free port of the loopback interface."""
    persistent: bool = False
    """True if the coordinator owns the runs folder and continues the listed runs. Otherwise the coordinator exists only
    for newly submitted runs."""
    limits: Limits = field(default_factory=Limits)
    stream_port: int = 0
    """Port for files of workers without access to the runs folder; 0: any free port."""
    advertised: str | None = None
    """Public host, or host:port, of the coordinator. None: the address of this machine on the route
    to remote machines."""
    http: str | None = None
    """Address of health and metrics, e.g. 9300 or 0.0.0.0:9300. None: not served."""
    own_dir: Path | None = None
    """Folder of a persistent coordinator's list of runs and keys; None: the runs folder. With separate folders, several
    coordinators share a runs folder."""
    hands_over: bool = False
    """On a signal to end, have runs saved and leave the runs to the next start, instead of stopping. The connection
    file stays, so workers wait."""
    idle_end_s: float | None = None
    """Time without unfinished runs until the coordinator ends; None: never."""
    allowed_code: tuple[Path, ...] = ()
    """Folders of allowed code for users other than the coordinator's own."""

    @property
    def keys_dir(self) -> Path:
        """Folder of the keys: in the runs folder, so workers recognize a restarted coordinator. A coordinator without a
        runs folder has separate keys, beside the connection file."""
        return (self.list_dir if self.persistent else self.connection_file.absolute().parent) / FOLDER

    @property
    def list_dir(self) -> Path:
        """Folder owned by a persistent coordinator, with its list of runs."""
        return self.own_dir or self.runs_dir
