"""Exported files act and give values as the policy does, without Remuda."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.policy.export import exporting
from remuda.policy.export.exporting import FORMATS, ExportError
from remuda.policy.files.exported_policies import NoOnnxError, description_of
from remuda.policy.files.model_artifact import Format, as_floats, without_deprecation
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.patience import HANG_S
from remuda.tests.policy.export.cases import ALL, Made, far_away, fresh, made, trained

pytestmark = pytest.mark.xdist_group("exported policies")

EVERY_FORMAT: tuple[Format, ...] = get_args(Format)
every_format = pytest.mark.parametrize("format", EVERY_FORMAT)
Asked = Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]


@pytest.fixture(scope="module", params=ALL)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, Path]:
    """A policy, and the folder with its exported files."""
    case, folder = made(request.param), tmp_path_factory.mktemp("exported")
    export = case.export
    for format in EVERY_FORMAT:
        export.write(folder / f"policy{FORMATS[format].suffix}", format)
    return case, folder


def opened(folder: Path, format: Format) -> Asked:
    """Open an exported file as users do."""
    path = folder / f"policy{FORMATS[format].suffix}"
    if format == "onnx":
        session = onnxruntime.InferenceSession(path)
        return lambda given: list(session.run(None, dict(given)))
    if format == "torchscript":
        with without_deprecation():
            model: Any = torch.jit.load(path)  # type: ignore[no-untyped-call]

        def ask(given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            method = model.with_legal if "legal" in given else model
            return [answer.numpy() for answer in method(*map(torch.from_numpy, given.values()))]

        return ask
    spec = importlib.util.spec_from_file_location("exported", folder / "policy.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda given: list(module.policy(*given.values()))


@every_format
def test_it_acts_and_values_as_the_policy_does(exported: tuple[Made, Path], format: Format) -> None:
    """Step by step with a recurrent state that begins at 0; otherwise any number of rows at once."""
    (case, folder), rng = exported, np.random.default_rng(0)
    ask, policy, recorded, size = opened(folder, format), case.policy, case.recorded, case.policy.state_size
    acting, valuing, state = (np.zeros((1, size), np.float32) for _ in range(3))
    for first in range(0, 12 if size else len(recorded), 1 if size else 13):
        rows = slice(first, first + (1 if size else 13))
        seen = recorded.observations[rows]
        states = {"state": state} if size else {}
        legal = None if recorded.legal is None else recorded.legal[rows]
        masks = {} if legal is None else {"legal": legal.astype(np.float32)}
        action, _, value, *after = ask({**as_floats(case.algorithm.observation, seen), **states, **masks})
        state = after[0] if size else state
        own = [acting, valuing] if size else [None, None]
        expected = policy.act(seen, {}, rng, deterministic=True, legal=legal, state=own[0])
        assert (action.shape, action.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(value, policy.value(seen, state=own[1]), rtol=1e-4, atol=1e-4)
    assert not size or np.abs(state).max() > 1e-3


@every_format
def test_legal_actions_may_be_left_out(exported: tuple[Made, Path], format: Format) -> None:
    """Without action masks of the environment they are no input."""
    (case, folder), size = exported, exported[0].policy.state_size
    assert ("legal" in case.export.inputs) == (case.recorded.legal is not None)
    seen, states = case.recorded.observations[:9], [np.zeros((9, size), np.float32) if size else None for _ in range(2)]
    given = as_floats(case.algorithm.observation, seen) | ({} if states[0] is None else {"state": states[0]})
    expected = case.policy.act(seen, {}, np.random.default_rng(0), deterministic=True, state=states[1])
    np.testing.assert_allclose(opened(folder, format)(given)[0], expected, rtol=1e-5, atol=1e-5)


@every_format
def test_the_description_says_what_was_compared_and_found(exported: tuple[Made, Path], format: Format) -> None:
    case, folder = exported
    path = folder / f"policy{FORMATS[format].suffix}"
    info = json.loads(description_of(path).read_text())
    assert (info["format"], info["train_iter"], info["env_step"]) == (format, 12, 120)
    parity = info["parity"]
    assert (parity["observations"], parity["source"], parity["equal_actions"]) == (40, "a test", 1.0)
    assert parity["largest_output_difference"] <= 1e-5 * max(1.0, parity["largest_number"])
    assert parity["largest_value_difference"] <= 1e-5 * max(1.0, parity["largest_number"])
    assert parity["largest_number"] > 1e-3
    ask, shapes = opened(folder, format), {one["name"]: one["shape"] for one in info["inputs"]}
    assert {one["dtype"] for one in info["inputs"]} == {"float32"}
    floats = as_floats(case.algorithm.observation, case.algorithm.observation.example(3))
    given = {name: floats.get(name, np.ones((3, *shape[1:]), np.float32)) for name, shape in shapes.items()}
    answers = ask(given)
    assert [one["shape"] for one in info["outputs"]] == [["batch", *answer.shape[1:]] for answer in answers]
    assert [one["dtype"] for one in info["outputs"]] == [str(answer.dtype) for answer in answers]
    assert shapes == {name: ["batch", *array.shape[1:]] for name, array in given.items()}


def test_each_part_of_an_observation_is_an_input_by_name() -> None:
    inputs = {one: shape for one, shape in made("dqn, parts with an image").export.inputs.items()}
    assert inputs == {
        "direction": (),
        "image": (7, 7, 3),
        "place.0": (2,),
        "place.1": (2,),
        "switches": (3,),
        "legal": (4,),
    }


ELSEWHERE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from policy import policy
import numpy
action, q_values, value = policy(numpy.array([[0.1, -0.2, 0.3, 0.4]], numpy.float32))
assert not any(name.split(".")[0] in ("torch", "remuda", "onnx", "msgspec") for name in sys.modules)
print(json.dumps([action.tolist(), q_values.tolist(), value.tolist()]))
"""


