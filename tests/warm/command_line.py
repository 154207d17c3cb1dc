"""The command line under which others see this process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

ROOM_BYTES = 16_384
"""A process that is to get another command line is started with an argument of this length, which makes room for it."""
_ARG_START, _ARG_END = 45, 46
"""Of the fields of /proc/self/stat behind the name."""


def fits(command: Sequence[str]) -> bool:
    """Whether there is room for it."""
    return len(_joined(command)) < ROOM_BYTES


def set_command_line(command: Sequence[str]) -> None:
    """Write it over the one that this process was started with; what is left of the room is empty."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    text = _joined(command)
    assert len(text) < end - start
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
    Path("/proc/self/comm").write_bytes(os.fsencode(os.path.basename(command[0]))[:15])


def _joined(command: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(part) + b"\0" for part in command)
