"""Two policies learn a language: one sees the prize, the other opens the door."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.config.load import load_config
from remuda.runner.serial import RunResult, Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import PolicyFolder
from remuda.tests.runner.runs import run_tiny

EXAMPLE = Path(__file__).parents[2] / "examples" / "speaker_listener.yaml"
SEEDS, REQUIRED = range(5), 4


def learned(root: Path, seed: int, *overrides: str) -> RunResult:
    return run_tiny(load_config(EXAMPLE, seed=seed, overrides=list(overrides)).config, Start(root))


def best_of(result: RunResult) -> dict[str, float]:
    """Best mean return of each policy. Random actions get 1/3."""
    known: dict[str, float] = {}
    for name in result.policies:
        best = CheckpointIndex(PolicyFolder(result.run_dir, name).ckpt).best
        assert best is not None
        assert best.reward is not None
        known[name] = best.reward
    return known


def test_one_seed_learns_two_of_three_words(tmp_path: Path) -> None:
    """A lower goal than that of `make learning`; chance does not reach it in 60 episodes."""
    result = learned(tmp_path, 0, "stop.stop_value=0.6")
    assert result.reason == "stop_value", best_of(result)
    assert set(result.policies) == {"speaker", "listener"}


@pytest.mark.learning
def test_four_of_five_seeds_learn_the_language(tmp_path: Path) -> None:
    results = {seed: learned(tmp_path / str(seed), seed) for seed in SEEDS}
    for seed, result in results.items():
        print(f"seed {seed}: {result.reason}, env_step {result.counters.env_step}, {best_of(result)}")
    assert sum(result.reason == "stop_value" for result in results.values()) >= REQUIRED
