"""Which start of which machine this is: a restarted machine has forgotten what was not synced to its disk."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux has the id of the machine's start here; all containers of the machine read the same."""


def boot_id() -> str:
    """The id of this start of this machine; empty if the system has none."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""
