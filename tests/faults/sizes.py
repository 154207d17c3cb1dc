"""How much each test does: a short form with every other test, the whole of it with `make faults`."""

from __future__ import annotations

import os

LONG = os.environ.get("REMUDA_FAULTS") == "long"
"""Only in the long form are times asserted: the machine must have nothing else to do."""

TWINS = 100 if LONG else 5
"""1: times that two processes claim one UUID."""
FLOOD_S = 60.0 if LONG else 5.0
"""11: how long more messages come than can be handled."""
WORKERS, WATCHED_S = (1_000, 60.0) if LONG else (150, 2.0)
"""12: simulated workers, and how long their beats are counted."""
LONG_STEPS, PAUSE_S = (6_000, 0.0) if LONG else (3_000, 0.002)
"""Environment steps of a run in whose course somebody dies, and how long an environment takes for each."""
AWAY_S = 5.0 if LONG else 1.5
"""13: how long there is no coordinator, while chunks pile up and beats go unanswered."""
POINTS = None if LONG else 5
"""14: named points at which the coordinator dies; None: all."""
PUBLISHER_KILLS = 400 if LONG else 80
"""17."""
READERS_S = 60.0 if LONG else 2.0
"""18: how long 64 readers read."""
QUOTA_S = 600.0 if LONG else 2.0
"""26."""
RATES_S = 300.0 if LONG else 2.0
"""30: how long either side is the slower one."""
SILENCE_S = 300.0 if LONG else 8.0
"""15: how long the coordinator is silent. The limits of the short form are smaller by as much."""
RESUMES = 6 if LONG else 1
"""38: times that everything is killed."""
LOGS_S = 60.0 if LONG else 2.0
"""39: how long 50 MB a minute are written."""
SOAK_S = float(os.environ.get("REMUDA_FAULTS_SOAK_S", "900"))
SOAK_MEAN_S = 20.0
"""40: how long, and how long between two kills on average."""


def within(measured: float, limit: float) -> bool:
    """Whether something was fast or cheap enough; not asked in the short form, which runs on any machine, beside
    anything."""
    return measured <= limit or not LONG
