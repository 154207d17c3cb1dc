"""A treasure that random actions find once in 256 episodes is found where members of an ensemble explore."""

from __future__ import annotations

from pathlib import Path

from remuda.config.load import load_config
from remuda.runner.serial import Start, run
from remuda.tests.runner.runs import Flag, Ticking

EXAMPLE = Path(__file__).parents[2] / "examples" / "deep_sea.yaml"
MOST_ENV_STEPS = 4_000
"""500 episodes; seeds 1 to 5 took 448 to 2,816 steps."""


def test_bootstrapped_dqn_finds_a_deep_treasure(tmp_path: Path) -> None:
    overrides = ("env.kwargs.size=8", "evaluator.interval_env_steps=400", f"stop.max_env_steps={MOST_ENV_STEPS}")
    config = load_config(EXAMPLE, overrides=(*overrides, "env.vectorization=sync", "collector.count=1")).config
    result = run(config, Start(tmp_path / "run"), stop=Flag(), clock=Ticking())
    assert "stop_value" in result.reason, result
