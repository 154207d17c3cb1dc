"""Denormal numbers: zero while a network learns, exact elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from remuda.config.learning import AdamSettings
from remuda.policy.networks.optimizers import Adam
from remuda.policy.networks.tensors import denormals_are_zero


def test_results_that_small_are_zero_inside_and_exact_outside() -> None:
    tiny = torch.full((64,), 1e-20)
    with denormals_are_zero():
        inside = (tiny * 1e-19).clone()
    outside = tiny * 1e-19
    assert (inside == 0).all()
    assert (outside != 0).all()
    assert np.float32(1e-20) * np.float32(1e-19) != 0


def test_arithmetic_is_exact_again_after_an_exception() -> None:
    with pytest.raises(KeyError), denormals_are_zero():
        raise KeyError("x")
    assert float(torch.tensor(1e-20) * 1e-19) > 0


def test_an_optimizer_forgets_gradients_that_ended_long_ago() -> None:
    vector, gradient = torch.zeros(16), torch.full((16,), 1e-17)
    adam = Adam(vector, gradient, AdamSettings(), learning_rate=1e-3)
    with denormals_are_zero():
        adam.step()
        gradient.zero_()
        for _ in range(20_000):
            adam.step()
    square = adam.state()["exp_avg_sq"]
    assert isinstance(square, torch.Tensor)
    assert ((square == 0) | (square >= torch.finfo(torch.float32).tiny)).all()
    assert torch.isfinite(vector).all()


def test_without_it_they_linger_where_processors_are_slow() -> None:
    square = torch.full((16,), 2e-38)
    for _ in range(2_000):
        square.mul_(0.999)
    assert ((square > 0) & (square < torch.finfo(torch.float32).tiny)).all()
