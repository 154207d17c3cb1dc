"""Entry of an algorithm, built-in or a user's own: its declaration, and how both sides are built. Needs no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from remuda.config.algorithms.base import AlgorithmConfig
from remuda.config.declaration import Declaration
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen, Inference, Shared
from remuda.policy.base import Algorithm, Policy, Reanalyzer, imported
from remuda.policy.spaces import ActionSpec, ObservationSpec

Settings = TypeVar("Settings", bound=AlgorithmConfig)


@dataclass(frozen=True)
class Setup(Generic[Settings]):
    """Input for both sides of an algorithm."""

    config: ExperimentConfig
    settings: Settings
    """The algorithm's settings: `config.policy` as its settings class."""
    observation: ObservationSpec
    """The observations of a single environment."""
    action: ActionSpec
    """The actions of a single environment."""
    search: bool = True
    """False: the policy acts without its search. Only for entries with `searches`."""
    shared: Shared | None = None
    """Shared inference, for a policy whose networks come from `inference`."""

    def inference(self, chosen: Chosen, device: str) -> Inference:
        """Settings for the policy's networks; the arguments are those of `make_policy`."""
        return Inference(self.config.source_dir, chosen, device, self.shared)


class AlgorithmEntry(ABC, Generic[Settings]):
    """Entry of an algorithm. The roles create entries without arguments, in every process."""

    settings: type[Settings]
    """Class of the algorithm's section in the config: of `policy`, without `type`."""
    searches: bool = False
    """True if the policy searches before it acts and can also act by its network alone: `make_policy` then reads
    `setup.search`."""

    @abstractmethod
    def declaration(self, config: ExperimentConfig, settings: Settings) -> Declaration:
        """Declare rows, metrics and exploration under these settings.

        Args:
            config: the experiment; its `policy` may be incomplete.
            settings: the algorithm's settings.
        """

    @abstractmethod
    def make_policy(self, setup: Setup[Settings], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """Build the acting side, for collectors and evaluators. It acts after `load_state`.

        With `chosen`, inference may choose its implementation by timing, and reports the choice there. `device` is
        torch's. Raises UnsupportedSpaceError if the algorithm does not support these observations or actions.
        """

    @abstractmethod
    def make_algorithm(self, setup: Setup[Settings], seed: int) -> Algorithm:
        """Build the learning side, on `config.learner.device`. `seed` determines the first weights, and all other
        random draws. Raises UnsupportedSpaceError."""


class ReanalyzingEntry(AlgorithmEntry[Settings]):
    """Entry of an algorithm whose declaration names `reanalyzed` columns; `make_algorithm` returns a
    ReanalyzingAlgorithm."""

    @abstractmethod
    def make_reanalyzer(self, setup: Setup[Settings], *, device: str = "cpu") -> Reanalyzer:
        """Build the reanalyzer, for workers of the role reanalyzer, on a torch device. It computes after `load_state`.
        Raises UnsupportedSpaceError."""


class BuiltInEntry(AlgorithmEntry[Settings]):
    """Entry of a built-in algorithm."""

    acts: Callable[[Any, ObservationSpec, ActionSpec, Inference], Policy]
    """Makes the acting side from the settings."""
    learner: str
    """`module:Class` of the learning side, imported only by `make_algorithm`, since it needs torch."""
    meanings: Mapping[str, str] = MappingProxyType({})
    """Meaning of each metric and of each exploration, by name, for docs/metrics.md."""

    def make_policy(self, setup: Setup[Settings], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        return self.acts(setup.settings, setup.observation, setup.action, setup.inference(chosen, device))

    def make_algorithm(self, setup: Setup[Settings], seed: int) -> Algorithm:
        return cast("Algorithm", imported(self.learner)(setup.config, setup.observation, setup.action, seed))
