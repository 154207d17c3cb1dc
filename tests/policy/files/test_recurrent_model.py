"""Recurrent policies in checkpoints, in model/ and as functions: all remember the same, and act alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.q_learning import R2d2Config
from remuda.policy.base import ValuingActor
from remuda.policy.files.exported_policies import model_actor
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.tests.policy.files.exported import (
    FRAMES,
    FROM_MINUS_ONE,
    MATRIX,
    PUSH,
    SEVERAL,
    VECTOR,
    Case,
    frames,
    leave_behind,
    numbers,
    wide,
)

SMALL: dict[str, Any] = {
    "recurrent_units": 6,
    "hidden": (8,),
    "head_hidden": (8,),
    "burn_in_steps": 1,
    "sequence_steps": 4,
    "overlap_steps": 2,
}
CORE: dict[str, Any] = {"recurrent_units": 6, "hidden": (8,)}
CASES = {
    "r2d2, lstm": Case(R2d2Config(**SMALL), VECTOR, FROM_MINUS_ONE, numbers),
    "ppo, gru, continuous": Case(
        PpoConfig(recurrent="gru", normalize_observations=True, normalize_rewards=True, **CORE), MATRIX, PUSH, wide
    ),
    "impala, lstm, several": Case(ImpalaConfig(recurrent="lstm", **CORE), VECTOR, SEVERAL, numbers),
    "r2d2, frames": Case(R2d2Config(dueling=False, **SMALL), FRAMES, FROM_MINUS_ONE, frames),
}
cases = pytest.mark.parametrize("name", CASES)
STEPS, ENVS = 6, 4


def played(actor: ValuingActor, seen: np.ndarray, *, deterministic: bool) -> tuple[np.ndarray, np.ndarray]:
    """Actions and values [STEPS, ENVS], with a new episode in one environment."""
    rng, shape = np.random.default_rng(5), (ENVS, actor.state_size)
    acting, valuing = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    actions, values = [], []
    for step in range(STEPS):
        if step == STEPS // 2:
            acting[1] = valuing[1] = 0.0
        actions.append(actor.act(seen[step], {"epsilon": 0.3}, rng, deterministic=deterministic, state=acting))
        values.append(actor.value(seen[step], state=valuing))
    np.testing.assert_allclose(acting, valuing, atol=1e-6)
    return np.stack(actions), np.stack(values)


def observed(case: Case) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.stack([case.seen(rng, ENVS) for _ in range(STEPS)])


@cases
def test_the_model_acts_and_values_as_its_checkpoint(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    trained, exported = load_checkpoint_policy(leave_behind(case, tmp_path)).policy, model_actor(tmp_path / "model")
    assert exported.state_size == trained.state_size > 0
    for deterministic in (True, False):
        first, second = (played(actor, observed(case), deterministic=deterministic) for actor in (trained, exported))
        assert first[0].dtype == second[0].dtype
        np.testing.assert_allclose(second[0], first[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(second[1], first[1], rtol=1e-4, atol=1e-5)


def test_its_description_says_what_to_carry(tmp_path: Path) -> None:
    leave_behind(CASES["r2d2, lstm"], tmp_path)
    info = json.loads((tmp_path / "model" / "model_info.json").read_text())
    assert [(one["name"], one["shape"]) for one in info["inputs"]] == [
        ("observation", ["batch", 4]),
        ("state", ["batch", 12]),
    ]
    assert [(one["name"], one["method"]) for one in info["outputs"]] == [
        ("q_values", "forward"),
        ("action", "act"),
        ("action", "sample"),
        ("return", "value"),
        ("state", "every"),
    ]
    assert "state = torch.zeros(1, 12)  # wherever an episode begins" in info["usage"]
