"""Each layer of a network has a histogram of weights, at a bounded cost."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from remuda.learner.outputs import BUCKETS, MOST_PER_LAYER, weight_histograms
from remuda.tests.policy.cases import dqn
from remuda.wire.messages import MOST_BUCKETS


def test_every_parameter_has_a_histogram_of_all_its_weights() -> None:
    network = dqn(seed=3).network
    found = weight_histograms(network)
    assert list(found) == [name for name, _ in network.named_parameters()]
    for name, parameter in network.named_parameters():
        values, histogram = parameter.detach().numpy(), found[name]
        assert sum(histogram.counts) == values.size
        assert len(histogram.counts) == BUCKETS <= MOST_BUCKETS
        if values.size > 1:  # one alone has buckets around it
            assert (histogram.left, histogram.rights[-1]) == (float(values.min()), float(values.max()))
        np.testing.assert_allclose(histogram.total, values.sum(dtype=np.float64))


def test_of_a_large_layer_every_nth_weight_is_counted_of_every_column() -> None:
    """The length of a row is a power of two; each weight is the index of its column."""
    layer = nn.Linear(256, 2 * MOST_PER_LAYER // 256, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(256).expand_as(layer.weight))
    (histogram,) = weight_histograms(layer).values()
    counted = sum(histogram.counts)
    assert MOST_PER_LAYER / 2 <= counted <= MOST_PER_LAYER
    np.testing.assert_allclose(histogram.counts, counted / BUCKETS, rtol=0.01)


def test_weights_that_are_no_numbers_are_left_out() -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight[0, 0] = float("nan")
        layer.bias.fill_(float("inf"))
    found = weight_histograms(layer)
    assert list(found) == ["weight"]
    assert sum(found["weight"].counts) == 3
