"""`make gpu` in its CPU form: the same code on a machine without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from remuda.benchmarks import gpu
from remuda.benchmarks.plain_updates import plain
from remuda.benchmarks.records import newest
from remuda.tests.patience import HANG_S
from remuda.tests.policy.algorithms.every import CASES


@pytest.mark.processes
def test_on_the_cpu_it_says_so_checks_weights_measures_rates_and_stores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(gpu.PARTS, "updates", replace(gpu.PARTS["updates"], deadline_s=HANG_S))
    arguments = ["--device", "cpu", "--parts", "updates", "--cases", "pendulum_td3", "--measured-s", "0.01"]
    assert gpu.main([*arguments, "--results", str(tmp_path)]) == 0
    assert "this is the CPU form" in capfd.readouterr().out
    apart, rate = newest("gpu", tmp_path)[::-1]
    assert (apart.name, apart.ours, apart.met) == ("pendulum_td3 on cpu: weights apart", 0.0, True)
    assert (rate.name, rate.reference_name) == ("pendulum_td3 on cpu: updates, float32", "a plain torch loop, float32")
    assert rate.ours > 0.0


@pytest.mark.processes
def test_a_part_too_late_fails_the_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(gpu.PARTS, "pong", replace(gpu.PARTS["pong"], deadline_s=0.1))
    assert gpu.main(["--device", "cpu", "--parts", "pong"]) == 1
    assert "not measured: pong: it was not done after 0.1 s and was stopped" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["dqn", "ppo", "ppo, continuous", "sac", "td3"])
def test_a_plain_loop_makes_as_many_updates_of_a_batch_as_the_algorithm(name: str) -> None:
    case = CASES[name]
    batch = case.draw(np.random.default_rng(0))
    update = plain(case.config, case.made())
    assert update is not None
    assert update.learn(batch) == case.made().learn(batch).updates


def test_all_parts_together_take_at_most_eight_minutes() -> None:
    assert sum(part.deadline_s for part in gpu.PARTS.values()) <= 480.0
