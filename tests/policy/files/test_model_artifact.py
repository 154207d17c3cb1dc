"""model/ loads with torch alone, and acts as the checkpoint saved with it."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

from remuda.policy.files import model_artifact
from remuda.policy.files.model_artifact import Exporter
from remuda.policy.files.playable import load_checkpoint_policy
from remuda.policy.networks.portable import Portable
from remuda.tests.patience import HANG_S
from remuda.tests.policy.cases import batch, config, dqn
from remuda.tests.policy.files.exported import CASES, COUNTERS, Case, experiment, leave_behind
from remuda.tests.policy.files.exported import trained as trained_case
from remuda.wire.messages import Counters

pytestmark = pytest.mark.xdist_group("models left behind")

ELSEWHERE = """
import json, sys, warnings
sys.path.append({packages!r})
try:
    import remuda.policy
except ImportError:
    pass
else:
    raise SystemExit("remuda can be imported")
warnings.simplefilter("ignore")
import numpy, torch
torch.set_num_threads(1)
for run in json.loads(sys.argv[1]):
    model = torch.jit.load(run + "/model/model.pt")
    seen = torch.from_numpy(numpy.load(run + "/seen.npy"))
    torch.manual_seed(0)
    drawn = torch.stack([model.sample(seen) for _ in range(50)])
    answers = dict(forward=model(seen), act=model.act(seen), value=model.value(seen), drawn=drawn)
    answers["one"] = model.act(seen[:1])
    numpy.savez(run + "/answers.npz", **{{name: answer.numpy() for name, answer in answers.items()}})
assert not any(name.split(".")[0] in ("remuda", "gymnasium", "msgspec") for name in sys.modules)
"""
"""-I leaves out the user's paths and variables, -S the editable installation's import hook: torch is reachable then,
and remuda is not."""


@dataclass(frozen=True)
class Left:
    """A run's files, and outputs of a process without Remuda."""

    case: Case
    checkpoint: Path
    seen: np.ndarray
    answers: dict[str, np.ndarray]
    info: dict[str, object]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    root = tmp_path_factory.mktemp("left")
    runs = {name: root / f"run{number}" for number, name in enumerate(CASES)}
    checkpoints = {name: leave_behind(CASES[name], run) for name, run in runs.items()}
    for name, run in runs.items():
        np.save(run / "seen.npy", CASES[name].seen(np.random.default_rng(7), 23))
    code = ELSEWHERE.format(packages=str(Path(torch.__file__).parents[1]))
    asked = json.dumps([str(run) for run in runs.values()])
    subprocess.run([sys.executable, "-I", "-S", "-c", code, asked], cwd=root, check=True, timeout=HANG_S)
    return {
        name: Left(
            CASES[name],
            checkpoints[name],
            np.load(run / "seen.npy"),
            dict(np.load(run / "answers.npz")),
            json.loads((run / "model" / "model_info.json").read_text()),
        )
        for name, run in runs.items()
    }


cases = pytest.mark.parametrize("name", CASES)
processes = pytest.mark.processes


