"""How much each test does: a short form with every other test, the whole of it with `make security`."""

from __future__ import annotations

import os

LONG = os.environ.get("REMUDA_SECURITY") == "long"
"""Only in the long form are times asserted: the machine must have nothing else to do."""

EXAMPLES = 10_000 if LONG else 40
"""19, 24, 28, 36: damaged files and messages that each decoder is given."""
FRAMES = 1_000_000 if LONG else 1_500
"""31: mutated messages that are handed to the state machine."""
FRAMES_AT_THE_DOOR = 1_000_000 if LONG else 2_000
"""31: mutated messages that are sent to a coordinator."""
STRANGERS = 1_000 if LONG else 60
"""32: connections of each kind that strangers make to each port."""
PARTITION_S = 30.0 if LONG else 3.0
"""33: how long nothing passes."""


def within(measured: float, limit: float) -> bool:
    """Whether something was fast or cheap enough; not asked in the short form, which runs on any machine, beside
    anything."""
    return measured <= limit or not LONG
