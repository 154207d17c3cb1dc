"""Networks that act: numpy and torch agree, a choice of backend is reported once, and new weights apply at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting import network as acting
from remuda.policy.acting.network import ActingNetwork, Choice, Chosen
from remuda.policy.algorithms import make_policy
from remuda.policy.algorithms.dqn.entry import DqnEntry
from remuda.policy.base import Policy
from remuda.policy.entry import Setup
from remuda.policy.networks.batch_norm import BatchNorm
from remuda.policy.networks.compiled import Arrays, Forward, compiled
from remuda.policy.networks.layouts import ImageLayout
from remuda.policy.networks.precision import Hardware
from remuda.policy.networks.program import PROGRAM, decoded
from remuda.policy.networks.reading import programs
from remuda.policy.networks.tensors import DeviceError
from remuda.policy.networks.trunks import ConvolutionTrunk
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ObservationSpec
from remuda.tests.patience import HANG_S
from remuda.tests.policy.cases import ACTION, OBSERVATION

Filters = tuple[tuple[int, int, int], ...]
TWO: Filters = ((5, 4, 2), (6, 2, 1))
ROWS = ObservationSpec((5,), "float32")


class Network(nn.Module):
    """Any modules, as a network with one output."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*modules)

    def acting(self) -> dict[str, nn.Module]:
        return {"out": self.body}


class Unknown(nn.Module):
    """A module without a numpy version."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.cumsum(1)


class Doubling(nn.Linear):
    """A subclass of torch's layer that computes something else."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Random weights: some initial weights of modules are 0 or 1."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = make()
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.3)
    return made.eval().requires_grad_(False)


def published(made: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in made.state_dict().items()} | programs(made)


def frames(shape: tuple[int, int, int]) -> ObservationSpec:
    return ObservationSpec(shape, "uint8", 0.0, 255.0)


def images(spec: ObservationSpec, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, *spec.shape), dtype=np.uint8)


def convolutional(spec: ObservationSpec, layers: Filters = TWO) -> Network:
    layout = ImageLayout.of(spec, layers)
    assert layout is not None
    return Network(ConvolutionTrunk(layout), nn.Linear(layout.features, 12), nn.ReLU(), nn.Linear(12, 4))


def by_torch(made: nn.Module, inputs: np.ndarray) -> np.ndarray:
    outputs: torch.Tensor = made.get_submodule("body")(torch.from_numpy(inputs))
    return outputs.numpy()


def assert_agree(made: nn.Module, spec: ObservationSpec, inputs: np.ndarray) -> None:
    """numpy and torch give the same outputs, and do not change the inputs."""
    arrays = {name: tensor.numpy() for name, tensor in made.state_dict().items()}
    steps = decoded(programs(made)[PROGRAM])["out"]
    assert steps is not None
    before = inputs.copy()
    np.testing.assert_allclose(compiled(steps, arrays, spec)(inputs), by_torch(made, inputs), atol=2e-5, rtol=1e-5)
    np.testing.assert_array_equal(inputs, before)


# --- numpy gives what the modules give

BETWEEN: Sequence[Callable[[int], nn.Module]] = (
    lambda units: nn.ReLU(),
    lambda units: nn.Tanh(),
    lambda units: nn.Sigmoid(),
    lambda units: nn.ELU(),
    lambda units: nn.SiLU(),
    lambda units: nn.GELU(),
    lambda units: nn.GELU(approximate="tanh"),
    lambda units: nn.Softplus(),
    lambda units: nn.LeakyReLU(),
    nn.LayerNorm,
    lambda units: nn.LayerNorm(units, elementwise_affine=False),
    nn.BatchNorm1d,
    BatchNorm,
    lambda units: BatchNorm(units, learns_scale=False),
    lambda units: nn.Linear(units, units, bias=False),
    lambda units: nn.Dropout(),
    lambda units: nn.Identity(),
    lambda units: nn.Flatten(),
)


@settings(max_examples=60, deadline=None)
@given(
    widths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    between=st.lists(st.sampled_from(BETWEEN), min_size=1, max_size=4),
    first=st.sampled_from([None, *BETWEEN]),
    rows=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_chains_of_modules_agree(
    widths: list[int],
    between: list[Callable[[int], nn.Module]],
    first: Callable[[int], nn.Module] | None,
    rows: int,
    seed: int,
) -> None:
    def make() -> Network:
        modules: list[nn.Module] = [] if first is None else [first(5)]
        for before, units in zip([5, *widths[:-1]], widths, strict=True):
            modules += [nn.Linear(before, units), *(module(units) for module in between)]
        network = Network(*modules, nn.Linear(widths[-1], 2))
        for buffer in network.buffers():  # running moments
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 2.0)
        return network

    assert_agree(seeded(make, seed), ROWS, np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32))


