"""Images: convolutions fit or are errors, are trained, and act as in training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.algorithms.twin_critics import SacConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.packed_part import PackedPart
from remuda.policy.algorithms import make_policy
from remuda.policy.algorithms.actor_critic.entries import network_shape
from remuda.policy.algorithms.twin_critics.entries import numbers_of
from remuda.policy.networks.custom import Preparation
from remuda.policy.networks.layouts import ATARI, SMALL, Convolution, ImageLayout, Pixels
from remuda.policy.networks.trunks import ConvolutionTrunk, Folding
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.cases import config

FRAMES = ObservationSpec((4, 36, 40), "uint8", 0.0, 255.0)
MINATAR = ObservationSpec((10, 10, 4), "bool", 0.0, 1.0)
ACTIONS = ActionSpec(3)

GREY = ObservationSpec((36, 40), "uint8", 0.0, 255.0)
COLOURS = ObservationSpec((2, 36, 40, 3), "uint8", 0.0, 255.0)
images = pytest.mark.parametrize(
    "observation", [FRAMES, MINATAR, GREY, COLOURS], ids=["frames", "minatar", "grey", "colours"]
)


def some(observation: ObservationSpec, rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2 if observation.dtype == "bool" else 256, (rows, *observation.shape)).astype(
        observation.dtype
    )


# --- layouts
def test_atari_and_small_images_have_layers_of_their_own() -> None:
    layout = ImageLayout.of(ObservationSpec((4, 84, 84), "uint8", 0.0, 255.0), None)
    assert layout is not None
    assert layout.features == 64 * 7 * 7, "as in the paper"
    assert [(layer.filters, layer.kernel, layer.stride) for layer in layout.layers] == list(ATARI)
    small = ImageLayout.of(MINATAR, None)
    assert small is not None
    assert [(layer.filters, layer.kernel, layer.stride) for layer in small.layers] == list(SMALL)
    assert small.features == 16 * 8 * 8
    assert (layout.pixels.scale, small.pixels.scale) == (1 / 255, 1.0)


@pytest.mark.parametrize("side", [3, 10, 35, 36, 37, 64, 210])
def test_every_image_of_three_pixels_or_more_has_a_layout_that_the_network_agrees_with(side: int) -> None:
    for shape in ((1, side, side + 5), (side + 5, side, 3)):
        observation = ObservationSpec(shape, "uint8", 0.0, 255.0)
        layout = ImageLayout.of(observation, None)
        assert layout is not None
        trunk = ConvolutionTrunk(layout)
        assert trunk(torch.from_numpy(some(observation, 2))).shape == (2, layout.features)


@pytest.mark.parametrize(
    ("shape", "layers", "found"),
    [((4, 2, 9), None, "3x3 pixels finds 2x9"), ((3, 9, 9), ((4, 5, 2), (4, 4, 1)), "4x4 pixels finds 3x3")],
)
def test_too_small_an_image_is_refused_in_one_line(
    shape: tuple[int, ...], layers: tuple[tuple[int, int, int], ...] | None, found: str
) -> None:
    with pytest.raises(UnsupportedSpaceError, match=found) as caught:
        ImageLayout.of(ObservationSpec(shape, "uint8"), layers)
    assert "\n" not in str(caught.value)
    assert "policy.convolution" in str(caught.value)


def test_a_module_of_the_users_own_reads_images_that_are_too_small_for_convolutions() -> None:
    board = ObservationSpec((2, 7), "uint8", 0.0, 6.0)
    with pytest.raises(UnsupportedSpaceError, match="3x3 pixels finds 2x7"):
        network_shape(PpoConfig(), board)
    assert network_shape(PpoConfig(encoder="mine:reads"), board).numbers is None
    assert numbers_of(SacConfig(encoder="mine:reads"), board) is None
    parts = ObservationSpec((14,), "uint8", parts=(PackedPart("board", 0, (2, 7), "uint8", 0.0, 6.0),))
    prepared = Preparation(parts)(torch.full((3, 14), 3, dtype=torch.uint8))
    assert isinstance(prepared, dict)
    torch.testing.assert_close(prepared["board"], torch.full((3, 1, 2, 7), 0.5))


@pytest.mark.parametrize("shape", [(4,), (2, 2, 4, 84, 84)])
def test_convolutions_of_what_is_no_image_are_refused(shape: tuple[int, ...]) -> None:
    observation = ObservationSpec(shape, "uint8")
    assert ImageLayout.of(observation, None) is None
    with pytest.raises(UnsupportedSpaceError, match=r"policy\.convolution reads images"):
        make_policy(config(DqnConfig(convolution=SMALL)), observation, ACTIONS)


def test_compiled_convolutions_learn_and_are_traced_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for torch's compiler; tests/learning/test_compiled.py compiles."""
    monkeypatch.setattr(torch, "compile", lambda function, backend: function)
    layout = ImageLayout.of(FRAMES, None)
    assert layout is not None
    plain, compiled = ConvolutionTrunk(layout), ConvolutionTrunk(layout)
    compiled.load_state_dict(plain.state_dict())
    compiled.compile_learning()
    seen = torch.from_numpy(some(FRAMES, 6))
    for trunk in (plain, compiled):
        torch.autograd.backward(trunk(seen).square().mean())
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    torch.testing.assert_close(compiled.eval()(seen), plain.eval()(seen))


