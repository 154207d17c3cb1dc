"""Rainbow, the learning side (Hessel et al. 2018): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import numpy as np
import torch

from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.rainbow.acting import layout, number_of_actions
from remuda.policy.algorithms.rainbow.distribution import return_distribution
from remuda.policy.algorithms.rainbow.network import Noise, RainbowNetwork
from remuda.policy.algorithms.rainbow.portable import PortableRainbow
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.networks.adam import Adam
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.parts import features_of
from remuda.policy.networks.precision import Products
from remuda.policy.networks.tensors import model_misfits, to_tensor
from remuda.policy.networks.trunks import reads_parts
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec


class Rainbow(Algorithm):
    """Learns the distribution of returns of each action, bootstrapping from a target network.

    C51 (Bellemare et al. 2017) or quantile regression (Dabney et al. 2018); double (van Hasselt et al. 2016), dueling
    (Wang et al. 2016) and noisy networks (Fortunato et al. 2018) as configured. n-step returns come with the rows, and
    prioritized replay (Schaul et al. 2016) with the weights; a row's priority is its loss.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, RainbowConfig), config.policy.type
        self.observation, self.action = observation, action
        self._policy, self._learner = config.policy, config.learner
        self._device = torch.device(config.learner.device)
        self._online, self._target = self._make_network(seed), self._make_network(seed)
        self.network = self._online
        self._parameters, self._target_parameters = FlatParameters(self._online), FlatParameters(self._target)
        self.products = Products(self._device)
        self._distribution = return_distribution(config.policy, self._device)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._noise: Noise = self._draw if config.policy.noisy else None
        self._optimizer = Adam(
            self._parameters.vector.detach(),
            self._parameters.gradient,
            learning_rate=config.learner.learning_rate,
            epsilon=config.policy.adam_epsilon,
        )
        self._updates = 0

    def portable(self) -> PortableRainbow:
        """See Algorithm."""
        epsilon = None if self._policy.noisy else self._policy.epsilon_end
        return PortableRainbow(self._online, self.observation, self.action, self._distribution, epsilon=epsilon)

    # --- the update rule

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of Adam down the weighted losses of the distributions."""
        obs, next_obs = (to_tensor(self.observation.encode(batch[name]), self._device) for name in ("obs", "next_obs"))
        action = to_tensor(batch["action"].astype(np.int64, copy=False) - self.action.start, self._device)
        reward, discount, weights = (to_tensor(batch[name], self._device) for name in ("reward", "discount", "weights"))

        target = self._distribution.target(self._next_outputs(next_obs), reward, discount)
        with self._precision():
            outputs = of_actions(self._online(obs, self._noise), action)
        losses = self._distribution.losses(outputs, target)
        loss = (weights * losses).mean()

        self._parameters.gradient.zero_()
        torch.autograd.backward(loss)
        loss, losses, outputs = loss.detach(), losses.detach(), outputs.detach()
        self.ranks.average(len(losses), self._parameters.gradient, loss)
        grad_norm = self._parameters.clip_gradient(self._learner.max_grad_norm)
        self._optimizer.step()
        self._updates += 1
        if self._updates % self._policy.target_update_iters == 0:
            self._target_parameters.vector.data.copy_(self._parameters.vector.data)

        q_value, target_q_value = self._distribution.expectation(outputs), self._distribution.target_expectation(target)
        metrics: dict[str, float | torch.Tensor] = {
            "cur_lr": self._learner.learning_rate,
            "total_loss": loss,
            "q_value": q_value,
            "target_q_value": target_q_value,
            "td_error": (q_value - target_q_value).abs(),
            "grad_norm": grad_norm,
        }
        return LearnResult(metrics, losses.clamp(min=0.0))

    @torch.no_grad()
    def _next_outputs(self, next_obs: torch.Tensor) -> torch.Tensor:
        """The target network's outputs for the best next action: [n, atoms]."""
        outputs = self._target(next_obs, self._noise)
        chooses = outputs
        if self._policy.double:
            with self._precision():
                chooses = self._online(next_obs, self._noise)
        return of_actions(outputs, self._distribution.expectation(chooses).argmax(dim=1))

    # --- state

    def state(self) -> dict[str, object]:
        """See Algorithm; the optimizer's moments are vectors over all parameters, in the model's order. The state of
        the noise is among the schedules."""
        return {
            "model": dict(self._online.state_dict()),
            "target_model": dict(self._target.state_dict()),
            "optimizer": self._optimizer.state(),
            "schedules": {"updates": self._updates, "noise": self._generator.get_state()},
        }

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Algorithm. The learning rate is the config's: there is no schedule that the state could continue."""
        problems = model_misfits(self._online, state, "model") + model_misfits(self._online, state, "target_model")
        problems += self._optimizer.misfits(state.get("optimizer"))
        schedules = cast("Mapping[str, object]", state.get("schedules") or {})
        updates, noise = schedules.get("updates"), schedules.get("noise")
        if not isinstance(updates, int):
            problems.append("schedules: missing updates")
        if not isinstance(noise, torch.Tensor) or noise.shape != self._generator.get_state().shape:
            problems.append("schedules: missing noise")
        if problems:
            raise StateMismatchError(problems)
        self._online.load_state_dict(cast("dict[str, torch.Tensor]", state["model"]))
        self._target.load_state_dict(cast("dict[str, torch.Tensor]", state["target_model"]))
        self._optimizer.load_state(cast("Mapping[str, object]", state["optimizer"]))
        self._updates = cast("int", updates)
        self._generator.set_state(cast("torch.Tensor", noise).cpu())

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Start both networks from a saved model."""
        super().load_weights(state)
        self._target_parameters.vector.data.copy_(self._parameters.vector.data)

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy the online network to the host, in one transfer."""
        return self._parameters.snapshot()

    # --- parts

    def _precision(self) -> AbstractContextManager[object]:
        """That of `learner.precision` for networks that read images alone; others are computed in float32."""
        assert self.products is not None
        exact = self._online.trunk is None or reads_parts(self._online)
        return nullcontext() if exact else self.products.of_modules()

    def _draw(self, like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=self._generator, device=like.device)

    def _make_network(self, seed: int) -> RainbowNetwork:
        with torch.random.fork_rng(devices=[]):  # the seed decides the weights and nothing else in the process
            torch.manual_seed(seed)
            image, hidden = layout(self._policy, self.observation)
            network = RainbowNetwork(
                features_of(self.observation, image),
                number_of_actions(self.action),
                self._policy.atoms,
                hidden,
                dueling=self._policy.dueling,
                noisy_sigma=self._policy.noisy_sigma if self._policy.noisy else None,
                image=image,
            )
        return network.to(self._device)


def of_actions(outputs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Those of one action per row: [n, actions, atoms], indices [n] -> [n, atoms]."""
    return outputs.gather(1, action.view(-1, 1, 1).expand(-1, 1, outputs.shape[2])).squeeze(1)
