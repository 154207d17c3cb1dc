"""26, 30. One side much slower than the other: the setting holds, memory and data/ stay within their bounds."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import ENDLESS, Herd, assert_exact, kill
from remuda.tests.faults.sizes import LONG, RATES_S
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.wire.messages import Role

pytestmark = pytest.mark.processes

SAMPLES_PER_INSERT = 4
AWAKE_S, ASLEEP_S = 0.05, 0.4
"""Of the slower side: it is stopped nine tenths of the time."""
CONVERGED_ENV_STEPS = 6_000
QUOTA = 1 << 18
"""Of data/, in bytes: some 2,000 rows."""
MOST_GROWTH_MIB = 8 if LONG else 32
"""Of one process, once its ring and the index are full, and torch has done all it does."""


@pytest.mark.parametrize("slow", ["learner", pytest.param("collector", marks=pytest.mark.faults_long)])
def test_the_setting_holds_however_unequal_the_two_sides_are(tmp_path: Path, herds: Herds, slow: Role) -> None:
    user = UserFolder.make(
        tmp_path / "user",
        {**ENDLESS, "buffer": {**CONFIG["buffer"], "samples_per_insert": SAMPLES_PER_INSERT, "quota_bytes": QUOTA}},
    )
    herd = herds()
    coordinator = herd.gather()
    run = herd.submit(user)
    herd.wait_env_step("horse", 3_000)  # the buffer is full
    workers = [worker.pid for worker in herd.members()]
    with _slowed(herd, slow):
        largest = _largest(run / "data", RATES_S / 3)
        before = _memory([*workers, coordinator.pid])
        largest = max(largest, _largest(run / "data", RATES_S * 2 / 3))
        herd.wait_env_step("horse", CONVERGED_ENV_STEPS)
        after = _memory([*workers, coordinator.pid])
        status = herd.experiment("horse")
    herd.stop()
    herd.shut_down()
    chunk = max(path.stat().st_size for path in (run / "data").iterdir())
    print(f"26: at most {largest / 2**20:.2f} MiB of a quota of {QUOTA / 2**20:.2f} MiB, chunks of {chunk} B")
    assert QUOTA / 2 < largest <= QUOTA + chunk
    assert "not sampled any more" not in herd.said(), "the learner misses no file"
    growth = {pid: (after[pid] - before[pid]) / 2**20 for pid in before}
    print(
        f"30: slow {slow}: samples_per_insert {status.samples_per_insert:.3f} after {status.env_step} steps; "
        f"processes grew by {', '.join(f'{mib:.1f}' for mib in growth.values())} MiB"
    )
    assert status.samples_per_insert == pytest.approx(SAMPLES_PER_INSERT, rel=0.05 if LONG else 0.1)
    assert max(growth.values()) < MOST_GROWTH_MIB
    assert_exact(herd, run, user, all_kept=False)
    assert {one.incarnation for one in herd.incarnations()} == {1}


@contextmanager
def _slowed(herd: Herd, role: Role) -> Generator[None]:
    """Let the workers of a role run a tenth of the time."""
    pids, over = [worker.pid for worker in herd.members(role)], threading.Event()

    def slow() -> None:
        while not over.is_set():
            for number, pause_s in ((signal.SIGSTOP, ASLEEP_S), (signal.SIGCONT, AWAKE_S)):
                for pid in pids:
                    kill(pid, number)
                time.sleep(pause_s)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _largest(folder: Path, seconds: float) -> int:
    """Look at a folder for so long; returns the most bytes that it held."""
    largest, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        held = 0
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError):
                held += entry.stat().st_size
        largest = max(largest, held)
        time.sleep(0.05)
    return largest


def _memory(pids: list[int]) -> dict[int, int]:
    return {pid: psutil.Process(pid).memory_info().rss for pid in pids}
