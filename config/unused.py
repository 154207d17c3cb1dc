"""Settings that somebody gave and that have no effect beside the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from pydantic import JsonValue

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.custom import CustomConfig
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.algorithms.q_learning import RainbowConfig
from remuda.config.algorithms.twin_critics import SacConfig
from remuda.config.defaults import defaults_of
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section

_PRIORITIES = ("buffer.priority_exponent", "buffer.importance_exponent", "buffer.importance_anneal_iters")
_REPLAY = (
    "learner.batch_size",
    "learner.prefetch_batches",
    "learner.publish_interval_iters",
    "buffer.capacity",
    "buffer.min_rows",
    "buffer.prioritized",
    "buffer.samples_per_insert",
    *_PRIORITIES,
)
_EPSILON = ("policy.epsilon_start", "policy.epsilon_end", "policy.epsilon_decay_env_steps", "policy.epsilon_spread")
_GUMBEL = ("policy.gumbel_considered_actions", "policy.gumbel_c_visit", "policy.gumbel_c_scale")
_VISITS = (
    "policy.pb_c_base",
    "policy.pb_c_init",
    "policy.root_noise_alpha",
    "policy.root_noise_fraction",
    "policy.temperature_start",
    "policy.temperature_end",
    "policy.temperature_decay_env_steps",
)


def unused_settings(config: ExperimentConfig) -> list[str]:
    """A line for each setting that is not the default and that nothing reads, with the reason: someone who has set it
    expects something of it. They are no errors, as a sweep over algorithms gives all of them the same settings; of
    several policies, which share them, none are told. Settings that only some environments need are not among them."""
    if config.policies:
        return []
    lines: list[str] = []
    for why, keys in _reasons(config):
        for key in keys:
            section, _, name = key.partition(".")
            inside = cast("Section", getattr(config, section))
            value = getattr(inside, name)
            default = defaults_of(config.policy).get(key, type(inside).model_fields[name].get_default())
            if value != default:
                lines.append(f"{key} is {_shown(value)} and has no effect: {why}")
    return lines


def _reasons(config: ExperimentConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Why some settings are not read, and which."""
    policy = config.policy
    if policy.segment_steps is not None:
        yield f"{policy.type} has no replay, and learns from learner.segments_per_update segments at once", _REPLAY
    elif not isinstance(policy, CustomConfig) or policy.declaration is not None:
        yield f"{policy.type} learns from a replay", ("learner.segments_per_update", "buffer.max_policy_lag")
        if not config.buffer.prioritized:
            yield "buffer.prioritized is false", _PRIORITIES
    if isinstance(policy, PpoConfig | ImpalaConfig) and policy.recurrent is None:
        yield "policy.recurrent is null", ("policy.recurrent_units",)
    if isinstance(policy, RainbowConfig):
        yield from _of_rainbow(policy)
    if isinstance(policy, SacConfig):
        yield from _of_sac(policy)
    if isinstance(policy, MuZeroConfig):
        yield f"policy.gumbel is {_shown(policy.gumbel)}", _VISITS if policy.gumbel else _GUMBEL
        if not policy.consistency_coefficient:
            yield "policy.consistency_coefficient is 0", ("policy.projection_units", "policy.projection_bottleneck")


def _of_rainbow(policy: RainbowConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    if policy.distribution == "quantile":
        yield "policy.distribution is quantile, which needs no bounds", ("policy.v_min", "policy.v_max")
    if not policy.noisy:
        yield "policy.noisy is false", ("policy.noisy_epsilon", "policy.noisy_sigma")
    if not policy.takes_random_actions:
        yield "policy.noisy explores instead, unless policy.noisy_epsilon is true", _EPSILON


def _of_sac(policy: SacConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    aims = ("policy.target_entropy", "policy.target_entropy_share")
    if policy.temperature is not None:
        yield "policy.temperature is given, so none is learned", ("policy.initial_temperature", *aims)
    elif policy.target_entropy is not None:
        yield "policy.target_entropy is given", aims[1:]


def _shown(value: object) -> str:
    return json.dumps(cast("JsonValue", value), default=list)
