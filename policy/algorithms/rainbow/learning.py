"""Rainbow, the learning side (Hessel et al. 2018): the update rule on one page."""

from __future__ import annotations

import copy

import torch
from torch import nn

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.learning import QLearner
from remuda.policy.algorithms.rainbow.entry import NOISE_SIGMA
from remuda.policy.algorithms.rainbow.network import (
    Noise,
    RainbowNetwork,
    ReturnDistribution,
    make_network,
    return_distribution,
)
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.precision import Products
from remuda.policy.networks.tensors import masked, weights_from
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.policy.transitions import Transitions


class Rainbow(QLearner[nn.Module]):
    """Learns the distribution of returns of each action, bootstrapping from a target network.

    C51 (Bellemare et al. 2017) or quantile regression (Dabney et al. 2018); double (van Hasselt et al. 2016), dueling
    (Wang et al. 2016) and noisy networks (Fortunato et al. 2018) as configured. n-step returns come with the rows, and
    prioritized replay (Schaul et al. 2016) with the weights; a row's priority is its loss.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, RainbowConfig), config.policy.type
        self._policy = config.policy
        with weights_from(seed):
            online = make_network(config.policy, observation, action, config.source_dir).to(config.learner.device)
        target = copy.deepcopy(online)
        generator = torch.Generator(config.learner.device).manual_seed(seed)
        super().__init__(config, observation, action, online=online, target=target, generator=generator)
        self.products = Products(self._device).reach(online) if config.policy.lowers_products else None
        self._distribution = return_distribution(config.policy, self._device)
        self._noise: Noise = self._draw if config.policy.noisy else None

    def portable(self) -> PortableRainbow:
        epsilon = self._policy.epsilon_end if self._policy.takes_random_actions else 0.0
        distribution = return_distribution(self._policy, torch.device("cpu"))  # where the network is copied to
        return PortableRainbow(self._online, self.observation, self.action, epsilon, distribution)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one optimizer step on `loss`."""
        rows = Transitions.of(batch, self.observation, self.action, self._device, as_vector=False)
        return self._descend(self.loss(rows), len(rows))

    # --- the update rule

    def loss(self, rows: Transitions) -> Loss:
        """The weighted mean of the losses of the distributions."""
        target = self._distribution.target(self._next_outputs(rows), rows.reward, rows.discount)
        outputs = of_actions(self._online(rows.obs, self._noise), rows.action)
        losses = self._distribution.losses(outputs, target)
        q_value = self._distribution.expectation(outputs.detach())
        target_q_value = self._distribution.target_expectation(target)
        metrics: dict[str, float | torch.Tensor] = {
            "q_value": q_value,
            "target_q_value": target_q_value,
            "td_error": (q_value - target_q_value).abs(),
        }
        if isinstance(self._online, RainbowNetwork) and self._policy.noisy:
            metrics[NOISE_SIGMA] = self._online.relative_sigma()
        return Loss(torch.dot(rows.weights, losses) / len(rows), metrics, losses.detach().clamp(min=0.0))

    @torch.no_grad()
    def _next_outputs(self, rows: Transitions) -> torch.Tensor:
        """The target network's outputs for the best legal action in the next observations: [n, atoms]."""
        outputs = self._target(rows.next_obs, self._noise)
        chooses = self._online(rows.next_obs, self._noise) if self._policy.double else outputs
        values = masked(self._distribution.expectation(chooses), rows.next_legal)
        return of_actions(outputs, values.argmax(dim=1))

    # --- parts

    def _draw(self, like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=self._generator, device=like.device)


class PortableRainbow(Portable):
    """Takes the action of the highest expected return, in `sample` with noise in the weights."""

    def __init__(
        self,
        network: nn.Module,
        observation: ObservationSpec,
        action: ActionSpec,
        epsilon: float,
        distribution: ReturnDistribution,
    ) -> None:
        super().__init__(network, observation, action, "q_values", exploration=epsilon)
        self._distribution = distribution

    def outputs(self, seen: torch.Tensor) -> torch.Tensor:
        """Expected return of each action."""
        return self._distribution.expectation(self.network(seen))

    def exploring(self, seen: torch.Tensor) -> torch.Tensor:
        """Expected returns with noise in the weights of noisy layers, as in collectors."""
        return self._distribution.expectation(self.network(seen, torch.randn_like))


def of_actions(outputs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Select the outputs of one action per row: [n, actions, atoms], indices [n] -> [n, atoms]."""
    return outputs.gather(1, action.view(-1, 1, 1).expand(-1, 1, outputs.shape[2])).squeeze(1)
