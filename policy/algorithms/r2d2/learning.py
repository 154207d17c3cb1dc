"""R2D2, the learning side (Kapturowski et al. 2019): the network and the update rule on one page."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from remuda.config.algorithms.q_learning import R2d2Config
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.dqn.entry import number_of_actions
from remuda.policy.algorithms.dqn.learning import QLearner
from remuda.policy.algorithms.r2d2.entry import layout
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.networks.custom import reads
from remuda.policy.networks.layouts import begins_of
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.tensors import legal_in, masked, scaled, to_tensor, unscaled
from remuda.policy.networks.torch_networks import QNetwork
from remuda.policy.returns import Outcome, n_step_returns
from remuda.policy.spaces import ActionSpec, ObservationSpec

Network = RecurrentNetwork[QNetwork]


def make_network(
    config: R2d2Config, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> Network:
    """See remuda.policy.algorithms.dqn.learning."""
    laid_out, actions = layout(config, observation), number_of_actions(config, action)
    head = QNetwork(laid_out.units, actions, config.head_hidden, dueling=config.dueling)
    trunk, features = reads(config, observation, source_dir)
    return RecurrentNetwork(laid_out, head, features, trunk)


class R2d2(QLearner[Network]):
    """Learns action values of a recurrent network, with bootstraps from a target network.

    A sequence begins with the collector's state, which may be old. So both networks first unroll the burn-in, without
    learning from it. Then follow n-step double Q-learning on rescaled values, and priorities from the largest and the
    mean error of a sequence.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, R2d2Config), config.policy.type
        self._policy = config.policy
        make = partial(make_network, config.policy, observation, action, config.source_dir)
        super().__init__(config, observation, action, seed, make)

    def portable(self) -> Portable:
        kind = RescaledPortable if self._policy.value_rescaling else Portable
        return kind(self._online, self.observation, self.action, "q_values", exploration=self._policy.epsilon_end)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one optimizer step on `loss`."""
        return self._learned(self.loss(batch), len(batch["weights"]))

    # --- the update rule

    def loss(self, batch: Arrays) -> Loss:
        """Weighted mean of half the squared temporal difference errors, over the steps of each sequence."""
        burn_in, steps = self._policy.burn_in_steps, self._policy.sequence_steps
        learned, after = slice(burn_in, burn_in + steps), slice(burn_in + steps, None)
        observations, begins = self._observations(batch["obs"]), self._tensor(begins_of(batch["valid"]))
        indices = batch["action"][:, learned].astype(np.int64) - self.action.start
        action, valid = self._tensor(indices).unsqueeze(2), self._tensor(batch["valid"][:, learned])
        stored = self._tensor(batch["state"])
        with torch.no_grad():
            state, target_state = (
                network.unroll(observations[:, :burn_in], stored, begins[:, :burn_in])[1] if burn_in else stored
                for network in (self._online, self._target)
            )
        values, state = _values(self._online, observations[:, learned], state, begins[:, learned])
        with torch.no_grad():
            ahead, _ = _values(self._online, observations[:, after], state, begins[:, after])
            of_target, _ = _values(self._target, observations[:, burn_in:], target_state, begins[:, burn_in:])
            chooses = torch.cat((values, ahead), dim=1) if self._policy.double else of_target
            target = self._targets(batch, chooses, of_target)
        q_value = values.gather(2, action).squeeze(2)
        error = (target - q_value) * valid
        of_sequences = 0.5 * error.square().sum(1) / valid.sum(1).clamp(min=1)
        error = error.detach()
        counted = self._tensor(np.flatnonzero(batch["valid"][:, learned]))  # not by [valid], which waits for the device
        found, aimed, missed = (part.flatten().index_select(0, counted) for part in (q_value.detach(), target, error))
        metrics: dict[str, float | torch.Tensor] = {
            "q_value": self._unscaled(found),
            "target_q_value": self._unscaled(aimed),
            "td_error": missed.abs(),
        }
        priorities = sequence_priorities(error, valid, eta=self._policy.priority_eta)
        return Loss((self._tensor(batch["weights"]) * of_sequences).mean(), metrics, priorities)

    def _targets(self, batch: Arrays, chooses: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """n-step returns [B, steps] on the scale of the values, with bootstraps from `values` of the best legal actions
        by `chooses`, both [B, L + 1 - burn-in, actions]."""
        burn_in, steps = self._policy.burn_in_steps, self._policy.sequence_steps
        returns = n_step_returns(Outcome.of(batch), n_step=self._policy.n_step, discount=self._policy.discount)
        reward, length, discount = (self._tensor(column[:, burn_in : burn_in + steps]) for column in returns)
        legal = legal_in(batch, "legal", self._device)
        best = masked(chooses, None if legal is None else legal[:, burn_in:]).argmax(2, True)
        bootstraps = values.gather(2, best).squeeze(2).gather(1, length + self._tensor(np.arange(steps)))
        return self._scaled(reward + discount * self._unscaled(bootstraps))

    def _scaled(self, values: torch.Tensor) -> torch.Tensor:
        return scaled(values) if self._policy.value_rescaling else values

    def _unscaled(self, values: torch.Tensor) -> torch.Tensor:
        return unscaled(values) if self._policy.value_rescaling else values

    def _observations(self, seen: np.ndarray) -> torch.Tensor:
        """Encode observations [B, L + 1, …]."""
        encoded = self.observation.encode(seen.reshape(-1, *self.observation.shape))
        return self._tensor(encoded.reshape(*seen.shape[:2], *encoded.shape[1:]))

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return to_tensor(array, self._device)


def _values(
    network: Network, observations: torch.Tensor, state: torch.Tensor, begins: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the action values [B, steps, actions] of observations [B, steps, …] after a state; and the last state."""
    remembered, after = network.unroll(observations, state, begins)
    values: torch.Tensor = network.head(remembered.flatten(0, 1))
    return values.reshape(*remembered.shape[:2], -1), after


def sequence_priorities(errors: torch.Tensor, valid: torch.Tensor, *, eta: float) -> torch.Tensor:
    """Priorities float32 [B]: eta * max + (1 - eta) * mean of the absolute errors [B, T] over the `valid` steps,
    section 2.3 of the paper; 0 for a sequence without valid steps."""
    sizes = errors.abs() * valid
    mean = sizes.sum(1) / valid.sum(1).clamp(min=1)
    return eta * sizes.amax(1) + (1.0 - eta) * mean


class RescaledPortable(Portable):
    """A Portable whose network gives rescaled values."""

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        """In the environment's own rewards."""
        return unscaled(super().values(seen))
