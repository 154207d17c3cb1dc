"""PPO and IMPALA as the roles know them: segments, used once; collectors draw from the policy's distribution."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig, ImpalaConfig, PpoConfig
from remuda.policy.algorithms.actor_critic_policy import DECLARATION, ActorCriticPolicy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.entry import Chosen, Entry, MakeAlgorithm, NoExploration, Segments
from remuda.policy.spaces import ActionSpec, ObservationSpec


def _rows(config: ExperimentConfig) -> Segments:
    return Segments(_section(config).horizon_steps, _section(config).discount)


def _exploration(config: ExperimentConfig) -> NoExploration:
    return NoExploration()


def _make_policy(
    config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, chosen: Chosen, device: str
) -> Policy:
    return ActorCriticPolicy(_section(config), observation, action, chosen=chosen, device=device)


def _make_ppo(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> Algorithm:
    from remuda.policy.algorithms.ppo import Ppo

    return Ppo(config, observation, action, seed)


def _make_impala(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> Algorithm:
    from remuda.policy.algorithms.impala import Impala

    return Impala(config, observation, action, seed)


def _section(config: ExperimentConfig) -> PpoConfig | ImpalaConfig:
    assert isinstance(config.policy, PpoConfig | ImpalaConfig), config.policy.type
    return config.policy


def _entry(type: str, make_algorithm: MakeAlgorithm) -> Entry:
    return Entry(
        type=type,
        declaration=DECLARATION,
        rows=_rows,
        exploration=_exploration,
        make_policy=_make_policy,
        make_algorithm=make_algorithm,
    )


PPO = _entry("ppo", _make_ppo)
IMPALA = _entry("impala", _make_impala)
