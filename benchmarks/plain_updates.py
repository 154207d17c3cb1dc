"""Updates as a plain torch loop writes them: autograd, separate parameters, and Adam of torch.optim in its fused form.

The same networks, losses and clipping as in `policy/algorithms`, without metrics and priorities.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch.distributions import Categorical, Normal
from torch.nn.functional import smooth_l1_loss

from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.distributions import LOG_STD_MAX, LOG_STD_MIN
from remuda.policy.algorithms.actor_critic.ppo import Ppo
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.algorithms.twin_critics.learning import TwinCriticNetwork, values_of
from remuda.policy.algorithms.twin_critics.sac import Sac
from remuda.policy.algorithms.twin_critics.td3 import Td3
from remuda.policy.base import Algorithm
from remuda.policy.networks.torch_networks import ActorCriticNetwork

Columns = dict[str, torch.Tensor]


class Plain(Protocol):
    """An update rule."""

    def learn(self, batch: Mapping[str, np.ndarray]) -> int:
        """Learn from a batch of columns [n, …]; return the number of gradient updates."""
        ...


def plain(config: ExperimentConfig, algorithm: Algorithm) -> Plain | None:
    """Make the plain update of an algorithm, with a copy of its network; None if this file has none."""
    kinds: Mapping[type, Callable[[ExperimentConfig, torch.nn.Module], Plain]] = {
        Dqn: PlainDqn,
        Ppo: PlainPpo,
        Sac: PlainSac,
        Td3: PlainTd3,
    }
    make = kinds.get(type(algorithm))
    # Networks compute by torch's own modules unless they train.
    return None if make is None else make(config, copy.deepcopy(algorithm.network).eval())


class _Learner:
    """Device and steps of the optimizers."""

    def __init__(self, config: ExperimentConfig, network: torch.nn.Module) -> None:
        self._learner, self._device = config.learner, next(network.parameters()).device

    def _columns(self, batch: Mapping[str, np.ndarray]) -> Columns:
        columns = {name: torch.from_numpy(column).to(self._device) for name, column in batch.items()}
        return {name: column.float() if column.dtype is torch.float64 else column for name, column in columns.items()}

    def _adam(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Adam:
        return torch.optim.Adam(parameters, lr=self._learner.learning_rate, fused=True)

    def _descend(self, optimizer: torch.optim.Adam, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if self._learner.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], self._learner.max_grad_norm)
        optimizer.step()


class PlainDqn(_Learner):
    """Learns in place what `network` values actions at."""

    def __init__(self, config: ExperimentConfig, network: torch.nn.Module) -> None:
        super().__init__(config, network)
        assert isinstance(config.policy, DqnConfig), config.policy.type
        self._policy = config.policy
        self._online, self._target = network, copy.deepcopy(network)
        self._optimizer = self._adam(network.parameters())
        self._updates = 0

    def learn(self, batch: Mapping[str, np.ndarray]) -> int:
        """See Plain."""
        columns = self._columns(batch)
        action = columns["action"].unsqueeze(1)
        with torch.no_grad():
            values = self._target(columns["next_obs"])
            if self._policy.double:
                best = self._online(columns["next_obs"]).argmax(dim=1, keepdim=True)
                bootstrap = values.gather(1, best).squeeze(1)
            else:
                bootstrap = values.amax(dim=1)
            target = columns["reward"] + columns["discount"] * bootstrap
        q_value = self._online(columns["obs"]).gather(1, action).squeeze(1)
        loss = (columns["weights"] * smooth_l1_loss(q_value, target, reduction="none")).mean()
        self._descend(self._optimizer, loss)
        self._updates += 1
        if self._updates % self._policy.target_update_iters == 0:
            self._target.load_state_dict(self._online.state_dict())
        return 1


class _PlainTwinCritics(_Learner):
    """Actor and critics, with a target network that follows."""

    def __init__(self, config: ExperimentConfig, network: torch.nn.Module) -> None:
        super().__init__(config, network)
        assert isinstance(config.policy, SacConfig | Td3Config), config.policy.type
        self._share = config.policy.target_share
        self._network = cast("TwinCriticNetwork", network)
        self._target = copy.deepcopy(self._network)
        self._of_actor = self._adam(self._network.actor.parameters())
        self._of_critics = self._adam(self._network.critics.parameters())
        self._updates = 0

    def _learn_values(self, columns: Columns, next_value: torch.Tensor) -> None:
        target = columns["reward"] + columns["discount"] * next_value
        values = values_of(self._network.critics, columns["obs"], columns["action"])
        self._descend(self._of_critics, ((values - target).square() * columns["weights"]).mean(dim=1).sum())

    def _follow(self) -> None:
        with torch.no_grad():
            own: list[torch.Tensor] = [*self._target.parameters()]
            theirs: list[torch.Tensor] = [*self._network.parameters()]
            torch._foreach_lerp_(own, theirs, self._share)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


class PlainTd3(_PlainTwinCritics):
    """TD3, for a Box."""

    def __init__(self, config: ExperimentConfig, network: torch.nn.Module) -> None:
        super().__init__(config, network)
        assert isinstance(config.policy, Td3Config), config.policy.type
        self._policy = config.policy

    def learn(self, batch: Mapping[str, np.ndarray]) -> int:
        """See Plain."""
        columns, clip = self._columns(batch), self._policy.target_noise_clip
        with torch.no_grad():
            smoothing = (self._policy.target_noise * torch.randn_like(columns["action"])).clamp(-clip, clip)
            action = (self._target(columns["next_obs"]).tanh() + smoothing).clamp(-1.0, 1.0)
            next_value = self._target.smaller_value(columns["next_obs"], action).squeeze(1)
        self._learn_values(columns, next_value)
        self._updates += 1
        if self._updates % self._policy.policy_delay == 0:
            action = self._network(columns["obs"]).tanh()
            self._descend(self._of_actor, -values_of(self._network.critics, columns["obs"], action)[0].mean())
            self._follow()
        return 1


class PlainSac(_PlainTwinCritics):
    """SAC with a learned temperature, for a Box."""

    def __init__(self, config: ExperimentConfig, network: torch.nn.Module) -> None:
        super().__init__(config, network)
        temperature = self._network.log_temperature
        assert temperature is not None
        self._temperature, self._of_temperature = temperature, self._adam([temperature])

    def learn(self, batch: Mapping[str, np.ndarray]) -> int:
        """See Plain."""
        columns = self._columns(batch)
        alpha = self._temperature.detach().exp()
        with torch.no_grad():
            action, log_prob = self._drawn(columns["next_obs"])
            next_value = self._target.smaller_value(columns["next_obs"], action).squeeze(1) - alpha * log_prob
        self._learn_values(columns, next_value)
        action, log_prob = self._drawn(columns["obs"])
        value = self._network.smaller_value(columns["obs"], action).squeeze(1)
        self._descend(self._of_actor, (alpha * log_prob - value).mean())
        surplus = -log_prob.detach().mean() + action.shape[1]
        self._descend(self._of_temperature, (self._temperature * surplus).sum())
        self._follow()
        return 1

    def _drawn(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self._network(observations).chunk(2, dim=1)
        normal: Any = Normal(mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp(), validate_args=False)
        before: torch.Tensor = normal.rsample()
        action = before.tanh()
        return action, (normal.log_prob(before) - torch.log(1.0 - action.square() + 1e-6)).sum(dim=1)


class PlainPpo(_Learner):
    """PPO on one observation per step: advantages, then minibatches."""

    def __init__(self, config: ExperimentConfig, network: torch.nn.Module) -> None:
        super().__init__(config, network)
        assert isinstance(config.policy, PpoConfig), config.policy.type
        self._policy, self._network = config.policy, cast("ActorCriticNetwork", network)
        self._optimizer = self._adam(network.parameters())

    def learn(self, batch: Mapping[str, np.ndarray]) -> int:
        """See Plain."""
        columns, valid = self._columns(batch), torch.from_numpy(batch["valid"])
        seen = self._network.normalised(columns["obs"].flatten(0, 1))
        advantages, returns = self._advantages(columns, self._network.values(seen).view(len(valid), -1))
        kept = torch.nonzero(valid.flatten()).squeeze(1).to(self._device)
        of_steps = seen.view(*columns["obs"].shape)[:, :-1].flatten(0, 1)[kept]
        action, log_prob = (columns[name].flatten(0, 1)[kept] for name in ("action", "log_prob"))
        advantages, returns = advantages.flatten()[kept], returns.flatten()[kept]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        updates = 0
        for _ in range(self._policy.epochs):
            order = torch.randperm(len(kept), device=self._device)
            for part in order.tensor_split(self._policy.minibatches):
                self._step(of_steps[part], action[part], log_prob[part], advantages[part], returns[part])
                updates += 1
        return updates

    def _advantages(self, columns: Columns, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        policy = self._policy
        bootstrap = values[:, 1:] * ~columns["terminated"]
        errors = columns["reward"] + policy.discount * bootstrap - values[:, :-1]
        decay = policy.discount * policy.gae_lambda * ~columns["done"]
        advantages = errors.clone()
        for t in range(errors.shape[1] - 2, -1, -1):
            advantages[:, t] += decay[:, t] * advantages[:, t + 1]
        return advantages, advantages + values[:, :-1]

    def _step(
        self,
        seen: torch.Tensor,
        action: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        returns: torch.Tensor,
    ) -> None:
        policy, network = self._policy, self._network
        outputs, values = network.evaluate(seen)
        if network.log_std is None:
            likely: Any = Categorical(logits=outputs, validate_args=False)
            new, entropy = likely.log_prob(action), likely.entropy()
        else:
            normal: Any = Normal(outputs, network.log_std.exp().expand_as(outputs), validate_args=False)
            new, entropy = normal.log_prob(action).sum(dim=1), normal.entropy().sum(dim=1)
        ratio = (new - log_prob).exp()
        clipped = ratio.clamp(1.0 - policy.clip, 1.0 + policy.clip)
        of_policy = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        of_values = (values - returns).square().mean()
        total = of_policy + policy.value_coefficient * of_values - policy.entropy_coefficient * entropy.mean()
        self._descend(self._optimizer, total)
