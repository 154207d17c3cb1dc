"""The examples that are made of remuda.learning: short, and they learn, across a resume."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.config.load import load_config
from remuda.runner.serial import RunResult, Start, run
from remuda.storage.existing_folder import OnExists
from remuda.tests.runner.runs import Flag

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("ppo_variant", "a2c", "ddpg", "transformer_policy")


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Configs put their folder on the path."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "env_steps", "goal"),
    [("ppo_variant", 3000, 40), ("a2c", 18000, 60), ("ddpg", 2200, -1050), ("transformer_policy", 2000, None)],
)
def test_it_learns_and_goes_on_where_it_was(name: str, env_steps: int, goal: float | None, tmp_path: Path) -> None:
    """The goals are far from what untrained policies reach: 10 to 25, and -1200 to -1500. The
    transformer takes too long for one."""

    def train(env_steps: int, on_exists: OnExists) -> RunResult:
        ends = (f"stop.max_env_steps={env_steps}", "stop.stop_value=1000")
        config = load_config(
            EXAMPLES / f"{name}.yaml", overrides=(*ends, f"evaluator.interval_env_steps={env_steps}")
        ).config
        return run(config, Start(tmp_path / "run", on_exists), stop=Flag())

    first, second = train(env_steps // 3, "error"), train(env_steps, "resume")
    assert second.counters.train_iter > first.counters.train_iter > 0
    assert second.best is not None
    assert goal is None or second.best.reward_mean > goal, second
