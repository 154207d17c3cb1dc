"""What makes an algorithm known to the other packages: one class for each, built-in or a user's own. Needs no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from remuda.config.algorithms.base import AlgorithmConfig
from remuda.config.declaration import Declaration
from remuda.config.schema import ExperimentConfig
from remuda.policy.acting.network import Chosen, Inference
from remuda.policy.base import Algorithm, Policy, Reanalyzer, imported
from remuda.policy.spaces import ActionSpec, ObservationSpec

Settings = TypeVar("Settings", bound=AlgorithmConfig)


@dataclass(frozen=True)
class Setup(Generic[Settings]):
    """The input from which both sides of an algorithm are built."""

    config: ExperimentConfig
    settings: Settings
    """The algorithm's settings: `config.policy`, as the class of its settings."""
    observation: ObservationSpec
    """The observations of a single environment."""
    action: ActionSpec
    """The actions of a single environment."""
    search: bool = True
    """False: the policy is to act without its search. Only where the entry `searches`."""

    def inference(self, chosen: Chosen, device: str) -> Inference:
        """How the policy's networks are made and computed; the arguments are those of `make_policy`."""
        return Inference(self.config.source_dir, chosen, device)


class AlgorithmEntry(ABC, Generic[Settings]):
    """Everything that the roles need of an algorithm. The class is created without arguments, in every process that
    needs it."""

    settings: type[Settings]
    """The class of its section in the config: of `policy`, without `type`."""
    searches: bool = False
    """Whether its policy searches before it acts, and can also act without, by its network alone: `make_policy` is then
    asked for that by `setup.search`."""

    @abstractmethod
    def declaration(self, config: ExperimentConfig, settings: Settings) -> Declaration:
        """What it learns from, reports, and how it explores, under these settings.

        Args:
            config: the experiment; its `policy` may not be complete yet.
            settings: of this algorithm.
        """

    @abstractmethod
    def make_policy(self, setup: Setup[Settings], *, chosen: Chosen = None, device: str = "cpu") -> Policy:
        """Build the acting side, for collectors and evaluators; it acts once a state is loaded.

        Args:
            setup: what it is built from.
            chosen: with it, inference may choose its form by timing, and says what it chose.
            device: the torch device that it acts on.

        Raises:
            UnsupportedSpaceError: the algorithm cannot work with such observations or actions.
        """

    @abstractmethod
    def make_algorithm(self, setup: Setup[Settings], seed: int) -> Algorithm:
        """Build the learning side, on `config.learner.device`. Raises UnsupportedSpaceError.

        Args:
            setup: what it is built from.
            seed: decides the first weights, and whatever else is drawn.
        """


class ReanalyzingEntry(AlgorithmEntry[Settings]):
    """Of an algorithm whose declaration names `reanalyzed` columns; its `make_algorithm` makes a
    ReanalyzingAlgorithm."""

    @abstractmethod
    def make_reanalyzer(self, setup: Setup[Settings], *, device: str = "cpu") -> Reanalyzer:
        """Build what computes columns again, for workers of the role reanalyzer; it does so once a state is loaded.

        Args:
            setup: what it is built from.
            device: the torch device that it computes on.

        Raises:
            UnsupportedSpaceError: the algorithm cannot work with such observations or actions.
        """


class BuiltInEntry(AlgorithmEntry[Settings]):
    """Of an algorithm that Remuda brings."""

    learner: str
    """`module:Class` of its learning side, which needs torch: it is imported where it is built."""

    def make_algorithm(self, setup: Setup[Settings], seed: int) -> Algorithm:
        return cast("Algorithm", imported(self.learner)(setup.config, setup.observation, setup.action, seed))
