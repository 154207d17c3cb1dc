"""Masks and actions of several components: environments are learned with them, and not without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.load import load_settings
from remuda.runner.serial import Start, run
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.runner.runs import Flag, Ticking

HIDDEN: dict[str, Any] = {"hidden": [32], "discount": 0.9}
ON_POLICY: dict[str, Any] = {**HIDDEN, "horizon_steps": 32, "entropy_coefficient": 0.01}
REPLAYED: dict[str, Any] = {**HIDDEN, "n_step": 1}
EXPLORED: dict[str, Any] = {**REPLAYED, "epsilon_decay_env_steps": 3_000, "target_update_iters": 50}
CORE: dict[str, Any] = {"recurrent_units": 16, "recurrent": "gru"}
POLICIES: dict[str, dict[str, Any]] = {
    "ppo": {"type": "ppo", **ON_POLICY, "epochs": 10, "minibatches": 4},
    "ppo, recurrent": {"type": "ppo", **ON_POLICY, **CORE, "epochs": 10, "minibatches": 4},
    "impala": {"type": "impala", **ON_POLICY},
    "dqn": {"type": "dqn", **EXPLORED},
    "rainbow": {"type": "rainbow", **EXPLORED, "v_min": -2.0, "v_max": 10.0},
    "r2d2": {"type": "r2d2", **EXPLORED, **CORE, "burn_in_steps": 0, "sequence_steps": 10, "overlap_steps": 5},
    "sac": {"type": "sac", **REPLAYED, "target_entropy_share": 0.3},
}
SEEDS = range(3)
MOST_ENV_STEPS = 10_000
"""With masks 2,000 are enough."""
DIALS, DOORS = "remuda.tests.environments.several_actions", "remuda.tests.environments.doors:Doors"


def best(
    folder: Path, kind: str, env: dict[str, Any], *, goal: float, seed: int = 0, most_env_steps: int = MOST_ENV_STEPS
) -> float:
    """Train until a mean return of 20 episodes reaches the goal, or for `most_env_steps`. Returns
    the best mean return."""
    replays = POLICIES[kind]["type"] not in ("ppo", "impala")
    settings: dict[str, Any] = {
        "name": "spaces",
        "seed": seed,
        "env": {"num_envs": 8, "vectorization": "sync", **env},
        "policy": POLICIES[kind],
        "learner": {"learning_rate": 3e-3, **({"batch_size": 32} if replays else {})},
        "evaluator": {"episodes": 20, "interval_env_steps": 1_000},
        "buffer": {"min_rows": 200, "samples_per_insert": 8, "prioritized": False} if replays else {},
        "stop": {"max_env_steps": most_env_steps, "stop_value": goal},
    }
    result = run(load_settings(settings, folder=folder).config, Start(folder / "run"), stop=Flag(), clock=Ticking())
    assert not result.failed, result
    index = CheckpointIndex(folder / "run" / "ckpt")
    returns = [record.reward for record in index.records if record.reward is not None]
    print(f"{kind}, seed {seed}: {max(returns):.2f} after {result.counters.env_step} steps")
    return max(returns)


@pytest.mark.parametrize("kind", ["ppo", "dqn"])
def test_masks_one_seed(kind: str, tmp_path: Path) -> None:
    assert best(tmp_path, kind, {"make": DOORS}, goal=9.5) >= 9.5


def test_without_masks_nobody_gets_anywhere(tmp_path: Path) -> None:
    """The short form has fewer steps, still more than needed with masks."""
    env = {"make": DOORS, "kwargs": {"tells": False}}
    assert best(tmp_path, "ppo", env, goal=9.5, most_env_steps=4_000) < 1.0


@pytest.mark.parametrize("env", ["Dials", "NamedDials"])
def test_several_components_one_seed(env: str, tmp_path: Path) -> None:
    """Ten steps give at most 1 each. Random actions get 3.6; without the last number of the first
    dial, a ninth is lost."""
    goal = 9.5 if env == "Dials" else 8.4
    assert best(tmp_path, "ppo", {"make": f"{DIALS}:{env}"}, goal=goal) >= goal


@pytest.mark.learning
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", POLICIES)
def test_masks_every_seed(kind: str, tmp_path: Path) -> None:
    results = [best(tmp_path / f"{seed}", kind, {"make": DOORS}, goal=9.5, seed=seed) for seed in SEEDS]
    assert min(results) >= 9.5, results


@pytest.mark.learning
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", POLICIES)
def test_without_masks_nobody_gets_anywhere_with_every_seed(kind: str, tmp_path: Path) -> None:
    env = {"make": DOORS, "kwargs": {"tells": False}}
    results = [best(tmp_path / f"{seed}", kind, env, goal=9.5, seed=seed) for seed in SEEDS]
    assert max(results) < 1.0, results


@pytest.mark.learning
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", ["ppo", "ppo, recurrent", "impala"])
def test_several_components_every_seed(kind: str, tmp_path: Path) -> None:
    results = [best(tmp_path / f"{seed}", kind, {"make": f"{DIALS}:Dials"}, goal=9.5, seed=seed) for seed in SEEDS]
    assert min(results) >= 9.5, results
