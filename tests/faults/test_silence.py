"""A coordinator is silent for long, since it is stopped or was killed: its herd waits, and goes on once it is back."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, kill
from remuda.tests.faults.sizes import LONG as IN_FULL
from remuda.tests.faults.sizes import LONG_STEPS, SILENCE_S, within
from remuda.tests.faults.test_processes import ENDLESS, LONG
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.worker.session import QUIET_S

pytestmark = pytest.mark.processes

LIMITS = None if IN_FULL else "lost_after_s=4,stuck_after_s=6,hopeless_after_s=7"
"""The silence is longer than any of them."""


@pytest.mark.parametrize("how", ["stopped and woken", "killed and restarted"])
def test_a_herd_outlasts_a_silent_coordinator(how: str, tmp_path: Path, herds: Herds) -> None:
    """15. Every worker is back in its first incarnation, and the counters are exact."""
    user = UserFolder.make(tmp_path / "user", {**LONG, "collector": {**CONFIG["collector"], "count": 3}})
    herd = herds(LIMITS)
    coordinator = herd.coordinator()
    herd.workers(collectors=3, evaluators=1, learners=1)
    herd.wait_members(5)
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    processes = {worker.pid for worker in herd.members()}
    if how == "stopped and woken":
        kill(coordinator.pid, signal.SIGSTOP)
        time.sleep(SILENCE_S)
        begun_s = time.monotonic()
        kill(coordinator.pid, signal.SIGCONT)
    else:
        coordinator.kill()
        coordinator.wait()
        time.sleep(SILENCE_S)
        begun_s = time.monotonic()
        herd.coordinator()
    until(lambda: {worker.pid for worker in herd.members()} == processes, "the same processes are there")
    until(lambda: all(w.beat_age_s < 2.0 for w in herd.members()), "all of them beat")
    back_s = time.monotonic() - begun_s
    print(f"15: {how} after {SILENCE_S:.0f} s, all five were back {back_s:.1f} s later")
    assert within(back_s, 10.0)
    herd.wait_over("horse")
    herd.shut_down()
    assert assert_exact(herd, run, user) >= LONG_STEPS
    assert {one.incarnation for one in herd.incarnations()} == {1}, "no worker had to start again"
    if IN_FULL:
        assert "the coordinator has been silent for 2 min; waiting for it, at most 60 min" in herd.said()
        assert "the coordinator is back after 5 min" in herd.said()


def herd_at_work(tmp_path: Path, herds: Herds, coordinator_timeout_s: float) -> Herd:
    herd = herds(coordinator_timeout_s=coordinator_timeout_s)
    herd.coordinator()
    for role in ("collector", "evaluator", "learner"):
        herd.worker(role)
    herd.wait_members(3)
    user = UserFolder.make(tmp_path / "user", {**ENDLESS, "collector": {**CONFIG["collector"], "count": 1}})
    herd.submit(user)
    herd.wait_env_step("horse", 300)
    return herd


def test_without_their_coordinator_workers_end_once_they_have_waited(tmp_path: Path, herds: Herds) -> None:
    """15. Each exits, and says so by its exit code, within the coordinator timeout and 5 s; no process stays."""
    herd = herd_at_work(tmp_path, herds, 4.0)
    coordinator, *nannies = herd.started
    coordinator.kill()
    coordinator.wait()
    begun_s = time.monotonic()
    codes = [nanny.wait(HANG_S) for nanny in nannies]
    took_s = time.monotonic() - begun_s
    print(f"15: all had gone after {took_s:.1f} s with a coordinator timeout of 4 s")
    assert within(took_s, 4.0 + 5.0)
    assert all(codes)
    assert "nothing was heard from the coordinator for 4" in herd.said()
    assert herd.family() == []


def test_workers_that_wait_for_their_coordinator_end_when_they_are_asked_to(tmp_path: Path, herds: Herds) -> None:
    """15, 37. At once, though nobody is there to take their unfinished work."""
    herd = herd_at_work(tmp_path, herds, 600.0)
    coordinator, *nannies = herd.started
    kill(coordinator.pid, signal.SIGSTOP)
    time.sleep(QUIET_S + 1.0)  # until then a worker still counts on an answer
    begun_s = time.monotonic()
    for nanny in nannies:
        nanny.send_signal(signal.SIGINT)
    assert [nanny.wait(HANG_S) for nanny in nannies] == [0, 0, 0]
    took_s = time.monotonic() - begun_s
    print(f"15: all had gone {took_s:.1f} s after Ctrl-C")
    assert within(took_s, 2.0)
    coordinator.kill()


def test_a_worker_that_is_started_first_waits_for_its_coordinator(herds: Herds) -> None:
    """15."""
    herd = herds()
    herd.worker("collector")
    until(lambda: "which does not exist yet; waiting at most 60 min" in herd.said(), "it says so")
    herd.coordinator()
    herd.wait_members(1)
    assert [one.incarnation for one in herd.incarnations("collector")] == [1], (
        "it has waited, and was not started again"
    )
    herd.shut_down()
