"""What is promised of inference: all ways agree to 1e-5, the choice is told once, new weights count at once."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy import algorithms
from remuda.policy.acting import inference
from remuda.policy.acting.inference import Choice, Inference, fastest
from remuda.policy.acting.plain_forward import plain_forward
from remuda.policy.acting.torch_forward import lower_forward, torch_forward
from remuda.policy.acting.weights import Dense, Filters, Forward, Weights
from remuda.policy.algorithms import make_policy
from remuda.policy.algorithms.dqn.entry import DqnEntry
from remuda.policy.base import Policy
from remuda.policy.entry import Chosen, Setup
from remuda.policy.networks.precision import Hardware
from remuda.policy.networks.tensors import DeviceError
from remuda.tests.patience import HANG_S
from remuda.tests.policy.cases import ACTION, OBSERVATION

Activation = Literal["relu", "tanh"]


def dense(rng: np.random.Generator, widths: list[int]) -> tuple[Dense, ...]:
    return tuple(
        Dense((rng.normal(size=(after, before)) / before**0.5).astype(np.float32), _bias(rng, after))
        for before, after in itertools.pairwise(widths)
    )


def _bias(rng: np.random.Generator, units: int) -> np.ndarray:
    return rng.normal(size=units).astype(np.float32)


def convolutional(
    seed: int = 0, *, side: int = 10, channels_last: bool = False, layers: tuple[tuple[int, int, int], ...]
) -> Weights:
    """Of images of 3 channels, `side` x `side + 2` pixels."""
    rng, channels, sides = np.random.default_rng(seed), 3, [side, side + 2]
    filters: list[Filters] = []
    for count, kernel, stride in layers:
        weight = rng.normal(size=(count, channels, kernel, kernel)) / (channels * kernel * kernel) ** 0.5
        weight /= 255 if not filters else 1
        filters.append(Filters(weight.astype(np.float32), _bias(rng, count), stride))
        channels, sides = count, [(pixels - kernel) // stride + 1 for pixels in sides]
    perceptron = dense(rng, [channels * sides[0] * sides[1], 12, 4])
    return Weights(perceptron, "relu", tuple(filters), channels_last)


def frames(rows: int, *, side: int = 10, channels_last: bool = False, seed: int = 0) -> np.ndarray:
    shape = (rows, side, side + 2, 3) if channels_last else (rows, 3, side, side + 2)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


TWO = ((5, 4, 2), (6, 2, 1))


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.integers(1, 30), min_size=2, max_size=5),
    activation=st.sampled_from(["relu", "tanh"]),
    rows=st.integers(1, 70),
    seed=st.integers(0, 1000),
)
def test_perceptrons_agree(widths: list[int], activation: Activation, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = Weights(dense(rng, widths), activation)
    seen = rng.normal(size=(rows, widths[0])).astype(np.float32)
    before = seen.copy()
    np.testing.assert_allclose(plain_forward(weights)(seen), torch_forward(weights)(seen), atol=1e-5, rtol=1e-5)
    np.testing.assert_array_equal(seen, before, "what was observed is not written to")


@settings(max_examples=25, deadline=None)
@given(
    side=st.integers(8, 20),
    channels_last=st.booleans(),
    layers=st.sampled_from([((4, 3, 1),), ((4, 8, 4),), TWO, ((3, 3, 2), (4, 2, 1), (5, 2, 1))]),
    rows=st.integers(1, 9),
)
def test_convolutions_agree(
    side: int, channels_last: bool, layers: tuple[tuple[int, int, int], ...], rows: int
) -> None:
    weights = convolutional(side=side, channels_last=channels_last, layers=layers)
    seen = frames(rows, side=side, channels_last=channels_last)
    before = seen.copy()
    np.testing.assert_allclose(plain_forward(weights)(seen), torch_forward(weights)(seen), atol=1e-5, rtol=1e-5)
    np.testing.assert_array_equal(seen, before)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("layers", [((4, 3, 1),), TWO, ((3, 3, 2), (4, 2, 1), (5, 2, 1))])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_in_bfloat16_they_agree_to_1_percent(
    activation: Activation, layers: tuple[tuple[int, int, int], ...], *, channels_last: bool
) -> None:
    weights = replace(convolutional(side=12, channels_last=channels_last, layers=layers), activation=activation)
    seen = frames(6, side=12, channels_last=channels_last)
    before = seen.copy()
    exact, lower = torch_forward(weights)(seen), lower_forward(weights)(seen)
    assert lower.dtype == np.float32
    assert 0.0 < np.abs(lower - exact).max() < 0.01 * np.abs(exact).max()
    np.testing.assert_array_equal(seen, before)


def test_a_convolution_by_hand() -> None:
    """Filter [[1, 2], [3, 4]] over [[0, 1, 2], [3, 4, 5]], then the sum of what it leaves, less 5."""
    filters = Filters(np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([-30], np.float32), 1)
    weights = Weights((Dense(np.ones((1, 2), np.float32), np.array([-5], np.float32)),), "relu", (filters,))
    seen = np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3)
    expected = [[0 + max(0, 1 + 4 + 12 + 20 - 30) - 5]]  # the first window gives 27 - 30, which relu makes 0
    assert plain_forward(weights)(seen).tolist() == expected
    assert torch_forward(weights)(seen).tolist() == expected


def test_weights_out_of_a_message_are_read_only_and_no_warning_is_given() -> None:
    weights = convolutional(layers=TWO)
    layers: list[Dense | Filters] = [*weights.filters, *weights.dense]
    for layer in layers:
        layer.weight.setflags(write=False)
        layer.bias.setflags(write=False)
    seen = frames(2)
    seen.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch_forward(weights)(seen).shape == plain_forward(weights)(seen).shape == (2, 4)


def test_new_weights_answer_at_once_and_the_choice_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "_FAST_ENOUGH_S", 0.0)
    told: list[str] = []
    answers, seen = Inference(told.append), frames(4)
    for seed in range(3):
        weights = convolutional(seed, layers=TWO)
        answers.load(weights)
        np.testing.assert_allclose(answers(seen), torch_forward(weights)(seen), atol=1e-5, rtol=1e-5)
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
    ],
)
def test_bfloat16_is_taken_where_it_is_allowed_and_clearly_faster(
    seconds: tuple[float, ...], has: Hardware, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(seconds)

    def seconds_per_call(forward: Forward, observations: np.ndarray) -> float:
        return next(times)

    def found(device: object) -> Hardware:
        return has

    monkeypatch.setattr(inference, "_seconds_per_call", seconds_per_call)
    monkeypatch.setattr("remuda.policy.networks.precision.hardware", found)
    told: list[str] = []
    answers = Inference(Choice(told.append, lower=True))
    answers.load(convolutional(layers=TWO))
    answers(frames(2))
    assert told[0].endswith(taken)
    assert next(times, None) is None, "each form is timed once"


def test_collectors_may_lower_products_unless_the_config_says_float32() -> None:
    for precision, expected in (("auto", True), ("bfloat16", True), ("float32", False)):
        config = ExperimentConfig.model_validate(
            {"name": "x", "env": {"id": "CartPole-v1"}, "learner": {"precision": precision}}
        )
        found: list[Chosen] = []

        class Entry(DqnEntry):
            def make_policy(self, setup: Setup[DqnConfig], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
                found.append(chosen)  # noqa: B023  (is used at once)
                return super().make_policy(setup, chosen=chosen, device=device)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(algorithms, "built_in_entry", lambda type: Entry())
            make_policy(config, OBSERVATION, ACTION, chosen=lambda text: None)
            make_policy(config, OBSERVATION, ACTION)
        choice, none = found
        assert isinstance(choice, Choice)
        assert choice.lower is expected
        assert none is None


@pytest.mark.parametrize(("plain_s", "torch_s", "taken"), [(1.0, 0.5, "torch is"), (1.0, 0.99, "plain arrays are")])
def test_torch_must_be_clearly_faster(
    plain_s: float, torch_s: float, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([plain_s, torch_s])

    def seconds_per_call(forward: Forward, observations: np.ndarray) -> float:
        return next(times)

    monkeypatch.setattr(inference, "_seconds_per_call", seconds_per_call)
    make, explanation = fastest(convolutional(layers=TWO), frames(2))
    assert explanation.endswith(f"{taken} taken")
    assert (make is plain_forward) == (taken == "plain arrays are")


def test_what_is_fast_enough_needs_no_torch() -> None:
    """Neither perceptrons nor small images make a collector import torch, even where the choice is its own."""
    program = """
