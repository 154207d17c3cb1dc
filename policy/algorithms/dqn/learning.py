"""Deep Q-learning, the learning side (Mnih et al. 2015): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy

import torch
from torch import nn

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.network import make_network
from remuda.policy.algorithms.q_learner import QLearner
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.precision import Products
from remuda.policy.networks.tensors import masked, weights_from
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.policy.transitions import Transitions


def huber(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Half the square of each error up to 1, and linear beyond: [n]. torch's own function asks for the shapes first,
    which takes as long as the rest."""
    losses: torch.Tensor = torch.ops.aten.smooth_l1_loss(values, targets, 0)
    return losses


class Dqn(QLearner[nn.Module]):
    """Learns action values by bootstrapping from a target network.

    Double (van Hasselt et al. 2016) and dueling (Wang et al. 2016) as configured; n-step returns come with the rows,
    and prioritized replay (Schaul et al. 2016) with the weights.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, DqnConfig), config.policy.type
        self._policy = config.policy
        with weights_from(seed):
            online = make_network(config.policy, observation, action, config.source_dir).to(config.learner.device)
        target = copy.deepcopy(online)
        super().__init__(config, observation, action, online=online, target=target)
        self.products = Products(self._device).reach(online) if config.policy.lowers_products else None

    def portable(self) -> Portable:
        """See Algorithm."""
        return Portable(self._online, self.observation, self.action, "q_values", exploration=self._policy.epsilon_end)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of the optimizer down `loss`."""
        rows = Transitions.of(batch, self.observation, self.action, self._device, as_vector=False)
        return self._descend(self.loss(rows), len(rows))

    # --- the update rule

    def loss(self, rows: Transitions) -> Loss:
        """The weighted mean of the Huber loss of the temporal difference errors."""
        with torch.no_grad():
            target = rows.reward + rows.discount * self.next_value(rows)
        q_value = self._online(rows.obs).gather(1, rows.action.unsqueeze(1)).squeeze(1)
        loss = torch.dot(rows.weights, huber(q_value, target)) / len(rows)
        values = q_value.detach()
        td_error = (values - target).abs()
        return Loss(loss, {"q_value": values, "target_q_value": target, "td_error": td_error}, td_error)

    def next_value(self, rows: Transitions) -> torch.Tensor:
        """The target network's value of the best legal action in the next observations: [n]."""
        values: torch.Tensor = self._target(rows.next_obs)
        if not self._policy.double:
            return masked(values, rows.next_legal).amax(dim=1)
        best = masked(self._online(rows.next_obs), rows.next_legal).argmax(dim=1, keepdim=True)
        return values.gather(1, best).squeeze(1)