@images
@pytest.mark.parametrize("learns", [False, True], ids=["values", "gradients"])
def test_folded_images_are_read_as_the_images_themselves(observation: ObservationSpec, *, learns: bool) -> None:
    layout = ImageLayout.of(observation, None)
    assert layout is not None
    trunk, seen = ConvolutionTrunk(layout), torch.from_numpy(observation.encode(some(observation, 9)))
    with torch.set_grad_enabled(learns):
        torch.testing.assert_close(trunk(trunk.folded(seen)), trunk(seen))


def test_pixels_are_scaled_to_at_most_one() -> None:
    layout = ImageLayout.of(ObservationSpec((1, 3, 3), "uint8", 0.0, 255.0), ((1, 3, 1),))
    assert layout is not None
    trunk = ConvolutionTrunk(layout)
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.fill_(0.5)
        white = trunk(torch.full((1, 1, 3, 3), 255, dtype=torch.uint8))
    torch.testing.assert_close(white, torch.tensor([[9 * 0.5 + 0.5]]))


# --- folded convolutions

CASES = [
    # channels, height, width, kernel, stride
    (4, 84, 84, 8, 4),  # Atari's
    (3, 84, 86, 8, 4),  # two columns that no filter reaches
    (1, 20, 22, 4, 2),
    (2, 35, 31, 16, 8),
    (3, 13, 17, 6, 3),  # no number has three bytes
    (2, 9, 9, 3, 3),  # filters beside each other
]


def folding_of(channels: int, height: int, width: int, kernel: int, stride: int, *, last: bool) -> Folding:
    pixels = Pixels(channels, height, width, last, 1 / 255)
    folding = Folding.of(pixels, Convolution(channels, 5, kernel, stride))
    assert folding is not None
    return folding


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("channels", "height", "width", "kernel", "stride"), CASES)
def test_folded_sums_are_equal(channels: int, height: int, width: int, kernel: int, stride: int, *, last: bool) -> None:
    folding = folding_of(channels, height, width, kernel, stride, last=last)
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (3, channels, height, width), dtype=np.uint8))
    weight = torch.from_numpy(rng.integers(-8, 9, (5, channels, kernel, kernel))).double().requires_grad_()
    plain = functional.conv2d(images.double(), weight, stride=stride)

    blocks = folding.blocks(images.permute(0, 2, 3, 1).contiguous() if last else images)
    assert blocks.shape == (3, *folding.shape)
    folded = functional.conv2d(blocks.double().permute(0, 3, 1, 2), folding.filters(weight))
    assert torch.equal(folded, plain), "whole numbers: the order of sums makes no difference"

    by_output = torch.from_numpy(rng.integers(-3, 4, plain.shape)).double()
    [expected] = torch.autograd.grad(plain, weight, by_output)
    [got] = torch.autograd.grad(folded, weight, by_output)
    assert torch.equal(got, expected)


def test_many_images_are_read_in_parts_with_the_same_outcome() -> None:
    layout = ImageLayout.of(MINATAR, None)
    assert layout is not None
    trunk, seen = ConvolutionTrunk(layout), torch.from_numpy(some(MINATAR, 300))
    with torch.no_grad():
        torch.testing.assert_close(trunk(seen), torch.cat([trunk(seen[:7]), trunk(seen[7:50]), trunk(seen[50:])]))
    features = trunk(seen)
    assert features.shape == (300, layout.features)
    torch.autograd.backward(features.square().mean())
    whole = [parameter.grad.clone() for parameter in trunk.parameters() if parameter.grad is not None]
    trunk.zero_grad()
    for part in torch.split(seen, 50):
        torch.autograd.backward(trunk(part).square().sum() / features.numel())
    parts = [parameter.grad for parameter in trunk.parameters()]
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)
