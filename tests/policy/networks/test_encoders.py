"""Encoders: features for each observation, gradients of every parameter, and numpy equals torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.packed_part import PackedPart
from remuda.policy.networks import encoders
from remuda.policy.networks.compiled import compiled
from remuda.policy.networks.encoders import by_parts, impala_resnet, nature_cnn, perceptron, simba, transformer
from remuda.policy.networks.layouts import Pixels
from remuda.policy.networks.program import ReadPixels, Steps
from remuda.policy.networks.reading import Names, steps_of
from remuda.policy.networks.trunks import as_channels
from remuda.policy.spaces import ObservationSpec

ROWS, STACKED = ObservationSpec((6,), "float32"), ObservationSpec((4, 3), "float32")
COUNTED = ObservationSpec((), "int64", n=5)
ATARI = ObservationSpec((4, 84, 84), "uint8", 0.0, 255.0)
SMALL = ObservationSpec((21, 17, 3), "uint8", 0.0, 255.0)
PARTS = ObservationSpec(
    (0,),
    "uint8",
    parts=(
        PackedPart("arm.joints", 0, (2, 3), "float32"),
        PackedPart("seen", 24, (12, 12, 3), "uint8", 0.0, 255.0),
        PackedPart("mode", 456, (2,), "int64", counts=(3, 2), starts=(0, 0)),
        PackedPart("speed", 472, (), "float32"),
    ),
)
"""Numbers, an image, two discrete integers, and a single number."""

Prepared = torch.Tensor | dict[str, torch.Tensor]
Make = Callable[[ObservationSpec], nn.Module]


def asked(make: Callable[..., nn.Module], **settings: Any) -> Make:
    """An encoder with settings from a config, right or wrong."""
    return partial(make, **settings)


def layer(network: nn.Module, place: str) -> Any:
    """A module by its path: `2`, or `2.1` inside another."""
    return network.get_submodule(place)


def prepared(observation: ObservationSpec, rows: int = 3) -> Prepared:
    """Inputs of encoders for random observations."""
    if observation.parts:
        joints, image = torch.randn(rows, 2, 3), torch.rand(rows, 3, 12, 12)
        return {"arm.joints": joints, "seen": image, "mode": torch.rand(rows, 5), "speed": torch.randn(rows)}
    if pixels := Pixels.of(observation):
        return torch.rand(rows, pixels.channels, pixels.height, pixels.width)
    return torch.randn(rows, *(observation.shape or (observation.n or 0,)))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


CASES: list[tuple[Make, ObservationSpec, int]] = [
    (partial(perceptron, hidden=(8, 7)), ROWS, 7),
    (partial(perceptron, hidden=(8, 7), activation="gelu", layer_norm=True), STACKED, 7),
    (partial(perceptron, hidden=(8,)), COUNTED, 8),
    (partial(perceptron, hidden=(8,)), SMALL, 8),
    (partial(perceptron, hidden=(8,)), PARTS, 8),
    (partial(nature_cnn, features=32), ATARI, 32),
    (partial(nature_cnn, features=32), SMALL, 32),
    (partial(impala_resnet, features=32), SMALL, 32),
    (partial(impala_resnet, features=32, width=0.25, channels=(16, 32), layer_norm=True), SMALL, 32),
    (partial(simba, width=16, blocks=2), ROWS, 16),
    (partial(simba, width=16), PARTS, 16),
    (partial(transformer, width=16), STACKED, 16),
    (partial(transformer, width=16, pooling="class", positions=False), STACKED, 16),
    (partial(transformer, width=16), PARTS, 16),
    (by_parts, PARTS, 6 + 512 + 5 + 1),
    (partial(by_parts, parts={"seen": {"encoder": "impala_resnet", "features": 9}}), PARTS, 6 + 9 + 5 + 1),
]


@pytest.mark.parametrize(("make", "observation", "features"), CASES)
def test_features_and_gradients_of_each_observation(make: Make, observation: ObservationSpec, features: int) -> None:
    encoder, seen = make(observation), prepared(observation)
    given = encoder(seen)
    assert (given.shape, given.dtype) == ((3, features), torch.float32)
    given.square().sum().backward()
    without = [name for name, one in encoder.named_parameters() if one.grad is None or not one.grad.any()]
    assert without == []
    alone = encoder({name: part[1:2] for name, part in seen.items()} if isinstance(seen, dict) else seen[1:2])
    torch.testing.assert_close(alone, given[1:2], atol=1e-5, rtol=1e-4)


class Pictures(nn.Module):
    """Pixels as encoded, prepared."""

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        self._pixels = pixels

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return as_channels(images, self._pixels)

    def steps(self, names: Names) -> Steps:
        return (ReadPixels(self._pixels.channels_last, self._pixels.scale),)


@pytest.mark.parametrize(("make", "observation"), [(make, spec) for make, spec, _ in CASES if not spec.parts])
def test_numpy_gives_the_same_unless_it_is_left_to_torch(make: Make, observation: ObservationSpec) -> None:
    network = nn.Sequential(make(observation)).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.2)  # some begin as 0 or 1
    pixels = Pixels.of(observation)
    if pixels is not None:
        network.insert(0, Pictures(pixels))
    steps = steps_of(network, Names(network))
    if observation is STACKED and isinstance(network[-1], encoders.Transformer):
        assert steps is None
        return
    assert steps is not None
    rng = np.random.default_rng(0)
    inputs = np.asarray(prepared(observation, 5)) if pixels is None else rng.integers(0, 256, (5, *observation.shape))
    inputs = inputs.astype(np.float32 if pixels is None else np.uint8)
    with torch.no_grad():
        expected = network(torch.from_numpy(inputs)).numpy()
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    before = inputs.copy()
    given = compiled(steps, arrays, observation)(inputs)
    np.testing.assert_allclose(given, expected, rtol=1e-3, atol=1e-4 * float(np.abs(expected).max()))
    assert (inputs == before).all()


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1), ((1, 3), (2, 1), (0, 1))])
def test_max_pools_by_numpy_are_torch_s(
    kernel: int | tuple[int, int], stride: int | tuple[int, int], padding: int | tuple[int, int]
) -> None:
    pool = nn.MaxPool2d(kernel, stride, padding)
    images = torch.randn(2, 3, 7, 6) - 5.0  # padding that counted as 0 would win
    steps = steps_of(pool, Names(pool))
    assert steps is not None
    given = compiled(steps, {}, SMALL)(images.permute(0, 2, 3, 1).contiguous().numpy())
    np.testing.assert_array_equal(given, pool(images).permute(0, 2, 3, 1).numpy())


# --- the papers' networks
def test_simba_by_hand() -> None:
    """Equations 4 to 6 of the paper."""
    network, seen = simba(ROWS, width=8, blocks=1, expansion=4), prepared(ROWS)
    wide, narrow = layer(network, "1.1"), layer(network, "1.3")
    assert (wide.out_features, narrow.in_features) == (32, 32)
    hidden = layer(network, "0")(seen)
    hidden = hidden + narrow(wide(functional.layer_norm(hidden, (8,))).relu())
    torch.testing.assert_close(network(seen), functional.layer_norm(hidden, (8,)))


def test_attention_by_hand() -> None:
    """softmax(Q K' / sqrt(d)) V for each head, and then a linear layer (Vaswani et al. 2017, section 3.2)."""
    attention, tokens = encoders.Attention(6, 2), torch.randn(2, 4, 6)
    query, key, value = attention.read(tokens).chunk(3, dim=2)
    heads = []
    for part in (slice(0, 3), slice(3, 6)):
        weights = (query[..., part] @ key[..., part].transpose(1, 2) / math.sqrt(3)).softmax(2)
        heads.append(weights @ value[..., part])
    torch.testing.assert_close(attention(tokens), attention.write(torch.cat(heads, 2)))


# --- what cannot be
@pytest.mark.parametrize(
    ("make", "observation", "error", "text"),
    [
        (nature_cnn, ROWS, UnsupportedSpaceError, r"read images, and observations are float32 of shape \(6,\)"),
        (impala_resnet, PARTS, UnsupportedSpaceError, r"\(arm.joints, seen, mode, speed\): take by_parts"),
        (transformer, ROWS, UnsupportedSpaceError, "FrameStackObservation"),
        (transformer, COUNTED, UnsupportedSpaceError, "5 values of a Discrete space"),
        (by_parts, ROWS, UnsupportedSpaceError, "reads Dict and Tuple spaces"),
        (partial(by_parts, parts={"see": {}}), PARTS, ValueError, "no 'see'; the observation has arm.joints, seen"),
        (partial(by_parts, parts={"seen": {"encoder": "cnn"}}), PARTS, ValueError, "one of perceptron, .* is 'cnn'"),
        (asked(transformer, heads=3), STACKED, ValueError, "width = 64 is not divisible by heads = 3"),
        (asked(transformer, pooling="max"), STACKED, ValueError, "pooling must be one of mean, class, and is 'max'"),
        (asked(perceptron, activation="swish"), ROWS, ValueError, "activation must be one of relu, .* 'swish'"),
    ],
)  # fmt: skip
def test_misfits_are_refused(make: Make, observation: ObservationSpec, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make(observation)
