"""30. One side much slower than the other: the setting holds, and nobody's memory grows."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, kill
from remuda.tests.faults.sizes import LONG, RATES_S
from remuda.tests.faults.test_processes import ENDLESS
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.wire.messages import Role

pytestmark = pytest.mark.processes

SAMPLES_PER_INSERT = 4
AWAKE_S, ASLEEP_S = 0.05, 0.4
"""Of the slower side: it is stopped nine tenths of the time."""
CONVERGED_ENV_STEPS = 6_000
MOST_GROWTH_MIB = 8 if LONG else 32
"""Of one process, once its ring and the index are full, and torch has done all it does."""


@pytest.mark.parametrize("slow", ["learner", pytest.param("collector", marks=pytest.mark.faults_long)])
def test_the_setting_holds_however_unequal_the_two_sides_are(tmp_path: Path, herds: Herds, slow: Role) -> None:
    user = UserFolder.make(
        tmp_path / "user",
        {**ENDLESS, "buffer": {**CONFIG["buffer"], "capacity": 2_000, "samples_per_insert": SAMPLES_PER_INSERT}},
    )
    herd = herds()
    coordinator = herd.gather()
    run = herd.submit(user)
    herd.wait_env_step("horse", 3_000)  # the buffer is full
    workers = [worker.pid for worker in herd.members()]
    with _slowed(herd, slow):
        time.sleep(RATES_S / 3)
        before = _memory([*workers, coordinator.pid])
        time.sleep(RATES_S * 2 / 3)
        herd.wait_env_step("horse", CONVERGED_ENV_STEPS)
        after = _memory([*workers, coordinator.pid])
        status = herd.experiment("horse")
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
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


def _memory(pids: list[int]) -> dict[int, int]:
    return {pid: psutil.Process(pid).memory_info().rss for pid in pids}
