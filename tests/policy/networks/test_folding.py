"""Folded images give the convolution of the images, and blocks in the documented order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from remuda.policy.networks.layouts import Convolution, Pixels
from remuda.policy.networks.trunks import Folding

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
def test_a_folded_convolution_gives_the_same_sums(
    channels: int, height: int, width: int, kernel: int, stride: int, *, last: bool
) -> None:
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


def test_blocks_of_a_small_image_by_hand() -> None:
    image = torch.arange(2 * 2 * 4, dtype=torch.uint8).view(1, 2, 2, 4)  # two channels of 2 x 4 pixels
    first = folding_of(2, 2, 4, 2, 2, last=False).blocks(image)
    assert first.tolist() == [[[[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]]]]
    last = folding_of(2, 2, 4, 2, 2, last=True).blocks(image.permute(0, 2, 3, 1).contiguous())
    assert last.tolist() == [[[[0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]]]]


def test_a_part_of_larger_memory_and_booleans_are_folded_too() -> None:
    folding = folding_of(1, 3, 6, 2, 2, last=False)
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 2, (5, 1, 3, 6), dtype=np.uint8))
    whole = folding.blocks(images)
    assert torch.equal(folding.blocks(images[3:]), whole[3:])
    assert torch.equal(folding.blocks(images.bool()), whole)
    odd = torch.empty(images.numel() + 1, dtype=torch.uint8)[1:].view_as(images).copy_(images)
    assert torch.equal(folding.blocks(odd), whole), "where words of two bytes begin between two bytes"


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (8, 3)])
def test_where_blocks_do_not_fit_the_filters_nothing_is_folded(kernel: int, stride: int) -> None:
    assert Folding.of(Pixels(1, 84, 84, False, 1.0), Convolution(1, 5, kernel, stride)) is None