@settings(max_examples=25, deadline=None)
@given(
    side=st.integers(8, 20),
    channels_last=st.booleans(),
    layers=st.sampled_from([((4, 3, 1),), ((4, 8, 4),), TWO, ((3, 3, 2), (4, 2, 1), (5, 2, 1))]),
    rows=st.integers(1, 9),
)
def test_convolutions_of_pixels_agree(side: int, channels_last: bool, layers: Filters, rows: int) -> None:
    spec = frames((side, side + 2, 3) if channels_last else (3, side, side + 2))
    assert_agree(seeded(lambda: convolutional(spec, layers)), spec, images(spec, rows))


@pytest.mark.parametrize(
    "modules",
    [
        (Unknown(),),
        (nn.Linear(5, 4), Unknown()),
        (nn.Linear(5, 4), nn.ELU(alpha=0.5)),
        (nn.Conv2d(3, 4, 2, groups=1), nn.LayerNorm(4)),  # over the width of an image
        (nn.Conv2d(3, 4, 2),),  # gives no rows
        (nn.Conv2d(4, 4, 2, dilation=2), nn.Flatten()),
        (Doubling(5, 4),),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)),),  # its weight is computed
    ],
)
def test_others_are_left_to_torch(modules: tuple[nn.Module, ...]) -> None:
    assert decoded(programs(Network(*modules))[PROGRAM])["out"] is None


# --- states
def test_a_state_without_programs_is_read_by_the_modules() -> None:
    def make() -> Network:
        return Network(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))

    made, inputs = seeded(make), np.ones((3, 5), np.float32)
    answers = ActingNetwork(make, ROWS, timed="out")
    answers.load_state({name: array for name, array in published(made).items() if name != PROGRAM})
    np.testing.assert_allclose(answers("out", inputs), by_torch(made, inputs), atol=1e-6)


def spoilt(state: Arrays, how: str) -> dict[str, np.ndarray]:
    others = dict(state)
    if how == "missing":
        del others["body.0.weight"]
    elif how == "misshapen":
        others["body.0.weight"] = np.zeros((4, 6), np.float32)
    elif how == "damaged":
        others[PROGRAM] = np.frombuffer(b"{", np.uint8)
    return others


@pytest.mark.parametrize("how", ["missing", "misshapen", "damaged"])
@pytest.mark.parametrize("with_programs", [True, False])
def test_a_state_that_does_not_fit_is_refused_and_the_old_one_stays(how: str, with_programs: bool) -> None:
    def make() -> Network:
        return Network(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))

    if how == "damaged" and not with_programs:
        return
    made, inputs = seeded(make), np.ones((3, 5), np.float32)
    answers = ActingNetwork(make, ROWS, timed="out")
    answers.load_state(published(made))
    state = spoilt(published(seeded(make, 1)), how)
    with pytest.raises(StateMismatchError):
        answers.load_state(state if with_programs else {name: state[name] for name in state if name != PROGRAM})
    np.testing.assert_allclose(answers("out", inputs), by_torch(made, inputs), atol=1e-6)


# --- which form
SPEC = frames((3, 10, 12))


def timed(chosen: Chosen = None, *, device: str = "cpu") -> tuple[ActingNetwork, nn.Module]:
    made = seeded(lambda: convolutional(SPEC))
    answers = ActingNetwork(lambda: convolutional(SPEC), SPEC, timed="out", chosen=chosen, device=device)
    answers.load_state(published(made))
    return answers, made


def test_new_weights_answer_at_once_and_the_choice_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "_FAST_ENOUGH_S", 0.0)
    told: list[str] = []
    answers, _ = timed(told.append)
    for seed in range(3):
        made = seeded(lambda: convolutional(SPEC), seed)
        answers.load_state(published(made))
        np.testing.assert_allclose(answers("out", images(SPEC, 4)), by_torch(made, images(SPEC, 4)), atol=1e-5)
    assert len(told) == 1
    assert told[0].startswith("inference of 4 observations: plain arrays ")
    assert told[0].endswith(" taken")


