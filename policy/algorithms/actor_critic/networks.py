"""The networks that PPO and IMPALA learn, as their settings ask for them."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.policy.algorithms.actor_critic.layout import network_shape, recurrent_layout
from remuda.policy.networks.custom_encoder import reads
from remuda.policy.networks.custom_network import ActorAndCritic
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.torch_networks import ActorCriticNetwork, PolicyAndValue
from remuda.policy.spaces import ActionSpec, ObservationSpec


@dataclass(frozen=True)
class Unrolled:
    """The observations of B segments for a recurrent network, which reads them in order."""

    observations: torch.Tensor
    """[B, T + 1, …]: normalised."""
    state: torch.Tensor
    """float32 [B, state_size]: before the first of each segment."""
    begins: torch.Tensor
    """bool [B, T + 1]: an episode begins with this observation."""
    steps: torch.Tensor | None = None
    """int64 [n]: those of the B * (T + 1) observations whose outputs are wanted; None: all."""

    def __len__(self) -> int:
        """How many observations there are."""
        return self.begins.numel()


class RecurrentActorCritic(RecurrentNetwork[ActorCriticNetwork]):
    """Policy and value that remember the episode."""

    def evaluate(self, segments: Unrolled) -> tuple[torch.Tensor, torch.Tensor]:
        """The policy's outputs [n, outputs] and the values [n] of the observations that are wanted."""
        remembered, _ = self.unroll(segments.observations, segments.state, segments.begins)
        flat = remembered.flatten(0, 1)
        return self.head.evaluate(flat if segments.steps is None else flat.index_select(0, segments.steps))

    @torch.no_grad()
    def values(self, segments: Unrolled) -> torch.Tensor:
        """The values [n] alone, without a graph."""
        return self.evaluate(segments)[1]


def make_network(
    config: PpoConfig | ImpalaConfig, observation: ObservationSpec, action: ActionSpec, source_dir: str | None
) -> ActorCriticNetwork | RecurrentActorCritic:
    """See remuda.policy.algorithms.dqn.network."""
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
