"""The command line and the environment under which others see this process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOM_BYTES = 16_384
"""A process that is to get another command line is started with an argument of this length, which makes room for it."""
ROOM = {"ROOM_OF_AN_ENVIRONMENT": " " * ROOM_BYTES}
"""What it is to have in its environment, for the same reason."""
_ARG_START, _ARG_END, _ENV_START, _ENV_END = 45, 46, 47, 48
"""Of the fields of /proc/self/stat behind the name."""


def fits(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether there is room for both."""
    return max(len(_joined(command)), len(_joined(_settings(environment)))) < ROOM_BYTES


def set_command_line(command: Sequence[str]) -> None:
    """Write it over the one that this process was started with; what is left of the room is empty."""
    _write(_joined(command), _ARG_START, _ARG_END)
    Path("/proc/self/comm").write_bytes(os.fsencode(os.path.basename(command[0]))[:15])


def show_environment(environment: Mapping[str, str]) -> None:
    """The same, once `os.environ` was cleared: until then C reads its variables there."""
    _write(_joined(_settings(environment)), _ENV_START, _ENV_END)


def _write(text: bytes, first: int, last: int) -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[first]), int(fields[last])
    assert len(text) < end - start
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _settings(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


def _joined(parts: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(part) + b"\0" for part in parts)
