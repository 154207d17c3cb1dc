"""Deep Q-learning, the learning side (Mnih et al. 2015): the network and the update rule on one page."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from remuda.config.algorithms.q_learning import DqnConfig, MunchausenConfig, PqnConfig, QLearningConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.entry import (
    PQN_HIDDEN,
    REWARDS,
    VALUE_METRICS,
    hidden_layers,
    number_of_actions,
    recurrent_layout,
)
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import Network, Transitions, VectorLearner
from remuda.policy.networks.custom import CustomValues, reads
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.tensors import masked, weights_from
from remuda.policy.networks.torch_networks import QNetwork, RewardScale, RunningMoments
from remuda.policy.spaces import ActionSpec, ObservationSpec


class QLearner(VectorLearner[Network]):
    """Learns action values, with a periodic copy as target network."""

    def __init__(
        self,
        config: ExperimentConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        seed: int,
        make: Callable[[], Network],
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        """`make` makes the network, with weights drawn with `seed`."""
        assert isinstance(config.policy, QLearningConfig), config.policy.type
        with weights_from(seed):
            online = make().to(config.learner.device)
        self._settings, self._target = config.policy, copy.deepcopy(online)
        super().__init__(config, observation, action, online=online, target=self._target, generator=generator)
        self._target_parameters = FlatParameters(self._target)

    def _learned(self, loss: Loss, rows: int) -> LearnResult:
        """Take a step on a loss, a mean over `rows` rows."""
        total = loss.total.detach()
        grad_norm = self._descend(loss.total, rows, total)
        self._updates += 1
        if self._updates % self._settings.target_update_iters == 0:
            self._copy_to_target()
        metrics = {"cur_lr": self._learner.learning_rate, "total_loss": total, **loss.metrics, "grad_norm": grad_norm}
        return LearnResult(metrics, loss.priorities)

    def _copy_to_target(self) -> None:
        self._target_parameters.vector.data.copy_(self._parameters.vector.data)
        for kept, buffer in zip(self._target.buffers(), self._online.buffers(), strict=True):
            kept.copy_(buffer)


HIDDEN = (128, 128, 64)
"""Default units of DQN's hidden layers."""


