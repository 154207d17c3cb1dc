"""The model for images: sizes, known weights by hand, parts, and lower precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.models import ConvolutionNetwork, Residual, Step, halvings, latent_size
from remuda.policy.algorithms.muzero.networks import FrozenNetwork, MuZeroNetwork, Support
from remuda.policy.networks.batch_norm import BatchNorm
from remuda.policy.networks.layouts import Pixels

PIXELS = Pixels(channels=2, height=20, width=17, channels_last=False, scale=1 / 255)


def made(pixels: Pixels = PIXELS, **settings: Any) -> ConvolutionNetwork:
    """A small network for three actions."""
    small = {"head_hidden": 4, "support_size": 2, "channels": 6, "residual_blocks": 1, **settings}
    return ConvolutionNetwork(MuZeroConfig(**small), pixels, 3, trains=False)


SUPPORT = Support(2)
KEEPS = 1.0 / np.sqrt(1.0 + BatchNorm(1).epsilon)
"""Factor of normalisation with initial moments."""


@pytest.mark.parametrize(
    ("image", "times", "latent"),
    [
        ((96, 96), 4, (6, 6)),
        ((84, 84), 4, (6, 6)),
        ((64, 64), 3, (8, 8)),
        ((210, 160), 5, (7, 5)),
        ((16, 16), 1, (8, 8)),
        ((10, 10), 1, (5, 5)),
        ((9, 3), 1, (5, 2)),
        ((8, 8), 0, (8, 8)),
        ((1, 1), 0, (1, 1)),
    ],
)
def test_images_are_halved_until_eight_or_less(image: tuple[int, int], times: int, latent: tuple[int, int]) -> None:
    pixels = replace(PIXELS, height=image[0], width=image[1])
    assert (halvings(pixels), latent_size(pixels)) == (times, latent)
    network = made(pixels).eval()
    assert network.represent(torch.zeros(1, 2, *image, dtype=torch.uint8)).shape == (1, 6, *latent)


def by_hand(latent: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = (latent - latent.mean()) / np.sqrt(latent.var() + 1e-5)
    return scaled


def centred(weight: torch.Tensor, *factors: float) -> None:
    """Make 3x3 filters that only multiply each input channel by a factor."""
    weight.data.zero_()
    for channel, factor in enumerate(factors):
        weight.data[0, channel, 1, 1] = factor


def known() -> ConvolutionNetwork:
    """One channel of 2x2 pixels: residual blocks are the identity, and filters only multiply."""
    pixels = Pixels(channels=1, height=2, width=2, channels_last=False, scale=1 / 10)
    network = made(pixels, channels=1).eval().requires_grad_(False)
    for module in network.modules():
        if isinstance(module, Residual):
            for parameter in module.layers[3].parameters():
                parameter.zero_()
        if isinstance(module, Step):
            centred(module.convolution.weight, 0.5, 2.0, 0.0, -8.0)
    stem = network.representation[1].get_submodule("0")
    assert isinstance(stem, nn.Conv2d)
    centred(stem.weight, 3.0)
    return network


def test_known_weights_by_hand() -> None:
    network, image = known(), np.array([[1.0, 4.0], [2.0, 0.0]])
    seen = torch.from_numpy(image.astype(np.uint8)[None, None])
    latent = by_hand(3.0 * image / 10 * KEEPS)
    models: list[MuZeroNetwork | FrozenNetwork] = [network, network.frozen(SUPPORT)]
    for model in models:
        np.testing.assert_allclose(model.represent(seen)[0, 0].numpy(), latent, rtol=1e-4)
        states = torch.from_numpy(latent.astype(np.float32)).expand(3, 1, 2, 2)
        following = model.imagine(states, torch.tensor([0, 1, 2]))[:, 0].numpy()
        for action, brought in enumerate((2.0, 0.0, -8.0)):
            changed = np.maximum(latent + (0.5 * latent + brought) * KEEPS, 0.0)
            np.testing.assert_allclose(following[action], by_hand(changed), rtol=1e-4, atol=1e-5)


def test_lower_precision_is_of_training_and_of_reading_images_and_close() -> None:
    both: dict[str, ConvolutionNetwork] = {}
    seen, latent = torch.randint(0, 256, (8, 2, 20, 17)).to(torch.uint8), torch.randn(8, 6, 5, 5)
    actions, gradients = torch.arange(8) % 3, {}
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(0)
        network = made(precision=precision)
        loss = network.represent(seen).square().mul(latent).mean() + network.imagine(latent, actions).pow(3).mean()
        torch.autograd.backward(loss)
        found = [parameter.grad.reshape(-1) for parameter in network.parameters() if parameter.grad is not None]
        assert all(gradient.dtype == torch.float32 for gradient in found)
        gradients[precision], both[precision] = torch.cat(found), network.eval().requires_grad_(False)
    cosine = nn.functional.cosine_similarity(gradients["float32"], gradients["bfloat16"], dim=0)
    assert 0.95 < cosine < 1.0 - 1e-9, "lower, and close"
    both["bfloat16"].load_state_dict(both["float32"].state_dict())
    torch.testing.assert_close(*(network.represent(seen) for network in both.values()), rtol=0, atol=0)
    torch.testing.assert_close(*(network.imagine(latent, actions) for network in both.values()), rtol=0, atol=0)
    exact, folded = both["float32"], both["bfloat16"].frozen(SUPPORT)
    torch.testing.assert_close(folded.imagine(latent, actions), exact.imagine(latent, actions), rtol=1e-4, atol=1e-4)
    apart = (folded.represent(seen) - exact.represent(seen)).abs().max()
    assert 1e-5 < apart < 0.1, "searches and targets read images by lower precision"
