"""The machine and the versions that a figure was measured with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NotRequired, TypedDict

import psutil

from remuda.benchmarks.peers import versions

_PACKAGES = ("remuda", "numpy", "torch", "pyzmq", "msgspec", "gymnasium", "ale-py")


class Machine(TypedDict):
    """What a stored figure says of where it comes from; nothing in it names the host."""

    cores: int
    cpu: str
    memory_gib: float
    system: str
    python: str
    versions: dict[str, str]
    peers: dict[str, dict[str, str]]
    gpu: NotRequired[str]
    """Of measurements on a GPU."""


def facts() -> Machine:
    """Return the facts of this machine. `cores` counts those we may run on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(Path("/proc/cpuinfo")),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
        "peers": versions(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model(file: Path) -> str:
    if file.exists():
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
