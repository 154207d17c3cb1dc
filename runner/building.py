"""Builds the parts of a serial run: environments, algorithms, collector and evaluator."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from remuda.collector.environments import Environments
from remuda.config.errors import ConfigError
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.environments.assignment import configs_of_policies
from remuda.environments.copies import agents_of
from remuda.environments.make import check_tasks
from remuda.evaluator.player import EpisodePlayer
from remuda.learner.callback import Callback
from remuda.learner.checkpoint import new_algorithm
from remuda.learner.demonstrations import demonstrated
from remuda.learner.outputs import LearnerOutputs
from remuda.logbook.book import Logbook, Source
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.row_plan import check_buffer
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.training.journal import RunJournal
from remuda.training.journal_entry import Recovered, ResumePoint
from remuda.training.league import why_unrated
from remuda.worker.affinity import bind_cores_alone


@dataclass(frozen=True)
class BuiltPolicy:
    """One policy of a run, before its files are opened."""

    name: str
    """Empty with a single policy."""
    config: ExperimentConfig
    """Its own settings."""
    algorithm: Algorithm
    acting: Policy
    """Acts for the collector."""
    evaluated: Policy
    """Plays evaluations with the weights of the algorithm."""


@dataclass(frozen=True)
class Member:
    """One policy of the run, with its files."""

    built: BuiltPolicy
    folder: RunFolder
    logbook: Logbook
    outputs: LearnerOutputs
    checkpoints: CheckpointIndex
    journal: RunJournal
    training: PolicyTraining
    resumed: ResumePoint | None
    recovered: Recovered | None
    """The replay of a resumed run."""
    callbacks: Sequence[Callback]
    """The callbacks of the user."""


@dataclass
class Warnings:
    """Logs warnings about environments, which exist before the log."""

    logbook: Logbook | None = None

    def remark(self, text: str) -> None:
        """Log and print a warning about observations."""
        self.say("collector", text)
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def say(self, source: Source, text: str) -> None:
        """Log a warning."""
        assert self.logbook is not None, "no environment is used before"
        self.logbook.say(source, text, level="warning")


@dataclass(frozen=True)
class Built:
    """The parts of a run, made before the run folder."""

    choices: Sequence[str]
    """Log lines about automatic choices."""
    policies: Sequence[BuiltPolicy]
    environments: Environments
    """Stepped by the collector."""
    player: EpisodePlayer
    """Plays evaluations."""
    warnings: Warnings = field(default_factory=Warnings)
    """About replaced environments."""

    def describe(self, folder: RunFolder) -> Sequence[str]:
        """Write the description of the environment into the run folder; return warnings."""
        return [*self.environments.describe(folder), *self.player.films.take_warnings()]


def build(config: ExperimentConfig, stack: ExitStack) -> Built:
    """Build everything; the stack closes it. Raises EnvironmentBuildError, UnsupportedSpaceError, DeviceError,
    SmallBufferError, DatasetError, and ConfigError for a league without ratings."""
    if (unrated := why_unrated(config)) is not None:
        raise ConfigError([unrated])
    configs = configs_of_policies(config, agents_of(config.env, source_dir=config.source_dir))
    chosen, warnings = bind_cores_alone(config), Warnings()
    environments = _environments(config, configs, warnings, stack)
    several = config.env.kind == "pettingzoo"
    most = config.env.num_envs if several else 2 * config.env.num_envs  # a few more need no second turn
    num_players = min(most, config.evaluator.episodes)
    player = EpisodePlayer(config, configs, num_envs=num_players, broke=partial(warnings.say, "evaluator"))
    stack.enter_context(closing(player))
    policies: list[BuiltPolicy] = []
    for (name, own), spaces in zip(configs.items(), environments.spaces, strict=True):
        algorithm = new_algorithm(own, *spaces)
        acting = make_policy(own, algorithm.observation, algorithm.action, device=own.collector.device)
        evaluated = make_policy(own, algorithm.observation, algorithm.action)
        policies.append(BuiltPolicy(name, own, algorithm, acting, evaluated))
        check_buffer(own, collectors=1)
        demonstrated(own, algorithm.observation, algorithm.action, sampled=True)

    return Built([chosen, environments.said], policies, environments, player, warnings)


def _environments(
    config: ExperimentConfig, policies: Mapping[str, ExperimentConfig], warnings: Warnings, stack: ExitStack
) -> Environments:
    broke = partial(warnings.say, "collector")
    built = Environments(config, policies, collectors=1, broke=broke, remark=warnings.remark)
    stack.enter_context(closing(built))
    for own, spaces in zip(policies.values(), built.spaces, strict=True):
        check_tasks(own, spaces)
    return built
