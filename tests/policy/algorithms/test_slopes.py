"""What is promised of the gradients that update rules have written out: autograd's, of the loss that stands beside."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import huber_loss

from remuda.policy.algorithms.actor_critic import impala, ppo
from remuda.policy.algorithms.dqn import learning as dqn

n = st.integers(1, 40)
clips = st.sampled_from([0.05, 0.3, 2.0])
seeds = st.integers(0, 2**32 - 1)
unclipped = st.none()


def drawn(count: int, seed: int, *, of: int) -> list[torch.Tensor]:
    """Float64 [count] each: numbers that are nowhere on the edge of what is clipped."""
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(of, count, generator=generator, dtype=torch.float64))


def assert_slope(
    loss: Callable[[torch.Tensor], torch.Tensor], slope: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor
) -> None:
    moving = at.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(moving), moving)
    torch.testing.assert_close(slope(at), expected, rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(n=n, seed=seeds)
def test_dqn(n: int, seed: int) -> None:
    error, weights = drawn(n, seed, of=2)
    assert_slope(lambda at: (weights * dqn.huber(at)).sum(), lambda at: weights * dqn.huber_slope(at), 2.0 * error)
    torch.testing.assert_close(dqn.huber(error), huber_loss(error, torch.zeros_like(error), reduction="none"))


@settings(deadline=None)
@given(n=n, clip=clips, seed=seeds)
def test_ppos_policy(n: int, clip: float, seed: int) -> None:
    log_ratio, advantages = drawn(n, seed, of=2)
    assert_slope(
        lambda at: ppo.policy_loss(at.exp(), advantages, clip=clip),
        lambda at: ppo.policy_slope(at.exp(), advantages, clip=clip),
        log_ratio,
    )


@settings(deadline=None)
@given(n=n, clip=clips | unclipped, seed=seeds)
def test_ppos_value(n: int, clip: float | None, seed: int) -> None:
    values, returns, old_values = drawn(n, seed, of=3)
    assert_slope(
        lambda at: ppo.value_loss(at, returns, old_values, clip=clip),
        lambda at: ppo.value_slope(at, returns, old_values, clip=clip),
        values,
    )


@pytest.mark.parametrize("clip", [None, 0.2])
def test_before_the_first_step_nothing_is_clipped(clip: float | None) -> None:
    """Ratios are 1 and values the old ones, to the last digit: the gradients are those without clipping."""
    advantages, values, returns = drawn(20, 1, of=3)
    at = torch.zeros(20, dtype=torch.float64)
    assert_slope(
        lambda log_ratio: -(log_ratio.exp() * advantages).mean(),
        lambda log_ratio: ppo.policy_slope(log_ratio.exp(), advantages, clip=0.2),
        at,
    )
    assert_slope(
        lambda of: (of - returns).square().mean(), lambda of: ppo.value_slope(of, returns, values, clip=clip), values
    )


@settings(deadline=None)
@given(n=n, seed=seeds)
def test_impalas(n: int, seed: int) -> None:
    log_prob, advantages, values, targets = drawn(n, seed, of=4)
    assert_slope(lambda at: impala.policy_loss(at, advantages), lambda _: impala.policy_slope(advantages), log_prob)
    assert_slope(lambda at: impala.value_loss(at, targets), lambda at: impala.value_slope(at, targets), values)