import sys, numpy as np
from remuda.policy.acting import inference
from remuda.policy.acting.inference import Inference
from remuda.policy.acting.weights import Dense, Filters, Weights
inference._FAST_ENOUGH_S = 10.0
one = Dense(np.ones((2, 4), np.float32), np.zeros(2, np.float32))
perceptron, small = Inference(), Inference(print)
perceptron.load(Weights((one,), "relu"))
perceptron(np.ones((3, 4), np.float32))
small.load(Weights((one,), "relu", (Filters(np.ones((4, 1, 3, 3), np.float32), np.zeros(4, np.float32), 1),)))
small(np.ones((2, 1, 3, 3), np.uint8))
assert "torch" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().endswith("which are fast enough")


def test_a_device_that_is_named_answers_everything_in_torch_perceptrons_too() -> None:
    """`cpu:0` is a device like any other to torch: weights and observations are taken there, and answers back."""
    rng = np.random.default_rng(0)
    for weights, seen in (
        (Weights(dense(rng, [5, 7, 2]), "tanh"), rng.normal(size=(6, 5)).astype(np.float32)),
        (convolutional(layers=TWO), frames(3)),
    ):
        told: list[str] = []
        answers = Inference(told.append, device="cpu:0")
        answers.load(weights)
        np.testing.assert_allclose(answers(seen), plain_forward(weights)(seen), atol=1e-5, rtol=1e-5)
        assert told == [], "nothing was timed"


def test_a_device_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(DeviceError, match=r"collector\.device = 'cuda:77' cannot be used: "):
        Inference(device="cuda:77")


def test_without_weights_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="no weights yet"):
        Inference()(np.zeros((1, 4), np.float32))


def test_unheard_it_is_the_same_every_time() -> None:
    """Serial runs and evaluations: torch for images, plain arrays for numbers, whatever the clock says."""
    weights, seen = convolutional(layers=TWO), frames(3)
    answers = Inference()
    answers.load(weights)
    np.testing.assert_array_equal(answers(seen), torch_forward(weights)(seen))