def make_network(
    config: DqnConfig | PqnConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> nn.Module:
    """Make a network with weights from torch's generator. Raises UnsupportedSpaceError, and UserCodeError for a user's
    encoder or network, whose module is looked up in `source_dir`."""
    network = _network(config, observation, action, source_dir)
    if config.normalize_rewards:
        _head(network).add_module(REWARDS, RunningMoments(1))
    return network


def _head(network: nn.Module) -> nn.Module:
    return network.head if isinstance(network, RecurrentNetwork) else network


def _network(
    config: DqnConfig | PqnConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> nn.Module:
    actions = number_of_actions(config, action)
    if config.network is not None:
        return CustomValues(config, observation, action, source_dir, shape=(actions,), output="values")
    trunk, features = reads(config, observation, source_dir)
    if isinstance(config, PqnConfig):
        hidden = hidden_layers(config, observation, default=PQN_HIDDEN)
        if config.recurrent is not None:
            layout = recurrent_layout(config, observation)
            head = QNetwork(layout.units, actions, hidden[-1:], dueling=False, layer_norm=config.layer_norm)
            return RecurrentNetwork(layout, head, features, trunk)
        return QNetwork(features, actions, hidden, dueling=False, layer_norm=config.layer_norm, trunk=trunk)
    hidden = hidden_layers(config, observation, default=HIDDEN)
    return QNetwork(features, actions, hidden, dueling=config.dueling, trunk=trunk)


def reward_scale(network: nn.Module) -> RewardScale | None:
    """The scale of rewards by the moments in a network of `make_network`; None without `normalize_rewards`."""
    moments = next((part for part in _head(network).children() if isinstance(part, RunningMoments)), None)
    return None if moments is None else RewardScale(moments)


def in_own_rewards(
    metrics: Mapping[str, float | torch.Tensor], scale: RewardScale | None
) -> dict[str, float | torch.Tensor]:
    """Metrics of values in the environment's own rewards."""
    std = 1.0 if scale is None else scale.std
    return {name: value * std if name in VALUE_METRICS else value for name, value in metrics.items()}


def huber(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Half the squared error up to 1, and linear beyond: [n]. torch's own function checks shapes first, which takes as
    long as the computation."""
    losses: torch.Tensor = torch.ops.aten.smooth_l1_loss(values, targets, 0)
    return losses


def soft_value(values: torch.Tensor, temperature: float) -> torch.Tensor:
    """Value of the policy softmax(values / temperature) with its entropy times the temperature: [n, actions] -> [n]."""
    return temperature * (values / temperature).logsumexp(dim=1)


def munchausen_bonus(config: MunchausenConfig, values: torch.Tensor, rows: Transitions) -> torch.Tensor:
    """Share of temperature * log probability of the taken actions, at least -1 (Vieillard et al. 2020, M-DQN).

    Args:
        config: `munchausen_share` is not null.
        values: the target network's values of `rows.obs`, float32 [n, actions].
        rows: n rows; a row of several steps gets the bonus of its first step.

    Returns:
        float32 [n].
    """
    assert config.munchausen_share is not None
    chosen = values.gather(1, rows.action.unsqueeze(1)).squeeze(1)
    scaled = chosen - soft_value(masked(values, rows.legal), config.munchausen_temperature)
    return config.munchausen_share * scaled.clamp(-1.0, 0.0)


class Dqn(QLearner[nn.Module]):
    """Learns action values by bootstrapping from a target network.

    Double (van Hasselt et al. 2016), dueling (Wang et al. 2016) and Munchausen (Vieillard et al. 2020) as configured;
    n-step returns come with the rows, and prioritized replay (Schaul et al. 2016) with the weights.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, DqnConfig), config.policy.type
        self._policy = config.policy
        make = partial(make_network, config.policy, observation, action, config.source_dir)
        super().__init__(config, observation, action, seed, make)
        self._rewards = reward_scale(self._online)

    def portable(self) -> Portable:
        epsilon, rewards = self._policy.epsilon_end, self._rewards
        return Portable(self._online, self.observation, self.action, "q_values", exploration=epsilon, rewards=rewards)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one optimizer step on `loss`."""
        if self._rewards is not None:
            batch = {**batch, "reward": self._rewards.of_rows(self.ranks, batch)}
        rows = Transitions.of(batch, self.observation, self.action, self._device, as_vector=False)
        loss = self.loss(rows)
        return self._learned(replace(loss, metrics=in_own_rewards(loss.metrics, self._rewards)), len(rows))

    # --- the update rule

    def loss(self, rows: Transitions) -> Loss:
        """The weighted mean of the Huber loss of the temporal difference errors."""
        with torch.no_grad():
            target = self.reward(rows) + rows.discount * self.next_value(rows)
        q_value = self._online(rows.obs).gather(1, rows.action.unsqueeze(1)).squeeze(1)
        loss = torch.dot(rows.weights, huber(q_value, target)) / len(rows)
        values = q_value.detach()
        td_error = (values - target).abs()
        return Loss(loss, {"q_value": values, "target_q_value": target, "td_error": td_error}, td_error)

    def reward(self, rows: Transitions) -> torch.Tensor:
        """The reward of each row, with the Munchausen bonus if any: [n]."""
        if self._policy.munchausen_share is None:
            return rows.reward
        return rows.reward + munchausen_bonus(self._policy, self._target(rows.obs), rows)

    def next_value(self, rows: Transitions) -> torch.Tensor:
        """The target network's value of the best legal action in the next observations: [n]. Munchausen: the soft
        value."""
        values: torch.Tensor = self._target(rows.next_obs)
        if self._policy.munchausen_share is not None:
            return soft_value(masked(values, rows.next_legal), self._policy.munchausen_temperature)
        if not self._policy.double:
            return masked(values, rows.next_legal).amax(dim=1)
        best = masked(self._online(rows.next_obs), rows.next_legal).argmax(dim=1, keepdim=True)
        return values.gather(1, best).squeeze(1)
