"""A network's parameters as one vector: its parts, and vectors that follow others."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from remuda.policy.networks.flat_parameters import FlatParameters, HugePageMemory


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 1)


def test_a_part_is_a_view_of_the_parameters_of_one_network() -> None:
    network = Two()
    parameters = FlatParameters(network)
    part = parameters.part("second")
    assert part.vector.shape == part.gradient.shape == (4,)
    part.vector.fill_(5.0)
    part.gradient.fill_(2.0)
    assert network.second.weight.tolist() == [[5.0, 5.0, 5.0]]
    assert network.second.bias.tolist() == [5.0]
    assert parameters.gradient.tolist() == [0.0] * 9 + [2.0] * 4
    assert not (network.first.weight == 5.0).any()
    assert len(parameters.part("").vector) == 13


def test_the_gradient_of_a_part_is_clipped_by_its_own_norm() -> None:
    parameters = FlatParameters(Two())
    parameters.gradient.fill_(3.0)
    norm = parameters.part("second").clip_gradient(1.0)
    assert float(norm) == pytest.approx(6.0)  # the root of 4 * 3²
    assert parameters.gradient.tolist() == pytest.approx([3.0] * 9 + [0.5] * 4, rel=1e-5)
    assert float(parameters.part("second").clip_gradient(None)) == pytest.approx(1.0, rel=1e-5)


def test_the_gradient_of_several_losses_is_that_of_their_sum() -> None:
    network = Two()
    parameters = FlatParameters(network)
    one, other = network.second(network.first(torch.ones(1, 2))).sum(), network.first.weight.square().sum()
    parameters.backward(one + other)
    expected = parameters.gradient.clone()
    again, constant = network.second(network.first(torch.ones(1, 2))).sum(), torch.tensor(3.0)
    parameters.backward(again, constant, network.first.weight.square().sum())
    torch.testing.assert_close(parameters.gradient, expected)


def test_what_acts_gets_buffers_and_second_names_too() -> None:
    network = Two()
    network.register_buffer("offset", torch.tensor([1.0, 2.0]))
    network.register_module("again", network.second)
    copied = FlatParameters(network).snapshot()
    assert copied.keys() == network.state_dict().keys()
    other = Two()
    other.register_buffer("offset", torch.zeros(2))
    other.register_module("again", other.second)
    other.load_state_dict({name: torch.from_numpy(array) for name, array in copied.items()})
    assert all(torch.equal(one, other.state_dict()[name]) for name, one in network.state_dict().items())
    network.get_buffer("offset").fill_(3.0)
    assert copied["offset"].tolist() == [1.0, 2.0], "a copy"


def test_a_vector_follows_by_its_share_of_the_way() -> None:
    part = FlatParameters(Two()).part("second")
    part.vector.copy_(torch.tensor([0.0, 1.0, 2.0, 3.0]))
    part.follow(torch.tensor([4.0, 4.0, 4.0, 4.0]), 0.25)
    assert part.vector.tolist() == [1.0, 1.75, 2.5, 3.25]
    part.follow(torch.tensor([4.0, 3.0, 2.0, 0.1]), 1.0)
    assert torch.equal(part.vector, torch.tensor([4.0, 3.0, 2.0, 0.1])), "to the last bit"


# --- memory of large tensors

SHAPES = [(2, 512, 256), (2, 300, 111), (3, 700, 301), (1,), (5, 1024, 256)]
"""Some are larger than a huge page, one is small."""
NUMBERS = torch.empty(0)


def filled(memory: HugePageMemory) -> list[torch.Tensor]:
    return [memory.empty(shape, like=NUMBERS).fill_(index) for index, shape in enumerate(SHAPES)]


def assert_kept(tensors: list[torch.Tensor]) -> None:
    assert [tuple(tensor.shape) for tensor in tensors] == SHAPES
    for index, tensor in enumerate(tensors):
        assert tensor.dtype == torch.float32
        assert tensor.is_contiguous()
        assert bool((tensor == index).all())


def test_tensors_do_not_overlap_and_outlive_what_gave_them() -> None:
    tensors = filled(HugePageMemory())
    gc.collect()
    assert_kept(tensors)


def test_each_is_saved_alone() -> None:
    """torch saves the whole storage of a tensor."""
    for tensor in filled(HugePageMemory()):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
