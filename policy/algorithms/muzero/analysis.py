"""How much of a network is in use: LightZero's analysis, which costs a pass over the batch and is made now and then."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from remuda.policy.algorithms.muzero.networks import MuZeroNetwork

ANALYSIS = ("analysis/dormant_ratio_encoder", "analysis/dormant_ratio_dynamics", "analysis/latent_state_l2_norms")
"""Metrics that come once per `log.interval_train_iters` updates."""
DORMANT = 0.025
"""Units that are active less than this share of their layer's mean count as dormant."""


@torch.no_grad()
def analysis(network: MuZeroNetwork, observation: torch.Tensor, action: torch.Tensor) -> dict[str, torch.Tensor]:
    """ANALYSIS of a network as it acts, by encoded observations [n, …] and actions int64 [n]: scalars.

    The shares of the representation's and the dynamics' units that are dormant (Sokar et al. 2023, "The dormant neuron
    phenomenon"), and the mean length of a latent state. The network learns nothing from it, and its running moments do
    not change.
    """
    trained = network.training
    network.eval()
    try:
        with _activations(network.representation) as of_representation:
            latent = network.represent(observation)
        with _activations(network.dynamics) as of_dynamics:
            network.imagine(latent, action)
    finally:
        network.train(trained)
    values = dormant_ratio(of_representation), dormant_ratio(of_dynamics), latent.flatten(1).norm(dim=1).mean()
    return dict(zip(ANALYSIS, values, strict=True))


def dormant_ratio(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Share of dormant units among all of these layers' activations, [n, units, …] each: those whose mean size is at
    most DORMANT of the mean size in their layer. The units of a convolution are its channels. A layer that is never
    active is dormant as a whole."""
    dormant, units = [], 0
    for activations in layers:
        sizes = activations.abs().transpose(0, 1).flatten(1).mean(1)
        dormant.append((sizes <= DORMANT * sizes.mean()).sum())
        units += len(sizes)
    return torch.stack(dormant).sum() / units


@contextmanager
def _activations(part: nn.Module) -> Generator[list[torch.Tensor]]:
    """What comes out of every relu of a part while it runs."""
    found: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: object, outputs: torch.Tensor) -> None:
        found.append(outputs)

    handles = [module.register_forward_hook(keep) for module in part.modules() if isinstance(module, nn.ReLU)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
