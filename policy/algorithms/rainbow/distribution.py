"""Distributions of returns, and how far one is from its target (Bellemare et al. 2017, Dabney et al. 2018)."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from remuda.config.algorithms.q_learning import RainbowConfig


class ReturnDistribution(ABC):
    """What the network's `atoms` outputs of an action mean."""

    @abstractmethod
    def expectation(self, outputs: torch.Tensor) -> torch.Tensor:
        """The expected return: outputs [n, …, atoms] -> float32 [n, …]."""

    @abstractmethod
    def target(self, outputs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        """What the distribution of reward + discount * return is learned from.

        Args:
            outputs: [n, atoms], of the target network for the next action.
            reward: [n], summed over the steps of the row.
            discount: [n]; 0 where the episode terminated.

        Returns:
            [n, atoms], for `losses`.
        """

    @abstractmethod
    def target_expectation(self, target: torch.Tensor) -> torch.Tensor:
        """The expected return of a target [n, atoms]: float32 [n]."""

    @abstractmethod
    def losses(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """How far outputs [n, atoms] are from a target: float32 [n], to be minimised; 0 is the least for `Categorical`
        alone."""


class Categorical(ReturnDistribution):
    """C51 (Bellemare et al. 2017): outputs are logits of fixed returns, evenly spaced from `v_min` to `v_max`."""

    def __init__(self, atoms: int, v_min: float, v_max: float, device: torch.device) -> None:
        self._least, self._most = v_min, v_max
        self._step = (v_max - v_min) / (atoms - 1)
        self._returns = torch.linspace(v_min, v_max, atoms, device=device)

    def expectation(self, outputs: torch.Tensor) -> torch.Tensor:
        """See ReturnDistribution."""
        return outputs.softmax(dim=-1) @ self._returns

    def target(self, outputs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        """Probabilities [n, atoms]: each return's mass goes to the two fixed returns beside it, the more to the nearer
        one (equation 7). What lies beyond `v_min` or `v_max` goes there."""
        probability = outputs.softmax(dim=-1)
        moved = torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), self._returns)
        position = (moved.clamp(self._least, self._most) - self._least) / self._step
        position.clamp_(max=len(self._returns) - 1)  # the quotient may have been rounded up
        below = position.floor().clamp_(max=len(self._returns) - 2)
        to_above = position - below
        index = below.long()
        projected = torch.zeros_like(probability)
        projected.scatter_add_(1, index, probability * (1.0 - to_above))
        projected.scatter_add_(1, index + 1, probability * to_above)
        return projected

    def target_expectation(self, target: torch.Tensor) -> torch.Tensor:
        """See ReturnDistribution."""
        return target @ self._returns

    def losses(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The Kullback-Leibler divergence of the target from the outputs."""
        of_target = torch.xlogy(target, target).sum(dim=1)
        return of_target - (target * outputs.log_softmax(dim=1)).sum(dim=1)


class Quantiles(ReturnDistribution):
    """QR-DQN (Dabney et al. 2018): outputs are the returns at the middles of `atoms` equal parts of probability."""

    def __init__(self, atoms: int, device: torch.device) -> None:
        self._middles = (torch.arange(atoms, device=device) + 0.5) / atoms

    def expectation(self, outputs: torch.Tensor) -> torch.Tensor:
        """See ReturnDistribution."""
        return outputs.mean(dim=-1)

    def target(self, outputs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        """Returns [n, atoms]."""
        return torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), outputs)

    def target_expectation(self, target: torch.Tensor) -> torch.Tensor:
        """See ReturnDistribution."""
        return target.mean(dim=1)

    def losses(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The quantile Huber loss (equation 10, with kappa 1): summed over the outputs, mean over the targets."""
        error = target.unsqueeze(1) - outputs.unsqueeze(2)  # [n, outputs, targets]
        within = error.clamp(-1.0, 1.0)
        huber = within * (error - within / 2)
        weight = (self._middles.view(1, -1, 1) - (error < 0).float()).abs()
        return (weight * huber).mean(dim=2).sum(dim=1)


def return_distribution(config: RainbowConfig, device: torch.device) -> ReturnDistribution:
    """The one that the settings name."""
    if config.distribution == "quantile":
        return Quantiles(config.atoms, device)
    return Categorical(config.atoms, config.v_min, config.v_max, device)