@processes
@cases
def test_without_remuda_it_answers_as_its_checkpoint(left: dict[str, Left], name: str) -> None:
    there = left[name]
    trained = load_checkpoint_policy(there.checkpoint).policy
    expected = trained.act(there.seen, {}, np.random.default_rng(0), deterministic=True)
    acted = there.answers["act"]
    assert (acted.shape, acted.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(acted, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(there.answers["one"], acted[:1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(there.answers["value"], trained.value(there.seen), rtol=1e-5, atol=1e-5)
    assert np.abs(there.answers["value"]).max() > 1e-3


@processes
@cases
def test_without_remuda_it_draws_actions_that_the_environment_takes(left: dict[str, Left], name: str) -> None:
    there, action = left[name], left[name].case.action
    drawn, acted = there.answers["drawn"], there.answers["act"]
    assert (drawn.shape, drawn.dtype) == ((50, *acted.shape), acted.dtype)
    assert (drawn != drawn[0]).any()
    if action.counts:
        indices = action.indices(drawn.reshape(-1, *action.shape))
        assert (indices >= 0).all()
        assert indices.max(axis=0).tolist() == [count - 1 for count in action.counts]
    elif action.n is not None:
        assert set(np.unique(drawn)) <= set(range(action.start, action.start + action.n))
        share = float((drawn == acted).mean())
        assert share > (0.9 if there.info["algorithm"] == "dqn" else 0.3)  # epsilon is 5 %
    else:
        assert (np.abs(drawn[..., 0]) <= 0.2).all()
        assert (np.abs(drawn[..., 1]) > 0.2).any()


@processes
@cases
def test_the_description_says_what_goes_in_and_what_comes_out(left: dict[str, Left], name: str) -> None:
    there = left[name]
    observation = there.case.observation
    shape = ["batch", *observation.shape]
    assert there.info["inputs"] == [{"name": "observation", "dtype": observation.dtype, "shape": shape}]
    outputs = cast("list[dict[str, object]]", there.info["outputs"])
    for output, method in zip(outputs, ("forward", "act", "sample", "value"), strict=True):
        answer = there.answers["drawn"][0] if method == "sample" else there.answers[method]
        assert (output["method"], output["dtype"]) == (method, str(answer.dtype))
        assert output["shape"] == ["batch", *answer.shape[1:]]


def test_it_is_traced_once_for_torch_keeps_every_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[object] = []
    trace = model_artifact.traced_policy

    def count(portable: Portable, example: tuple[torch.Tensor, ...]) -> torch.jit.ScriptModule:
        traced.append(portable)
        return trace(portable, example)

    monkeypatch.setattr(model_artifact, "traced_policy", count)
    exporter = Exporter(dqn(), config())
    for train_iter in range(3):
        exporter.export(tmp_path, Counters(train_iter=train_iter))
    assert len(traced) == 1
    assert json.loads((tmp_path / "model_info.json").read_text())["train_iter"] == 2


def test_normalisation_is_inside_and_described(tmp_path: Path) -> None:
    case = CASES["ppo, continuous"]
    algorithm = trained_case(case)
    Exporter(algorithm, experiment(case)).export(tmp_path, COUNTERS)
    normalisation = json.loads((tmp_path / "model_info.json").read_text())["normalisation"]
    state = algorithm.acting_state()
    np.testing.assert_allclose(normalisation["mean"], state["observations.mean"])
    np.testing.assert_allclose(normalisation["std"], np.sqrt(state["observations.variance"]), rtol=1e-6)
    assert (normalisation["clip"], normalisation["where"].split(":")[0]) == (10.0, "inside the model")
    assert np.mean(normalisation["mean"]) == pytest.approx(-50.0, abs=5.0)  # of what was seen


def test_exporting_leaves_training_as_it_was_and_can_be_repeated(tmp_path: Path) -> None:
    plain, exported = dqn(), dqn()
    before = torch.get_rng_state()
    exporter = Exporter(exported, config())
    for train_iter in range(3):
        rows = batch(np.random.default_rng(train_iter))
        plain.learn(rows)
        exported.learn(rows)
        exporter.export(tmp_path, Counters(train_iter=train_iter))
    assert torch.equal(torch.get_rng_state(), before)
    assert exported.network.training
    assert all(parameter.requires_grad for parameter in exported.network.parameters())
    for name, array in plain.acting_state().items():
        np.testing.assert_array_equal(array, exported.acting_state()[name])
    kept = [f"iteration_{train_iter}.pt" for train_iter in range(3)]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [*kept, "model.pt", "model_info.json"]
    assert len({entry.read_bytes() for entry in tmp_path.glob("iteration_*.pt")}) == 3, "each keeps its own weights"


@pytest.mark.parametrize("kind", [DeprecationWarning, FutureWarning], ids=["torch before 2.14", "torch 2.14"])
def test_users_see_no_advice_to_export_in_another_way(kind: type[Warning]) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with model_artifact.without_deprecation():
            warnings.warn("`torch.jit.save` is deprecated. Please switch to `torch.export`.", kind, stacklevel=1)
            warnings.warn("something else", kind, stacklevel=1)
    assert [str(each.message) for each in seen] == ["something else"]
