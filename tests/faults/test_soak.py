"""40. Every role is killed again and again on a bad network, for as long as REMUDA_FAULTS_SOAK_S says."""

from __future__ import annotations

import random
import statistics
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import ENDLESS, IN_WORK, Herd, assert_exact, kill
from remuda.tests.faults.network import Unreliable
from remuda.tests.faults.sizes import SOAK_MEAN_S, SOAK_S
from remuda.tests.parallel.reading import progress, table, texts
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import until
from remuda.wire.messages import Role

pytestmark = [pytest.mark.processes, pytest.mark.faults_long]

VICTIMS: tuple[Role | None, ...] = ("collector", "inference", "evaluator", "learner", None)
"""None: the coordinator."""
PROCESSES = 7
"""Coordinator, nanny and five workers."""
SAMPLE_S = 1.0
MOST_DESCRIPTORS, MOST_THREADS = 80, 24
"""Of one process, however often others were killed."""
LEARNED = 0.9
"""Share of the return a perfect policy has; one that guesses gets half of it."""


@dataclass
class Samples:
    """What a complete herd needed, second by second."""

    most: tuple[int, int] = (0, 0)
    """Descriptors and threads of any one process at any time."""
    descriptors: list[int] = field(default_factory=list[int])
    threads: list[int] = field(default_factory=list[int])
    mib: list[float] = field(default_factory=list[float])

    def take(self, herd: Herd) -> None:
        """Look at it, if nobody is missing just now."""
        found: list[tuple[int, int, float]] = []
        with suppress(psutil.NoSuchProcess):
            for process in herd.family():
                pss = process.memory_full_info().pss / 2**20
                found.append((process.num_fds(), process.num_threads(), pss))
                self.most = max(self.most[0], found[-1][0]), max(self.most[1], found[-1][1])
            if len(found) == PROCESSES:
                self.descriptors.append(sum(each[0] for each in found))
                self.threads.append(sum(each[1] for each in found))
                self.mib.append(sum(each[2] for each in found))

    def halves(self, values: list[int] | list[float]) -> tuple[float, float]:
        """Medians of the first and of the second half, the first tenth left out."""
        values = values[len(values) // 10 :]
        middle = len(values) // 2
        return statistics.median(values[:middle]), statistics.median(values[middle:])


def test_whoever_is_killed_the_run_goes_on_and_the_counters_are_exact(tmp_path: Path, herds: Herds) -> None:
    user = UserFolder.make(
        tmp_path / "user",
        {
            **ENDLESS,
            "buffer": {**CONFIG["buffer"], "capacity": 2_000},
            "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 2_000, "episodes": 10},
            "inference": {"count": 1},
            "stop": {"max_env_steps": 1_000_000_000},
        },
    )
    samples = Samples()
    with Unreliable(seed=40, latest_s=0.01, mean_s=SOAK_MEAN_S, partition_s=3.0) as network:
        herd = herds(network=network)
        coordinator = herd.gather(inference=1)
        run = herd.submit(user)
        herd.wait_env_step("horse", 500)
        kills = _kill_at_random(herd, coordinator, SOAK_S, samples)
        status = herd.stop()
        herd.shut_down()
        print(f"40: killed {dict(kills)} in {SOAK_S:g} s; the network: {network.faults}")
    env_step = assert_exact(herd, run, user, lost_at_most=kills["collector"] * IN_WORK, all_kept=False)
    assert env_step == status.env_step
    steps = [int(row["TotalEnvInteracts"]) for row in progress(run)]
    assert steps == sorted(steps)
    assert steps[-1] in (env_step, env_step // 500 * 500), "a boundary, where it was just reached"
    best = max(_scores(run))
    print(f"40: {env_step} steps, train_iter {status.train_iter}, best return {100 * best:.0f} % of a perfect policy's")
    _assert_level(samples)
    assert best >= LEARNED


def _kill_at_random(herd: Herd, coordinator: subprocess.Popen[bytes], seconds: float, samples: Samples) -> Counter[str]:
    chance, kills = random.Random(7), Counter[str]()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pause_s = min(chance.expovariate(1.0 / SOAK_MEAN_S), 4 * SOAK_MEAN_S, max(0.0, end_s - time.monotonic()))
        next_s = time.monotonic() + pause_s
        while (left_s := next_s - time.monotonic()) > 0:
            time.sleep(min(SAMPLE_S, left_s))
            samples.take(herd)
        victim = chance.choice(VICTIMS)
        kills[victim or "coordinator"] += 1
        if victim is None:
            coordinator.kill()
            coordinator.wait()
            coordinator = herd.coordinator()
        else:
            _kill_one(herd, victim)
    return kills


def _kill_one(herd: Herd, role: Role) -> None:
    until(lambda: herd.members(role), f"a {role} is there to be killed\n{herd.said()}")
    with suppress(ProcessLookupError):  # one that was killed a moment ago and is still listed
        kill(herd.members(role)[0].pid)


def _scores(run: Path) -> list[float]:
    """Of each evaluation, the return as a share of the longest one possible: a point a step."""
    logs = (run / "log" / "evaluator").glob("*_logger.txt")
    tables = [table(text) for log in logs for text in texts(log, "=== Evaluation")]
    return [float(values["reward_mean"]) / float(values["avg_envstep_per_episode"]) for values in tables]


def _assert_level(samples: Samples) -> None:
    """Nothing grows with time."""
    print(f"40: {len(samples.mib)} looks at a whole herd; most descriptors and threads of one process {samples.most}")
    assert samples.most[0] < MOST_DESCRIPTORS
    assert samples.most[1] < MOST_THREADS
    halves = [samples.halves(values) for values in (samples.descriptors, samples.threads, samples.mib)]
    print(f"40: first and second half: descriptors, threads and MiB {halves}")
    descriptors, threads, mib = halves
    assert descriptors[1] <= descriptors[0] + 1
    assert threads[1] <= threads[0]
    assert mib[1] <= 1.02 * mib[0]
