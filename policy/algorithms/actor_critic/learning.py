"""The common parts of PPO and IMPALA besides their update rules: network, preparation of segments, and state."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.actor_critic.acting import PPO_MONITORED
from remuda.policy.algorithms.actor_critic.networks import RecurrentActorCritic, Unrolled, make_network
from remuda.policy.algorithms.actor_critic.segments import Seen, Segments
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.network_learner import NetworkLearner
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.normalisation import CLIP, Moments, running_returns
from remuda.policy.networks.optimizers.base import Optimizer
from remuda.policy.networks.optimizers.make import make_optimizer
from remuda.policy.networks.portable import PortableActorCritic
from remuda.policy.networks.precision import Products
from remuda.policy.networks.recurrence import begins_of
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.tensors import masked, to_tensor, weights_from
from remuda.policy.networks.torch_networks import ActorCriticNetwork
from remuda.policy.ranks import Ranks
from remuda.policy.returns import Outcome
from remuda.policy.spaces import ActionSpec, Numbers, ObservationSpec
from remuda.policy.torch_distributions import Distribution, Gaussian, categorical


class ActorCritic(NetworkLearner[ActorCriticNetwork | RecurrentActorCritic, Optimizer]):
    """Network, optimizer, normalisation and counters; a subclass has `loss` and `learn`.

    Observations are normalised in `learn` by the moments that the policy acted with, and only then are the moments
    brought up to date, so that a probability changes by learning alone. Rewards are scaled by the newest moments.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, PpoConfig | ImpalaConfig), config.policy.type
        self._shared, self._learner = config.policy, config.learner
        self._numbers: Numbers = observation.numbers(normalised=config.policy.normalize_observations)
        self._device = torch.device(config.learner.device)
        with weights_from(seed):
            network = make_network(config.policy, observation, action, config.source_dir).to(self._device)
        self._head = network.head if isinstance(network, RecurrentNetwork) else network
        self._reads = network.encoder if isinstance(network, RecurrentNetwork) else network
        self._parameters = FlatParameters(network)
        self.products = Products(self._device).reach(network) if config.policy.lowers_products else None
        optimizer = make_optimizer(config, self._parameters.part(""))
        super().__init__(observation, action, online=network, optimizer=optimizer)

    def portable(self) -> PortableActorCritic:
        """See Algorithm."""
        scaled = self._shared.normalize_rewards
        return PortableActorCritic(self._online, self.observation, self.action, scaled_rewards=scaled)

    # --- parts of an update

    def _prepare(self, batch: Arrays) -> Segments:
        """Encode, normalise and flatten a batch, and count it. The moments change with `_learned`."""
        valid, done = batch["valid"], batch["done"]
        segments, slots = valid.shape
        reward, scale = batch["reward"], 1.0
        if self._shared.normalize_rewards:
            sums = running_returns(reward, done, valid, batch["return_so_far"], discount=self._shared.discount)
            returns = self._head.returns.load().joined(Moments.of_all(self.ranks, sums[:, None]))
            self._head.returns.store(returns)
            scale = returns.scale[0]
            reward = (reward * scale).clip(-CLIP, CLIP).astype(np.float32)
        outcome = replace(Outcome.of(batch), reward=reward)
        seen = batch["obs"].reshape(segments * (slots + 1), *self.observation.shape)
        encoded = self.observation.encode(seen, self._numbers)
        segment, slot = np.nonzero(valid)
        steps = segment * (slots + 1) + slot
        counts = self.ranks.gather(np.array([len(steps)], np.float64))[:, 0]
        first, whole = int(counts[: self.ranks.rank].sum()), int(counts.sum())
        self._updates += 1
        with torch.no_grad():
            observations = self._reads.normalised(to_tensor(encoded, self._device))
        moments = self._reads.observations
        if self._shared.normalize_observations and moments is not None:  # after they were used, see the class
            moments.store(moments.load().joined(Moments.of_all(self.ranks, encoded[steps])))
        return Segments(
            self._in_order(observations, batch) if self._shared.recurrent else self._head.prepared(observations),
            outcome,
            to_tensor(steps, self._device),
            to_tensor(self._as_drawn(batch["action"][valid]), self._device),
            to_tensor(batch["log_prob"][valid], self._device),
            to_tensor(batch["legal"][:, :-1][valid], self._device) if "legal" in batch else None,
            scale,
            first,
            whole,
        )

    def _in_order(self, observations: torch.Tensor, batch: Arrays) -> Unrolled:
        """Observations [B * (T + 1), …] with what a recurrent network needs besides."""
        begins = begins_of(batch["valid"])
        return Unrolled(
            observations.reshape(*begins.shape, *observations.shape[1:]),
            to_tensor(batch["state"], self._device),
            to_tensor(begins, self._device),
        )

    def _as_drawn(self, actions: np.ndarray) -> np.ndarray:
        if not self.action.is_box:
            return self.action.indices(actions)
        return actions.reshape(len(actions), self.action.outputs).astype(np.float32, copy=False)

    def _distribution(self, outputs: torch.Tensor, legal: torch.Tensor | None) -> Distribution:
        """The policy's distribution over the legal actions [n, actions], given the network's outputs [n, outputs]."""
        if self._head.log_std is not None:
            return Gaussian(outputs, self._head.log_std)
        return categorical(masked(outputs, legal), self.action.counts)

    def _evaluate(self, seen: Seen) -> tuple[torch.Tensor, torch.Tensor]:
        """The policy's outputs [n, outputs] and the values [n] of prepared observations."""
        if isinstance(self._online, RecurrentNetwork):
            assert isinstance(seen, Unrolled)
            return self._online.evaluate(seen)
        assert isinstance(seen, torch.Tensor)
        return self._online.evaluate(seen)

    def _values(self, seen: Seen) -> torch.Tensor:
        """The values [n] alone, without a graph."""
        if isinstance(self._online, RecurrentNetwork):
            assert isinstance(seen, Unrolled)
            return self._online.values(seen)
        assert isinstance(seen, torch.Tensor)
        return self._online.values(seen)

    def _mean_entropy(self, entropies: torch.Tensor) -> torch.Tensor:
        """The mean entropy, which has a graph where it is a part of the loss."""
        return (entropies if self._shared.entropy_coefficient else entropies.detach()).mean()

    def _total(self, policy: torch.Tensor, value: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        """Weigh the parts of the loss."""
        total = torch.add(policy, value, alpha=self._shared.value_coefficient)
        coefficient = self._shared.entropy_coefficient
        return torch.sub(total, entropy, alpha=coefficient) if coefficient else total

    def _descend(self, total: torch.Tensor, rows: int, *means: torch.Tensor) -> torch.Tensor:
        """Take one step of the optimizer down a loss of so many actions; return the gradient's norm before clipping.

        `means` over the actions become those over the actions of all ranks.
        """
        self._parameters.backward(total)
        self.ranks.average(rows, self._parameters.gradient, *means)
        norm = self._parameters.clip_gradient(self._learner.max_grad_norm)
        self._optimizer.step()
        return norm

    def _result(
        self, losses: Sequence[torch.Tensor] = (), /, *, updates: int = 1, **metrics: float | torch.Tensor
    ) -> LearnResult:
        """The gradient updates done, and the metrics that there are, in the declared order."""
        if losses:
            metrics.update(zip(("total_loss", "policy_loss", "value_loss", "entropy"), losses, strict=True))
        metrics["cur_lr"] = self._optimizer.learning_rate
        told = {name: metrics[name] for name in PPO_MONITORED if name in metrics}
        return LearnResult(told, None, updates)

    # --- parts

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy parameters (in one transfer) and running moments to the host."""
        return self._parameters.snapshot()


def explained_variance(ranks: Ranks, values: NDArray[np.float32], targets: NDArray[np.float32]) -> float:
    """The share of the targets' variance, [n] in each rank, that the values predict: 1 all, 0 none; 0 if the targets do
    not vary."""
    moments = Moments.of_all(ranks, np.stack([targets, targets - values], axis=1))
    variance, left = moments.variance if moments.count else (0.0, 0.0)
    return 1.0 - float(left / variance) if variance > 0 else 0.0