@pytest.mark.parametrize(
    ("seconds", "has", "taken"),
    [
        ((1.0, 0.5, 0.2), Hardware.FASTER, "torch in bfloat16 is taken"),
        ((1.0, 0.5, 0.2), Hardware.INSTRUCTIONS, "torch in bfloat16 is taken"),
        ((1.0, 0.5, 0.45), Hardware.FASTER, "; torch is taken"),
        ((1.0, 2.0, 0.95), Hardware.FASTER, "plain arrays are taken"),
        ((1.0, 0.5), Hardware.NOTHING, "; torch is taken"),
        ((1.0, 0.99), Hardware.NOTHING, "plain arrays are taken"),
    ],
)
def test_a_form_is_taken_where_it_is_allowed_and_clearly_faster(
    seconds: tuple[float, ...], has: Hardware, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(seconds)

    def seconds_per_call(forward: Forward, inputs: np.ndarray) -> float:
        return next(times)

    def found(device: object) -> Hardware:
        return has

    monkeypatch.setattr(acting, "_seconds_per_call", seconds_per_call)
    monkeypatch.setattr("remuda.policy.networks.precision.hardware", found)
    told: list[str] = []
    answers, _ = timed(Choice(told.append, lower=True))
    answers("out", images(SPEC, 2))
    assert told[0].endswith(taken)
    assert next(times, None) is None, "each form is timed once"


@pytest.mark.parametrize("channels_last", [False, True])
def test_in_bfloat16_outputs_agree_to_1_percent(channels_last: bool) -> None:
    from remuda.policy.acting.torch_outputs import TorchOutputs

    spec = frames((12, 14, 3) if channels_last else (3, 12, 14))
    made = seeded(lambda: convolutional(spec))
    outputs = TorchOutputs(lambda: convolutional(spec), "cpu")
    outputs.load(published(made))
    exact, lower = (outputs.forward("out", lower=lower)(images(spec, 6)) for lower in (False, True))
    assert lower.dtype == np.float32
    assert 0.0 < np.abs(lower - exact).max() < 0.01 * np.abs(exact).max()


def test_collectors_may_lower_products_unless_the_config_says_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Chosen] = []
    make = DqnEntry.make_policy

    def make_policy_noted(
        self: DqnEntry, setup: Setup[DqnConfig], *, chosen: Chosen = None, device: str = "cpu"
    ) -> Policy:
        found.append(chosen)
        return make(self, setup, chosen=chosen, device=device)

    monkeypatch.setattr(DqnEntry, "make_policy", make_policy_noted)
    for precision, expected in (("auto", True), ("bfloat16", True), ("float32", False)):
        config = ExperimentConfig.model_validate(
            {"name": "x", "env": {"id": "CartPole-v1"}, "learner": {"precision": precision}}
        )
        found.clear()
        make_policy(config, OBSERVATION, ACTION, chosen=lambda text: None)
        make_policy(config, OBSERVATION, ACTION)
        choice, none = found
        assert isinstance(choice, Choice)
        assert choice.lower is expected
        assert none is None


def test_what_is_fast_enough_needs_no_torch() -> None:
    """Perceptrons and small images do not make a collector import torch with the backend `auto`."""
    program = """
import sys, numpy as np
from remuda.policy.acting import network
from remuda.policy.networks.program import PROGRAM, Apply, Convolution, Dense, Flatten, ReadPixels, encoded
from remuda.policy.spaces import ObservationSpec
network._FAST_ENOUGH_S = 10.0
arrays = {"w": np.ones((2, 4), np.float32), "b": np.zeros(2, np.float32), "f": np.ones((4, 1, 3, 3), np.float32)}
small = (ReadPixels(False, 1.0), Convolution("f", None, (1, 1)), Apply("relu"), Flatten())
for spec, first in ((ObservationSpec((4,), "float32"), ()), (ObservationSpec((1, 3, 3), "uint8"), small)):
    answers = network.ActingNetwork(lambda: None, spec, timed="out", chosen=print)
    answers.load_state(arrays | {PROGRAM: encoded({"out": (*first, Dense("w", "b"))})})
    answers("out", spec.example(3))
assert "torch" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().endswith("which are fast enough")


def test_a_device_that_is_named_answers_everything_in_torch() -> None:
    """`cpu:0` is an ordinary device for torch: weights and observations are moved there, and outputs back."""
    told: list[str] = []
    answers, made = timed(told.append, device="cpu:0")
    np.testing.assert_allclose(answers("out", images(SPEC, 3)), by_torch(made, images(SPEC, 3)), atol=1e-5)
    assert told == [], "nothing was timed"
    with pytest.raises(DeviceError, match=r"collector\.device = 'cuda:77' cannot be used: "):
        timed(device="cuda:77")