@pytest.mark.processes
def test_the_module_in_numpy_needs_nothing_else(tmp_path: Path) -> None:
    case = trained("dqn")
    replace(case, recorded=replace(case.recorded, legal=None)).export.write(tmp_path / "policy.npz", "numpy")
    paths = json.dumps([str(tmp_path), str(Path(np.__file__).parents[1])])
    command = [sys.executable, "-I", "-S", "-c", ELSEWHERE, paths]
    done = subprocess.run(command, check=True, timeout=HANG_S, capture_output=True, text=True)
    action, q_values, value = json.loads(done.stdout)
    seen = np.array([[0.1, -0.2, 0.3, 0.4]], np.float32)
    assert action == case.policy.act(seen, {}, np.random.default_rng(0), deterministic=True).tolist()
    np.testing.assert_allclose(np.max(q_values, axis=1), case.policy.value(seen), rtol=1e-5)
    assert value == [max(q_values[0])]


@every_format
def test_what_float32_cannot_hold_is_refused_and_leaves_nothing(tmp_path: Path, format: Format) -> None:
    path = tmp_path / f"policy{FORMATS[format].suffix}"
    with pytest.raises(ExportError, match=r"nothing was written.*float64, of which float32 has too few digits"):
        far_away().export.write(path, format)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_acts_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = trained("dqn")
    run = exporting.Onnx.run

    def other(self: exporting.Onnx, path: Path) -> Asked:
        ask = run(self, path)
        return lambda given: [1 - ask(given)[0], *ask(given)[1:]]

    monkeypatch.setattr(exporting.Onnx, "run", other)
    with pytest.raises(ExportError, match=r"0\.00% of the actions are equal"):
        case.export.write(tmp_path / "policy.onnx", "onnx")
    assert list(tmp_path.iterdir()) == []


ATTENTION = """
from torch import nn

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attend = nn.Linear(1, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.feed = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())

    def forward(self, numbers):
        tokens = self.embed(numbers.unsqueeze(2))
        return self.feed(tokens + self.attend(tokens, tokens, tokens, need_weights=False)[0]).mean(1)

def make(observation):
    return Tokens()
"""


def test_an_encoder_of_users_with_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's fast path for it is an operation that only torch has; the error for numpy names an alternative."""
    (tmp_path / "attending.py").write_text(ATTENTION)
    monkeypatch.syspath_prepend(tmp_path)
    seen = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    policy = DqnConfig(hidden=(16,), encoder="attending:make")
    case = fresh(policy, seen, ObservationSpec((4,), "float32"), ActionSpec(3))
    for format in ("torchscript", "onnx"):
        case.export.write(tmp_path / f"policy{FORMATS[format].suffix}", format)
        given = {"observation": seen, "legal": np.ones((40, 3), np.float32)}
        expected = case.policy.act(seen, {}, np.random.default_rng(0), deterministic=True)
        np.testing.assert_array_equal(opened(tmp_path, format)(given)[0], expected)
    with pytest.raises(ExportError, match=r"this policy computes aten::.*: use --format torchscript or onnx"):
        case.export.write(tmp_path / "policy.npz", "numpy")


def test_a_missing_package_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = trained("dqn")

    def find(name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", find)
    with pytest.raises(NoOnnxError, match=r"need onnx and onnxruntime: pip install 'remuda\[export\]'"):
        case.export.write(tmp_path / "policy.onnx", "onnx")
