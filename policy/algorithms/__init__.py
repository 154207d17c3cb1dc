"""The algorithms there are, one entry each, found by `policy.type` of a config. Imports no torch."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import actor_critic_entries, dqn_entry
from remuda.policy.base import Algorithm, Declaration, Policy
from remuda.policy.entry import Chosen, Entry, Exploration, RowShape
from remuda.policy.spaces import ActionSpec, ObservationSpec

ENTRIES = {entry.type: entry for entry in (dqn_entry.ENTRY, actor_critic_entries.PPO, actor_critic_entries.IMPALA)}


class UnknownAlgorithmError(ValueError):
    """A config names an algorithm that has no entry; the text says which there are."""


def entry_of(config: ExperimentConfig) -> Entry:
    """Look an algorithm up. Raises UnknownAlgorithmError."""
    entry = ENTRIES.get(config.policy.type)
    if entry is None:
        raise UnknownAlgorithmError(f"policy.type: no algorithm {config.policy.type!r}; there are {', '.join(ENTRIES)}")
    return entry


def make_algorithm(config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> Algorithm:
    """Build the learning side, its weights drawn from `seed`. Imports torch.

    Raises UnsupportedSpaceError where the algorithm cannot work with the actions, and UnknownAlgorithmError.
    """
    return entry_of(config).make_algorithm(config, observation, action, seed)


def make_policy(
    config: ExperimentConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    *,
    chosen: Chosen = None,
    device: str = "cpu",
) -> Policy:
    """Build the acting side; it acts once a state is loaded, on `device`. Raises UnsupportedSpaceError and
    UnknownAlgorithmError, as make_algorithm does.

    With `chosen`, its inference may choose by timing, and says what it chose; without, it is the same every time.
    """
    return entry_of(config).make_policy(config, observation, action, chosen, device)


def declaration(config: ExperimentConfig) -> Declaration:
    """Look up what columns the algorithm learns from, how often, and what it monitors. Raises UnknownAlgorithmError."""
    return entry_of(config).declaration


def row_shape(config: ExperimentConfig) -> RowShape:
    """Look up what one row of experience is. Raises UnknownAlgorithmError."""
    return entry_of(config).rows(config)


def exploration(config: ExperimentConfig) -> Exploration:
    """Look up how much collectors explore in the course of a run. Raises UnknownAlgorithmError."""
    return entry_of(config).exploration(config)
