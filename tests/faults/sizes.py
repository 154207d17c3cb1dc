"""How much each test does: a short form with every other test, the whole of it with `make faults`."""

from __future__ import annotations

import os

LONG = os.environ.get("REMUDA_FAULTS") == "long"
"""In the long form limits of time are held to as well: the machine must have nothing else to do."""

TWINS = 100 if LONG else 10
"""1: times that two processes claim one UUID."""
FLOOD_S = 60.0 if LONG else 8.0
"""11: how long more messages come than can be handled."""
WORKERS, WATCHED_S = (1_000, 60.0) if LONG else (150, 3.0)
"""12: simulated workers, and how long their beats are counted."""
POINTS = None if LONG else 5
"""14: named points at which the coordinator dies; None: all."""
PUBLISHER_KILLS = 400 if LONG else 200
"""17."""
READERS_S = 60.0 if LONG else 3.0
"""18: how long 64 readers read."""
QUOTA_S = 600.0 if LONG else 5.0
"""26."""
RATES_S = 300.0 if LONG else 5.0
"""30: how long either side is the slower one."""
SILENCE_S = 300.0 if LONG else 5.0
"""15: how long the coordinator is silent. The limits of the short form are smaller by as much."""
RESUMES = 6 if LONG else 1
"""38: times that everything is killed."""
LOGS_S = 60.0 if LONG else 4.0
"""39: how long 50 MB a minute are written."""
SOAK_S = float(os.environ.get("REMUDA_FAULTS_SOAK_S", "900" if LONG else "12"))
SOAK_MEAN_S = 20.0 if LONG else 3.0
"""40: how long, and how long between two kills on average."""


def within(seconds: float, limit_s: float) -> bool:
    """Whether something was fast enough: by its limit in the long form, else only roughly, since other tests run
    beside it."""
    return seconds <= (limit_s if LONG else 5 * limit_s + 2)
