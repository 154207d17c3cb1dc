"""A policy played from model/ takes the checkpoint's actions, also random ones."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from remuda.config.algorithms.twin_critics import TwinCriticConfig
from remuda.policy.base import ValuingActor
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.exported_policies import model_actor
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.tests.policy.files.exported import CASES, COUNTERS, RECURRENT, leave_behind


def played(
    actor: ValuingActor, seen: np.ndarray, explores: dict[str, float], legal: np.ndarray | None, *, deterministic: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Actions and values [steps, n]; if recurrent, with a new episode in one environment."""
    rng, size = np.random.default_rng(5), actor.state_size
    acting, valuing = (np.zeros((seen.shape[1], size), np.float32) if size else None for _ in range(2))
    actions, values = [], []
    for step, rows in enumerate(seen):
        for state in (acting, valuing):
            if state is not None and step == len(seen) // 2:
                state[1] = 0.0
        actions.append(actor.act(rows, explores, rng, deterministic=deterministic, legal=legal, state=acting))
        values.append(actor.value(rows, state=valuing))
    if acting is not None and valuing is not None:
        np.testing.assert_allclose(acting, valuing, atol=1e-6)
    return np.stack(actions), np.stack(values)


@pytest.mark.parametrize("name", [*CASES, *RECURRENT])
def test_it_acts_and_values_as_its_checkpoint(tmp_path: Path, name: str) -> None:
    """Among all actions and among the legal ones, of one step or of several. An export draws with the averaged actor,
    too, so only best actions are compared."""
    case, rng = {**CASES, **RECURRENT}[name], np.random.default_rng(1)
    trained = load_checkpoint_policy(leave_behind(case, tmp_path)).policy
    exported, components = model_actor(tmp_path / "model"), case.action.components
    explores = {"epsilon": 0.5}
    if isinstance(case.policy, TwinCriticConfig):
        explores |= {"random": 0.0, "noise": 0.3}
    assert (exported.uses_legal_actions, exported.state_size) == (bool(components), trained.state_size)
    assert (exported.state_size > 0) == (name in RECURRENT)
    count, precision = (4, 1e-5) if name in RECURRENT else (31, 1e-6)
    seen = np.stack([case.seen(rng, count) for _ in range(6 if name in RECURRENT else 1)])
    masks, firsts = list[np.ndarray | None]([None]), np.cumsum((0, *components[:-1]))
    if components:
        legal = rng.random((count, sum(components))) < 0.4
        np.put_along_axis(legal, rng.integers(0, components, (count, len(components))) + firsts, True, axis=1)
        masks.append(legal)
    averages = isinstance(case.policy, TwinCriticConfig) and case.policy.averaged_share is not None
    for deterministic, mask in itertools.product((True,) if averages else (True, False), masks):
        first, second = (
            played(actor, seen, explores, mask, deterministic=deterministic) for actor in (trained, exported)
        )
        assert first[0].dtype == second[0].dtype
        np.testing.assert_allclose(second[0], first[0], rtol=precision, atol=precision)
        np.testing.assert_allclose(second[1], first[1], rtol=10 * precision, atol=1e-5)
        for actions in first[0] if mask is not None else ():
            chosen = case.action.indices(actions).reshape(count, -1)
            assert np.take_along_axis(mask, chosen + firsts, axis=1).all()


def test_the_description_of_a_recurrent_policy_says_what_to_carry(tmp_path: Path) -> None:
    leave_behind(RECURRENT["r2d2, lstm"], tmp_path)
    info = json.loads((tmp_path / "model" / "model_info.json").read_text())
    shapes = [(one["name"], one["shape"]) for one in info["inputs"]]
    assert shapes == [("observation", ["batch", 4]), ("state", ["batch", 12])]
    names = ["q_values forward", "action act", "action sample", "return value", "state every"]
    assert [f"{one['name']} {one['method']}" for one in info["outputs"]] == names
    assert "state = torch.zeros(1, 12)  # wherever an episode begins" in info["usage"]


def test_the_description_comes_from_inside_the_model(tmp_path: Path) -> None:
    """A copy of model.pt is enough, and the two files cannot disagree during replacement."""
    leave_behind(CASES["dqn"], tmp_path)
    (tmp_path / "model" / "model_info.json").unlink()
    info = model_actor(tmp_path / "model").info
    assert (info.train_iter, info.env_step, info.algorithm) == (COUNTERS.train_iter, COUNTERS.env_step, "dqn")
    assert info.observation == CASES["dqn"].observation


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.pt: no such model"):
        model_actor(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(CheckpointError, match="not a model of Remuda's, or a damaged one"):
        model_actor(tmp_path)
    checkpoint = leave_behind(CASES["dqn"], tmp_path / "run")
    (tmp_path / "model.pt").write_bytes(checkpoint.read_bytes())
    with pytest.raises(CheckpointError, match="not a model of Remuda's"):
        model_actor(tmp_path)
