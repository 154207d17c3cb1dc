"""The common learning side of PPO and IMPALA: network, preparation of segments, and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.actor_critic.entries import PPO_METRICS, network_shape, recurrent_layout
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.network_learner import VectorLearner
from remuda.policy.networks.custom import ActorAndCritic, reads
from remuda.policy.networks.layouts import begins_of
from remuda.policy.networks.normalisation import Moments
from remuda.policy.networks.portable import PortableActorCritic
from remuda.policy.networks.recurrent_networks import RecurrentNetwork, Unrolled
from remuda.policy.networks.tensors import masked, to_tensor, weights_from
from remuda.policy.networks.torch_networks import ActorCriticNetwork, PolicyAndValue, RewardScale
from remuda.policy.ranks import Ranks
from remuda.policy.returns import Floats, Outcome
from remuda.policy.spaces import ActionSpec, Numbers, ObservationSpec
from remuda.policy.torch_distributions import Distribution, Gaussian, categorical


class RecurrentActorCritic(RecurrentNetwork[ActorCriticNetwork]):
    """A recurrent network of policy and value."""

    def evaluate(self, segments: Unrolled) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the policy's outputs [n, outputs] and the values [n] of the requested observations."""
        return self.head.evaluate(self.remembered(segments))

    @torch.no_grad()
    def values(self, segments: Unrolled) -> torch.Tensor:
        """The values [n] alone, without a graph."""
        return self.evaluate(segments)[1]


