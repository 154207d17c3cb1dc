"""Shared inference in a simulated herd: collectors wait for inference workers, and deaths of these fail no run."""

from __future__ import annotations

import pytest

from remuda.coordinator import failures
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import CollectorWork, World


def herd(**stop: int) -> World:
    return World(config(inference={"count": 1}, stop={"max_env_steps": 1_000_000, **stop}))


def lets_in_collectors(world: World) -> bool:
    """All collectors of the run, and nobody else."""
    works = [worker.work for worker in world.of("collector")]
    keys = {work.key for work in works if isinstance(work, CollectorWork)}
    [inference] = (work for work in world.inference_work() if work.worker.alive)
    return len(keys) == len(works) and inference.let_in == keys


def test_a_run_waits_for_an_inference_worker_says_so_and_goes_on() -> None:
    world = herd(max_env_steps=1_500)
    world.herd(2)
    world.submit()
    world.until(lambda: "1 inference (0 free)" in (world.experiment().waiting_for or ""))
    lost = world.add("inference", 0)
    world.until_env_step(500)
    world.kill(lost)
    world.until(lambda: "1 inference (0 free)" in (world.experiment().waiting_for or ""))
    world.steps(20)  # what was under way is counted
    before = world.experiment().env_step
    world.steps(100)
    assert world.experiment().env_step == before
    world.add("inference", 1)
    for _ in range(2):  # also by a coordinator that was killed
        world.restart(world.of("collector")[0])
        world.until(lambda: lets_in_collectors(world))
        world.crash()
    world.run()
    assert world.experiment().env_step == world.unique_env_steps() >= 1_500


def test_deaths_after_some_work_fail_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that collectors deliver show that their inference worker works."""
    monkeypatch.setattr(failures, "GOOD_LEASE_S", 1.0)
    world = herd()
    world.herd(2, inference=1)
    world.submit()
    world.until_env_step(300)
    for _ in range(6):
        world.steps(40)  # 2 s
        [worker] = world.of("inference")
        world.restart(worker, "signal 9 (SIGKILL)")
    assert world.experiment().state == "running"
