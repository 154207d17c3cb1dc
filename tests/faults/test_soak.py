"""40. Every role is killed again and again, at random, for as long as REMUDA_FAULTS_SOAK_S says."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import psutil
import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, kill, make_user, wait_until
from remuda.tests.faults.test_processes import ENDLESS, IN_WORK
from remuda.tests.parallel.reading import progress
from remuda.wire.messages import Role

SOAK_S = float(os.environ.get("REMUDA_FAULTS_SOAK_S", "10"))
MEAN_S = float(os.environ.get("REMUDA_FAULTS_MEAN_S", "4"))
"""Between two kills."""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(int(SOAK_S) + 150)]
VICTIMS: tuple[Role | None, ...] = ("collector", "collector", "evaluator", "learner", None)
"""None: the coordinator."""


def test_whoever_is_killed_the_run_goes_on_and_the_counters_are_exact(tmp_path: Path, herds: Herds) -> None:
    user, herd, chance = make_user(tmp_path / "user", ENDLESS), herds(), random.Random(7)
    coordinator = herd.coordinator()
    herd.workers(collectors=2)
    herd.wait_members(4)
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    end_s, kills, open_files = time.monotonic() + SOAK_S, dict.fromkeys(map(str, VICTIMS), 0), list[int]()
    while time.monotonic() < end_s:
        time.sleep(min(chance.expovariate(1.0 / MEAN_S), 4 * MEAN_S))
        victim = chance.choice(VICTIMS)
        kills[str(victim)] += 1
        if victim is None:
            coordinator.kill()
            coordinator.wait()
            coordinator = herd.coordinator()
        else:
            _kill_one(herd, victim)
        open_files.append(psutil.Process(coordinator.pid).num_fds())
    herd.wait_members(4, deadline_s=60)
    herd.wait_env_step("horse", herd.experiment("horse").env_step + 500)
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    print(f"40: {kills} killed in {SOAK_S:g} s; descriptors of the coordinator {open_files}")
    env_step = assert_exact(herd, run, user, lost_at_most=kills["collector"] * IN_WORK)
    steps = [int(row["TotalEnvInteracts"]) for row in progress(run)]
    assert steps == sorted(steps)
    assert steps[-1] == env_step
    assert max(open_files) - min(open_files) <= 6, "a coordinator's descriptors do not grow"


def _kill_one(herd: Herd, role: Role) -> None:
    wait_until(lambda: herd.members(role), 60, f"a {role} is there to be killed")
    try:
        kill(herd.members(role)[0].pid)
    except ProcessLookupError:
        return  # one that was killed a moment ago and is still listed
