"""A real `remuda launch` as a user types it, watched from outside."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
REMUDA = (sys.executable, "-m", "remuda.cli")
END_DEADLINE_S = 60.0


@contextmanager
def launched(config: str, run_dir: Path, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """Launch a config, named relative to the repository, into `run_dir`; ended in order, or else by force."""
    command = [*REMUDA, "launch", config, "--run-dir", str(run_dir), *arguments]
    none = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=ROOT, stdin=none, stdout=none, stderr=none)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()  # the lifeline that breaks then ends everything else
            process.wait()


def until(condition: Callable[[], bool], what: str, *, deadline_s: float, pause_s: float = 0.005) -> None:
    """Wait for what must come. Raises TimeoutError."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {deadline_s:g} s")
        time.sleep(pause_s)


def collectors_seen(run_dir: Path) -> set[str]:
    """UUIDs of the collectors that have written a chunk which still lies in data/."""
    data = run_dir / "data"
    names = [path.name for path in data.iterdir()] if data.is_dir() else []
    return {name.split("_")[0] for name in names if name.endswith(".safetensors")}


def pss_bytes(process: subprocess.Popen[bytes]) -> dict[str, int]:
    """Proportional memory of the command and all its descendants by pid: pages shared by n processes count 1/n in each.

    Linux only. A process that ends meanwhile is left out.
    """
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    found: dict[str, int] = {}
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            found[str(member.pid)] = member.memory_full_info().pss
    return found
