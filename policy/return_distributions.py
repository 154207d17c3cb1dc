"""Distributions of returns, as the outputs of networks: targets of learning, losses and expectations."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch


class ReturnDistribution(ABC):
    """Interpretation of a network's `atoms` outputs."""

    @abstractmethod
    def expectation(self, outputs: torch.Tensor) -> torch.Tensor:
        """The expected return: outputs [n, …, atoms] -> float32 [n, …]."""

    def mixture(self, outputs: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
        """Mix the distributions of actions, for `target`. Quantiles are means, as in M-IQN (Vieillard et al. 2020).

        Args:
            outputs: [n, actions, atoms].
            probability: of each action, [n, actions].

        Returns:
            [n, atoms].
        """
        return (outputs * probability.unsqueeze(2)).sum(dim=1)

    @abstractmethod
    def target(self, outputs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        """Compute the learning target [n, atoms], for `losses`: the distribution of reward + discount * return, from
        the target network's `outputs` [n, atoms] for the next action. `reward` [n] is summed over the steps of the row;
        `discount` [n] is 0 if the episode terminated."""

    @abstractmethod
    def target_expectation(self, target: torch.Tensor) -> torch.Tensor:
        """The expected return of a target [n, atoms]: float32 [n]."""

    @abstractmethod
    def losses(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Distance of outputs [n, atoms] from a target: float32 [n], to be minimised. The minimum of `Quantiles` is
        not 0."""


class Categorical(ReturnDistribution):
    """C51 (Bellemare et al. 2017): outputs are logits of fixed returns, evenly spaced from `v_min` to `v_max`."""

    def __init__(self, atoms: int, v_min: float, v_max: float, device: torch.device) -> None:
        self._least, self._most = v_min, v_max
        self._step = (v_max - v_min) / (atoms - 1)
        self._returns = torch.linspace(v_min, v_max, atoms, device=device)

    def expectation(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.softmax(dim=-1) @ self._returns

    def mixture(self, outputs: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
        """Logits of the mixture."""
        return (outputs.softmax(dim=2) * probability.unsqueeze(2)).sum(dim=1).log()

    def target(self, outputs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        """Probabilities [n, atoms]: the mass of each return is split between the two neighbouring fixed returns, in
        proportion to nearness (equation 7). Mass beyond `v_min` or `v_max` goes to that end."""
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
        return target @ self._returns

    def losses(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The Kullback-Leibler divergence of the target from the outputs, of several networks [count, n, atoms] or of
        one."""
        of_target = torch.xlogy(target, target).sum(dim=-1)
        return of_target - (target * outputs.log_softmax(dim=-1)).sum(dim=-1)


class Quantiles(ReturnDistribution):
    """QR-DQN (Dabney et al. 2018): outputs are the returns at the middles of `atoms` equal parts of probability."""

    def __init__(self, atoms: int, device: torch.device) -> None:
        self._middles = (torch.arange(atoms, device=device) + 0.5) / atoms

    def expectation(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.mean(dim=-1)

    def target(self, outputs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        """Returns [n, atoms]."""
        return torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), outputs)

    def target_expectation(self, target: torch.Tensor) -> torch.Tensor:
        return target.mean(dim=1)

    def losses(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The quantile Huber loss (equation 10, with kappa 1): summed over the outputs, mean over the targets."""
        error = target.unsqueeze(1) - outputs.unsqueeze(2)  # [n, outputs, targets]
        within = error.clamp(-1.0, 1.0)
        huber = within * (error - within / 2)
        weight = (self._middles.view(1, -1, 1) - (error < 0).float()).abs()
        return (weight * huber).mean(dim=2).sum(dim=1)


class Expectation(ReturnDistribution):
    """The expected return alone: a single output."""

    def expectation(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs.squeeze(-1)

    def target(self, outputs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        """The expected return [n, 1]."""
        return (reward + discount * outputs.squeeze(1)).unsqueeze(1)

    def target_expectation(self, target: torch.Tensor) -> torch.Tensor:
        return target.squeeze(1)

    def losses(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Half the squared error, of several networks [count, n, 1] or of one."""
        return (outputs - target).square().squeeze(-1) / 2
