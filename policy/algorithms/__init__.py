"""The algorithms there are, looked up by `policy.type` of a config. Importing this package does not import torch."""

from __future__ import annotations

from collections.abc import Callable

from remuda.config.schema import DqnConfig, ExperimentConfig, PpoConfig
from remuda.policy.algorithms.actor_critic_policy import DECLARATION as ACTOR_CRITIC
from remuda.policy.algorithms.actor_critic_policy import ActorCriticPolicy
from remuda.policy.algorithms.dqn_policy import DECLARATION as DQN
from remuda.policy.algorithms.dqn_policy import DqnPolicy
from remuda.policy.base import Algorithm, Declaration, Policy
from remuda.policy.spaces import ActionSpec, ObservationSpec


def make_algorithm(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> Algorithm:
    """Build the learning side, its weights drawn from `seed`. Imports torch.

    Raises UnsupportedSpaceError where the algorithm cannot work with the actions.
    """
    if isinstance(config.policy, DqnConfig):
        from remuda.policy.algorithms.dqn import Dqn

        return Dqn(config, observation, action, seed)
    if isinstance(config.policy, PpoConfig):
        from remuda.policy.algorithms.ppo import Ppo

        return Ppo(config, observation, action, seed)
    from remuda.policy.algorithms.impala import Impala

    return Impala(config, observation, action, seed)


def make_policy(
    config: ExperimentConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    *,
    chosen: Callable[[str], None] | None = None,
    device: str = "cpu",
) -> Policy:
    """Build the acting side; it acts once a state is loaded, on `device`. Raises UnsupportedSpaceError, as
    make_algorithm does.

    With `chosen`, its inference may choose by timing, and says what it chose; without, it is the same every time.
    """
    if isinstance(config.policy, DqnConfig):
        return DqnPolicy(config.policy, observation, action, chosen=chosen, device=device)
    return ActorCriticPolicy(config.policy, observation, action, chosen=chosen, device=device)


def declaration(config: ExperimentConfig) -> Declaration:
    """Look up what rows the algorithm learns from and what it monitors."""
    return DQN if isinstance(config.policy, DqnConfig) else ACTOR_CRITIC
