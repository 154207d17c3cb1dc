"""How much each test does: a short form with every other test, the whole of it with `make faults`."""

from __future__ import annotations

import os

LONG = os.environ.get("REMUDA_FAULTS") == "long"
"""Only in the long form are times asserted: the machine must have nothing else to do."""

TWINS = 100 if LONG else 2
"""1: times that two processes claim one UUID."""
CROWD = 500 if LONG else 100
"""3: workers that register at once."""
FLOOD_S = 60.0 if LONG else 0.5
"""11: how long more messages come than can be handled."""
WORKERS, WATCHED_S = 1_000, 60.0
"""12: simulated workers, and how long their beats are counted."""
LONG_STEPS, PAUSE_S = (6_000, 0.0) if LONG else (3_000, 0.002)
"""Environment steps of a run in whose course somebody dies, and how long an environment takes for each."""
POINTS = None if LONG else 3
"""14: named points at which the coordinator dies; None: all."""
REBUILT_CHUNKS = 20_000 if LONG else 2_000
"""25."""
PUBLISHER_KILLS = 400 if LONG else 30
"""17."""
READERS_S = 60.0 if LONG else 1.0
"""18: how long 64 readers read."""
RATES_S = 300.0 if LONG else 2.0
"""26, 30: how long either side is the slower one."""
SILENCE_S = 300.0 if LONG else 8.0
"""15: how long the coordinator is silent. The limits of the short form are smaller by as much."""
RESUMES = 6 if LONG else 1
"""38: times that everything is killed."""
LOGS_S = 60.0 if LONG else 1.0
"""39: how long 50 MB a minute are written."""
BUCKET_KILLS = 8 if LONG else 1
"""41: times that a role of a run in a bucket is killed, each at a random moment."""
SOAK_S = float(os.environ.get("REMUDA_FAULTS_SOAK_S", "900"))
SOAK_MEAN_S = 20.0
"""40: how long, and how long between two kills on average."""


def within(measured: float, limit: float) -> bool:
    """Whether something was fast or cheap enough; not asked in the short form, which runs on any machine, beside
    anything."""
    return measured <= limit or not LONG
