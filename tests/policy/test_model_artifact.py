"""What is promised of model/: it loads where Remuda is not installed and gives the same values."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.config.schema import DqnConfig
from remuda.policy.model_artifact import export
from remuda.policy.spaces import ActionSpec
from remuda.tests.policy.cases import batch, dqn

ELSEWHERE = """
import sys, numpy, torch
model = torch.jit.load("model.pt")
numpy.save("values.npy", model(torch.from_numpy(numpy.load("observations.npy"))).detach().numpy())
assert not any(name.split(".")[0] == "remuda" for name in sys.modules)
"""


@pytest.mark.processes
@pytest.mark.parametrize("dueling", [False, True])
def test_it_gives_the_same_values_without_remuda(tmp_path: Path, dueling: bool) -> None:
    algorithm = dqn(DqnConfig(hidden=(16, 8), dueling=dueling))
    algorithm.learn(batch(np.random.default_rng(0)))
    export(tmp_path, algorithm, algorithm_name="dqn", env="CartPole-v1", train_iter=1)
    observations = np.random.default_rng(1).normal(size=(11, 4)).astype(np.float32)
    np.save(tmp_path / "observations.npy", observations)
    subprocess.run([sys.executable, "-S", "-c", _PATH + ELSEWHERE], cwd=tmp_path, check=True, timeout=100)
    with torch.no_grad():
        expected = algorithm.network(torch.tensor(observations)).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "values.npy"), expected, atol=1e-6)


# -S leaves the editable installation's import hook out; the packages are then reachable, remuda is not.
_PATH = f"""
import sys
sys.path.append({str(Path(torch.__file__).parents[1])!r})
try:
    import remuda.policy
except ImportError:
    pass
else:
    raise SystemExit("remuda can be imported")
"""


def test_the_description_says_what_goes_in_and_what_comes_out(tmp_path: Path) -> None:
    export(tmp_path / "model", dqn(action=ActionSpec(3)), algorithm_name="dqn", env="CartPole-v1", train_iter=42)
    info = json.loads((tmp_path / "model" / "model_info.json").read_text())
    assert info["algorithm"] == "dqn"
    assert info["env"] == "CartPole-v1"
    assert info["train_iter"] == 42
    assert info["normalisation"] is None
    assert info["inputs"] == [{"name": "observation", "dtype": "float32", "shape": ["batch", 4]}]
    assert info["outputs"] == [{"name": "q_values", "dtype": "float32", "shape": ["batch", 3]}]
    assert info["action"] == {"n": 3, "start": 0, "dtype": "int64", "shape": [], "low": [], "high": []}
    assert info["sha256"] == hashlib.sha256((tmp_path / "model" / "model.pt").read_bytes()).hexdigest()


def test_exporting_leaves_training_as_it_was_and_can_be_repeated(tmp_path: Path) -> None:
    plain, exported = dqn(), dqn()
    for train_iter in range(3):
        rows = batch(np.random.default_rng(train_iter))
        plain.learn(rows)
        exported.learn(rows)
        export(tmp_path, exported, algorithm_name="dqn", env="CartPole-v1", train_iter=train_iter)
    assert exported.network.training
    for name, array in plain.acting_state().items():
        np.testing.assert_array_equal(array, exported.acting_state()[name])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.pt", "model_info.json"]
