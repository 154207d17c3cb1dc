"""What makes an algorithm known to the rest: one entry for each. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from remuda.config.schema import ExperimentConfig
from remuda.policy.base import Algorithm, Declaration, Policy
from remuda.policy.spaces import ActionSpec, ObservationSpec


@dataclass(frozen=True)
class Steps:
    """A row is one transition over `n_step` environment steps, with the rewards between summed at `discount`."""

    n_step: int
    discount: float


@dataclass(frozen=True)
class Segments:
    """A row is `horizon_steps` consecutive slots of time of one environment; see actor_critic_policy.py."""

    horizon_steps: int
    discount: float


RowShape = Steps | Segments


class Exploration(Protocol):
    """How much collectors explore. Counts accepted environment steps, so a restarted run goes on where it was."""

    @property
    def least(self) -> Mapping[str, float]:
        """What the schedule ends at; also for runs that do not learn."""
        ...

    def at(self, env_step: int) -> dict[str, float]:
        """What `Policy.act` is given after so many environment steps."""
        ...


class NoExploration:
    """For policies that are distributions themselves."""

    least: Mapping[str, float] = {}

    def at(self, env_step: int) -> dict[str, float]:
        """Nothing."""
        return {}


Chosen = Callable[[str], None] | None
"""Told what an inference chose by timing; None: it does not choose. See remuda.policy.inference."""
MakePolicy = Callable[[ExperimentConfig, ObservationSpec, ActionSpec, Chosen, str], Policy]
"""Builds the acting side, on the device named last."""
MakeAlgorithm = Callable[[ExperimentConfig, ObservationSpec, ActionSpec, int], Algorithm]
"""Builds the learning side from a seed; imports torch only when called."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """All that the roles ask of an algorithm. Each function is given a config whose `policy` is of this algorithm."""

    type: str
    """What `policy.type` says."""
    declaration: Declaration
    rows: Callable[[ExperimentConfig], RowShape]
    """What one row of experience is."""
    exploration: Callable[[ExperimentConfig], Exploration]
    make_policy: MakePolicy
    make_algorithm: MakeAlgorithm
