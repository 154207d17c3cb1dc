"""The networks that PPO and IMPALA learn, as their settings ask for them."""

from __future__ import annotations

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.policy.algorithms.actor_critic.acting import network_shape, recurrent_layout
from remuda.policy.networks.parts import features_of
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.torch_networks import ActorCriticNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec

RecurrentActorCritic = RecurrentNetwork[ActorCriticNetwork]


def make_network(
    config: PpoConfig | ImpalaConfig, observation: ObservationSpec, action: ActionSpec
) -> ActorCriticNetwork | RecurrentActorCritic:
    """A network as torch's generator begins it. Raises UnsupportedSpaceError."""
    shape, gaussian = network_shape(config, observation), action.is_box
    if config.recurrent is not None:
        layout = recurrent_layout(config, observation)
        head = ActorCriticNetwork(
            layout.units,
            action.outputs,
            (),
            activation=shape.activation,
            gaussian=gaussian,
            normalizes=False,
            log_std_start=config.log_std_start,
        )
        return RecurrentNetwork(layout, head)
    return ActorCriticNetwork(
        features_of(observation, shape.image),
        action.outputs,
        shape.hidden,
        activation=shape.activation,
        gaussian=gaussian,
        normalizes=config.normalize_observations,
        shared=shape.shared,
        image=shape.image,
        log_std_start=config.log_std_start,
    )
