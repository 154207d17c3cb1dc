"""Deep Q-learning, the learning side (Mnih et al. 2015): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.acting import layout, number_of_actions
from remuda.policy.algorithms.dqn.q_values import q_values
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.networks.adam import Adam
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.parts import features_of
from remuda.policy.networks.portable import PortableQ
from remuda.policy.networks.precision import Products
from remuda.policy.networks.tensors import model_misfits, to_tensor
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec


def huber(error: torch.Tensor) -> torch.Tensor:
    """Half the square of an error up to 1, and linear beyond: error² / 2, and |error| - 1/2."""
    within = error.clamp(-1.0, 1.0)
    return within * (error - within / 2)


def huber_slope(error: torch.Tensor) -> torch.Tensor:
    """The derivative of `huber`."""
    return error.clamp(-1.0, 1.0)


class Dqn(Algorithm):
    """Learns action values by bootstrapping from a target network.

    Double (van Hasselt et al. 2016) and dueling (Wang et al. 2016) as configured; n-step returns come with the rows,
    and prioritized replay (Schaul et al. 2016) with the weights.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, DqnConfig), config.policy.type
        self.observation, self.action = observation, action
        self._policy, self._learner = config.policy, config.learner
        self._device = torch.device(config.learner.device)
        self._online, self._target = self._make_network(seed), self._make_network(seed)
        self.network = self._online
        self._parameters, self._target_parameters = FlatParameters(self._online), FlatParameters(self._target)
        self.products = Products(self._device)
        self._online_values = q_values(self._online, self._parameters, self.products)
        self._target_values = q_values(self._target, self._target_parameters)
        self._optimizer = Adam(
            self._parameters.vector.detach(),
            self._parameters.gradient,
            learning_rate=config.learner.learning_rate,
        )
        self._updates = 0

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

        target = reward + discount * self._next_value(next_obs)
        values, backward = self._online_values.vjp(obs)
        q_value = values.gather(1, action).squeeze(1)
        error = q_value - target
        loss = (weights * huber(error)).mean()

        gradient = weights * huber_slope(error) / len(error)
        backward(torch.zeros_like(values).scatter_(1, action, gradient.unsqueeze(1)))
        self.ranks.average(len(error), self._parameters.gradient, loss)
        grad_norm = self._parameters.clip_gradient(self._learner.max_grad_norm)
        self._optimizer.step()
        self._updates += 1
        if self._updates % self._policy.target_update_iters == 0:
            self._target_parameters.vector.copy_(self._parameters.vector)

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

    def _next_value(self, next_obs: torch.Tensor) -> torch.Tensor:
        """The target network's value of the next observations: [n]."""
        values = self._target_values(next_obs)
        if not self._policy.double:
            return values.amax(dim=1)
        best = self._online_values(next_obs).argmax(dim=1, keepdim=True)
        return values.gather(1, best).squeeze(1)

    # --- state

    def state(self) -> dict[str, object]:
        """See Algorithm; the optimizer's moments are vectors over all parameters, in the model's order."""
        return {
            "model": dict(self._online.state_dict()),
            "target_model": dict(self._target.state_dict()),
            "optimizer": self._optimizer.state(),
            "schedules": {"updates": self._updates},
        }

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Algorithm. The learning rate is the config's: there is no schedule that the state could continue."""
        problems = model_misfits(self._online, state, "model") + model_misfits(self._online, state, "target_model")
        problems += self._optimizer.misfits(state.get("optimizer"))
        schedules = cast("Mapping[str, object]", state.get("schedules") or {})
        updates = schedules.get("updates")
        if not isinstance(updates, int):
            problems.append("schedules: missing updates")
        if problems:
            raise StateMismatchError(problems)
        self._online.load_state_dict(cast("dict[str, torch.Tensor]", state["model"]))
        self._target.load_state_dict(cast("dict[str, torch.Tensor]", state["target_model"]))
        self._optimizer.load_state(cast("Mapping[str, object]", state["optimizer"]))
        self._updates = cast("int", updates)

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Start both networks from a saved model."""
        problems = model_misfits(self._online, state, "model")
        if problems:
            raise StateMismatchError(problems)
        self._online.load_state_dict(cast("dict[str, torch.Tensor]", state["model"]))
        self._target_parameters.vector.data.copy_(self._parameters.vector.data)

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy the online network to the host, in one transfer."""
        return self._parameters.snapshot()

    # --- parts

    def _make_network(self, seed: int) -> QNetwork:
        with torch.random.fork_rng(devices=[]):  # the seed decides the weights and nothing else in the process
            torch.manual_seed(seed)
            actions = number_of_actions(self.action)
            image, hidden = layout(self._policy, self.observation)
            network = QNetwork(
                features_of(self.observation, image), actions, hidden, dueling=self._policy.dueling, image=image
            )
        return network.to(self._device)
