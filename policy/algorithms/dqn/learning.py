"""Deep Q-learning, the learning side (Mnih et al. 2015): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np
import torch

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.acting import HIDDEN
from remuda.policy.algorithms.dqn.q_values import q_values
from remuda.policy.algorithms.q_learner import QLearner
from remuda.policy.algorithms.q_policy import layout, number_of_actions
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.masking import legal_in, masked
from remuda.policy.networks.parts import features_of
from remuda.policy.networks.portable import PortableQ
from remuda.policy.networks.precision import Products
from remuda.policy.networks.tensors import to_tensor, weights_from
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec


def huber(error: torch.Tensor) -> torch.Tensor:
    """Half the square of an error up to 1, and linear beyond: error² / 2, and |error| - 1/2."""
    within = error.clamp(-1.0, 1.0)
    return within * (error - within / 2)


def huber_slope(error: torch.Tensor) -> torch.Tensor:
    """The derivative of `huber`."""
    return error.clamp(-1.0, 1.0)


class Dqn(QLearner[QNetwork]):
    """Learns action values by bootstrapping from a target network.

    Double (van Hasselt et al. 2016) and dueling (Wang et al. 2016) as configured; n-step returns come with the rows,
    and prioritized replay (Schaul et al. 2016) with the weights.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, DqnConfig), config.policy.type
        self._policy = config.policy
        online, target = (_network(config, observation, action, seed) for _ in range(2))
        super().__init__(config, observation, action, online=online, target=target)
        self.products = Products(self._device)
        self._online_values = q_values(online, self._parameters, self.products)
        self._target_values = q_values(target, self._target_parameters)

    def portable(self) -> PortableQ:
        """See Algorithm."""
        return PortableQ(self._online, self.observation, self.action, epsilon=self._policy.epsilon_end)

    # --- the update rule

    @torch.no_grad()
    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of Adam down the weighted Huber loss of the temporal difference errors."""
        obs, next_obs = (to_tensor(self.observation.encode(batch[name]), self._device) for name in ("obs", "next_obs"))
        indices = batch["action"].astype(np.int64, copy=False) - self.action.start
        action = to_tensor(indices, self._device).unsqueeze(1)
        reward, discount, weights = (to_tensor(batch[name], self._device) for name in ("reward", "discount", "weights"))

        target = reward + discount * self._next_value(next_obs, legal_in(batch, "next_legal", self._device))
        values, backward = self._online_values.vjp(obs)
        q_value = values.gather(1, action).squeeze(1)
        error = q_value - target
        loss = (weights * huber(error)).mean()

        gradient = weights * huber_slope(error) / len(error)
        backward(torch.zeros_like(values).scatter_(1, action, gradient.unsqueeze(1)))
        grad_norm = self._step(len(error), loss)

        td_error = error.abs()
        metrics: dict[str, float | torch.Tensor] = {
            "cur_lr": self._learner.learning_rate,
            "total_loss": loss,
            "q_value": q_value,
            "target_q_value": target,
            "td_error": td_error,
            "grad_norm": grad_norm,
        }
        return LearnResult(metrics, td_error)

    def _next_value(self, next_obs: torch.Tensor, legal: torch.Tensor | None) -> torch.Tensor:
        """The target network's value of the best `legal` action in the next observations: [n]."""
        values = self._target_values(next_obs)
        if not self._policy.double:
            return masked(values, legal).amax(dim=1)
        best = masked(self._online_values(next_obs), legal).argmax(dim=1, keepdim=True)
        return values.gather(1, best).squeeze(1)


def _network(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> QNetwork:
    assert isinstance(config.policy, DqnConfig), config.policy.type
    image, hidden = layout(config.policy, observation, default=HIDDEN)
    actions = number_of_actions(config.policy, action)
    with weights_from(seed):
        features = features_of(observation, image)
        network = QNetwork(features, actions, hidden, dueling=config.policy.dueling, image=image)
    return network.to(config.learner.device)