def make_network(
    config: PpoConfig | ImpalaConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> ActorCriticNetwork | RecurrentActorCritic:
    """See remuda.policy.algorithms.dqn.learning."""
    shape, outputs = network_shape(config, observation), action.outputs
    log_std = [config.log_std_start] * outputs if action.is_box else None
    normalizes = config.normalize_observations
    if config.network is not None:
        own = ActorAndCritic.made(config, observation, action, source_dir, outputs=outputs)
        parts = PolicyAndValue(nn.Sequential(own.encoder), own.actor, own.critic)
        return ActorCriticNetwork(parts, log_std=log_std, numbers=shape.numbers, normalizes=normalizes)
    trunk, features = reads(config, observation, source_dir)
    if config.recurrent is not None:
        layout = recurrent_layout(config, observation)
        parts = PolicyAndValue.perceptrons(layout.units, outputs, (), activation=shape.activation)
        head = ActorCriticNetwork(parts, log_std=log_std, numbers=layout.units, normalizes=False)
        return RecurrentActorCritic(layout, head, features, trunk)
    parts = PolicyAndValue.perceptrons(
        features, outputs, shape.hidden, activation=shape.activation, shared=shape.shared, trunk=trunk
    )
    return ActorCriticNetwork(parts, log_std=log_std, numbers=shape.numbers, normalizes=normalizes)


Seen = torch.Tensor | Unrolled
"""Single observations [n, …], or segments to unroll."""


@dataclass(frozen=True)
class Segments:
    """A batch of B segments of T slots with n valid slots, prepared for an update."""

    observations: Seen
    """float32 [B * (T + 1), features], normalised; or bytes of images, [B * (T + 1), …]; for recurrent networks, to be
    unrolled."""
    outcome: Outcome
    """[B, T] each; rewards are scaled."""
    steps: torch.Tensor
    """int64 [n]: indices of the observations before the valid actions."""
    actions: torch.Tensor
    """Indices int64 [n], or [n, components] of several; or numbers float32 [n, outputs]."""
    log_prob: torch.Tensor
    """float32 [n]: log probabilities by the acting policy."""
    legal: torch.Tensor | None
    """bool [n, actions]: legal actions; None: all were legal."""
    reward_std: float
    """Divisor of the environment's rewards; values are divided likewise."""
    first: int
    """Number of valid slots in the parts of lower ranks."""
    whole: int
    """Number of valid slots in the whole batch, over all ranks."""

    @property
    def of_steps(self) -> Seen:
        """The observations of the valid slots."""
        if isinstance(self.observations, Unrolled):
            return replace(self.observations, steps=self.steps)
        return self.observations.index_select(0, self.steps)  # for images several times as fast as by [ ]

    def per_slot(self, values: torch.Tensor) -> NDArray[np.float32]:
        """Values [B * (T + 1)] of the observations as float32 [B, T + 1] on the host."""
        array: NDArray[np.float32] = values.detach().cpu().numpy()
        return array.reshape(len(self.outcome.valid), -1)


class Losses(NamedTuple):
    """Loss of an update and its parts: policy + value_coefficient * value - entropy_coefficient * entropy."""

    total: torch.Tensor
    """A scalar with its graph, as `policy`, `value` and `entropy` are. Means over the actions."""
    policy: torch.Tensor
    value: torch.Tensor
    entropy: torch.Tensor
    log_ratio: torch.Tensor
    """float32 [n]: log ratio of learning policy to acting policy per action. PPO's has a graph, for variants with other
    restraints."""
    values: torch.Tensor
    """float32 [n]: values of the observations before the actions; `targets` likewise."""
    targets: torch.Tensor
    advantages: torch.Tensor
    """float32 [n]: advantages of the actions, in the policy's loss."""
    metrics: Mapping[str, torch.Tensor] = MappingProxyType({})
    """Further metrics of a variant, which its declaration has among `monitored`: scalars, means over the actions."""

    @property
    def means(self) -> dict[str, torch.Tensor]:
        """The four losses and further metrics, by the names in logs, without a graph."""
        named = zip(("total_loss", "policy_loss", "value_loss", "entropy"), self[:4], strict=True)
        return {name: mean.detach() for name, mean in (*named, *self.metrics.items())}


class ActorCritic(VectorLearner[ActorCriticNetwork | RecurrentActorCritic]):
    """Network, optimizer, normalisation and counters; a subclass defines `loss` and `learn`.

    `learn` normalises observations by the moments of the acting policy, and updates the moments only afterwards, so
    that probabilities change by learning alone. Rewards are scaled by the newest moments.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        assert isinstance(config.policy, PpoConfig | ImpalaConfig), config.policy.type
        self._shared = config.policy
        self._numbers: Numbers = observation.numbers(normalised=config.policy.normalize_observations)
        with weights_from(seed):
            network = make_network(config.policy, observation, action, config.source_dir)
        super().__init__(config, observation, action, online=network.to(config.learner.device))
        self._head = network.head if isinstance(network, RecurrentNetwork) else network
        self._reads = network.encoder if isinstance(network, RecurrentNetwork) else network
        if config.policy.normalize_rewards:
            self._rewards = RewardScale(self._head.returns)

    def portable(self) -> PortableActorCritic:
        return PortableActorCritic(self._online, self.observation, self.action, self._rewards)

    # --- parts of an update

    def _prepare(self, batch: Arrays) -> Segments:
        """Encode, normalise and flatten a batch, update the moments, and count the update."""
        valid = batch["valid"]
        segments, slots = valid.shape
        outcome = Outcome.of(batch)
        if self._rewards is not None:
            scaled = self._rewards.of_segments(self.ranks, batch, discount=self._shared.discount)
            outcome = replace(outcome, reward=scaled)
        seen = batch["obs"].reshape(segments * (slots + 1), *self.observation.shape)
        encoded = self.observation.encode(seen, self._numbers)
        segment, slot = np.nonzero(valid)
        steps = segment * (slots + 1) + slot
        first, whole = self._span(len(steps))
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
            1.0 if self._rewards is None else self._rewards.std,
            first,
            whole,
        )

    def _in_order(self, observations: torch.Tensor, batch: Arrays) -> Unrolled:
        """Arrange observations [B * (T + 1), …] for a recurrent network, with states and begins of episodes."""
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
        return cast("Callable[[Seen], tuple[torch.Tensor, torch.Tensor]]", self._online.evaluate)(seen)

    def _values(self, seen: Seen) -> torch.Tensor:
        """The values [n] alone, without a graph."""
        return cast("Callable[[Seen], torch.Tensor]", self._online.values)(seen)

    def _normalised(self, advantages: Floats) -> Floats:
        """Shift and scale the advantages [n] to mean 0 and standard deviation 1 over the batches of all ranks."""
        whole = Moments.of_all(self.ranks, advantages[:, None])
        normalised: Floats = ((advantages - whole.mean) / (np.sqrt(whole.variance) + 1e-8)).astype(np.float32)
        return normalised

    def _mean_entropy(self, entropies: torch.Tensor) -> torch.Tensor:
        """Mean entropy; has a graph only if the loss contains it."""
        return (entropies if self._shared.entropy_coefficient else entropies.detach()).mean()

    def _total(self, policy: torch.Tensor, value: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        """Weigh the parts of the loss."""
        total = torch.add(policy, value, alpha=self._shared.value_coefficient)
        coefficient = self._shared.entropy_coefficient
        return torch.sub(total, entropy, alpha=coefficient) if coefficient else total

    def _result(
        self,
        means: Sequence[Mapping[str, torch.Tensor]] = (),
        /,
        *,
        updates: int = 1,
        **metrics: float | torch.Tensor,
    ) -> LearnResult:
        """Make the result of an update, from the means of each gradient step (see Losses) and these metrics, in the
        declared order."""
        of_steps = {name: torch.stack([each[name] for each in means]) for name in (means[0] if means else ())}
        metrics |= {**of_steps, "cur_lr": self._optimizer.learning_rate}
        order = dict.fromkeys((*PPO_METRICS, *metrics))
        return LearnResult({name: metrics[name] for name in order if name in metrics}, None, updates)


def explained_variance(ranks: Ranks, values: NDArray[np.float32], targets: NDArray[np.float32]) -> float:
    """Share of the variance of the targets, [n] in every rank, that the values predict: 1 all, 0 none; 0 for constant
    targets."""
    moments = Moments.of_all(ranks, np.stack([targets, targets - values], axis=1))
    variance, left = moments.variance if moments.count else (0.0, 0.0)
    return 1.0 - float(left / variance) if variance > 0 else 0.0
