"""The average of an actor over its updates: its weights by hand, its length, and the start from saved weights."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch

from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config
from remuda.policy.networks.hyperspherical import UnitLinear
from remuda.policy.ranks import OneRank
from remuda.tests.policy.algorithms.twin_critics.cases import Policy, batch, made

SMALL = (16, 8)


@pytest.mark.parametrize(
    ("policy", "interval"),
    [
        (SacConfig(hidden=SMALL, averaged_share=0.5), 1),
        (Td3Config(hidden=SMALL, averaged_share=1.0, policy_delay=2), 2),
        (CrossQConfig(hidden=SMALL, averaged_share=0.25, policy_delay=3), 3),
    ],
)
def test_the_averaged_actor_moves_by_a_share_that_shrinks_with_the_steps(policy: Policy, interval: int) -> None:
    """The moments of batch normalisation are averaged like weights. Learning is the same without an average."""
    algorithm, rng = made(policy), np.random.default_rng(0)
    plain, again = made(policy.model_copy(update={"averaged_share": None})), np.random.default_rng(0)
    average: dict[str, np.ndarray] = {}
    share = policy.averaged_share
    assert share is not None
    for update in range(3 * interval + 1):
        algorithm.learn(batch(rng))
        held = algorithm.acting_state()
        if (update + 1) % interval == 0:
            newest = 1.0 / (1.0 + share * ((update + 1) // interval - 1))
            actor = {name: value.copy() for name, value in held.items() if name.startswith("actor.")}
            average = {name: average.get(name, 0.0) * (1 - newest) + newest * value for name, value in actor.items()}
    assert average
    assert any("running" in name for name in average) == isinstance(policy, CrossQConfig)
    for name, value in average.items():
        np.testing.assert_allclose(held[f"averaged_{name}"], value, atol=1e-6, err_msg=name)
    assert max(np.abs(held[name] - value).max() for name, value in average.items()) > 1e-3
    for _ in range(3 * interval + 1):
        plain.learn(batch(again))
    for name, weights in plain.acting_state().items():
        np.testing.assert_array_equal(held[name], weights, err_msg=name)


class CountingRanks(OneRank):
    """Counts the numbers of each average, without scalars."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def average(self, weight: float, *tensors: torch.Tensor) -> None:
        self.sent.append(sum(tensor.numel() for tensor in tensors if tensor.dim()))


def test_ranks_send_each_other_the_gradients_of_an_update_alone() -> None:
    """Neither those of the average, which no loss trains, nor those of an actor that keeps still."""
    algorithm, rng = made(CrossQConfig(hidden=SMALL, averaged_share=0.25, policy_delay=2)), np.random.default_rng(0)
    algorithm.ranks = ranks = CountingRanks()
    for _ in range(2):
        algorithm.learn(batch(rng))
    sizes = {name: parameter.numel() for name, parameter in algorithm.network.named_parameters()}
    of_critics = sum(size for name, size in sizes.items() if name.startswith("critics."))
    of_average = sum(size for name, size in sizes.items() if name.startswith("averaged_actor."))
    assert of_average > 0
    assert ranks.sent == [of_critics, sum(sizes.values()) - of_average]


def test_averaged_hyperspherical_weights_have_length_1() -> None:
    algorithm = made(SacConfig(hidden=(8,), averaged_share=0.5, normalization="hyperspherical"))
    for seed in range(4):
        algorithm.learn(batch(np.random.default_rng(seed)))
    actor, average = (algorithm.network.get_submodule(name) for name in ("actor", "averaged_actor"))
    layers = [name for name, layer in average.named_modules() if isinstance(layer, UnitLinear)]
    assert layers
    for name in layers:
        own, averaged = (cast("UnitLinear", module.get_submodule(name)).weight for module in (actor, average))
        np.testing.assert_allclose(averaged.detach().norm(dim=1), 1.0, atol=1e-6)
        assert not torch.equal(own, averaged)


def test_a_run_with_an_average_starts_from_weights_with_and_without_one() -> None:
    averaged, plain = SacConfig(hidden=SMALL, averaged_share=0.1), SacConfig(hidden=SMALL)
    for before, after in ((averaged, plain), (plain, averaged), (averaged, averaged)):
        old, new = made(before), made(after, seed=1)
        for _ in range(3):
            old.learn(batch(np.random.default_rng(0)))
        new.load_weights(old.state())
        given, taken = old.acting_state(), new.acting_state()
        assert any(name.startswith("averaged_") for name in taken) == (after is averaged)
        for name, value in taken.items():
            actor = name.removeprefix("averaged_") if before is plain else name
            np.testing.assert_array_equal(value, given[actor], err_msg=name)
