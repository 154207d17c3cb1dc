"""Builds the parts of a serial run: environments, algorithms, and what collects and evaluates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from remuda.collector.environments import Environments
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import configs_of_policies
from remuda.environments.check import check_tasks
from remuda.environments.copies import agents_of
from remuda.evaluator.player import EpisodePlayer
from remuda.learner.start import new_algorithm
from remuda.logbook.book import Logbook, Source
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.opponent_pool import Opponent, OpponentPool
from remuda.policy.row_plan import check_buffer
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord
from remuda.worker.affinity import bind_cores_alone

Clock = Callable[[], float]


@dataclass(frozen=True)
class BuiltPolicy:
    """One policy of a run; the only one where the environment has one agent."""

    name: str
    """Empty where there are not several."""
    config: ExperimentConfig
    """The settings under which it learns."""
    algorithm: Algorithm
    acting: Policy
    """What the collector acts with."""
    evaluated: Policy
    """Plays evaluations with the weights of the algorithm."""
    past: SavedOpponents | None = None
    """Adds its checkpoints to the opponents, in self-play."""


class SavedOpponents:
    """Adds the checkpoints of a policy to the opponents: those that ckpt/ has, so that a resumed run plays against the
    same ones."""

    def __init__(self, config: ExperimentConfig, algorithm: Algorithm, pool: OpponentPool, policy_index: int) -> None:
        self._config, self._algorithm = config, algorithm
        self._pool, self._index = pool, policy_index
        self._newest = -1
        """Its update."""

    def saved(self, record: CheckpointRecord) -> None:
        """A checkpoint of the present weights was saved."""
        if record.train_iter == self._newest:
            return
        self._newest = record.train_iter
        policy = make_policy(self._config, self._algorithm.observation, self._algorithm.action)
        policy.load_state(self._algorithm.published_state())
        self._pool.add(self._index, Opponent(policy, record.file, record.train_iter))

    def load(self, checkpoints: CheckpointIndex) -> None:
        """A run is resumed with these checkpoints. Raises CheckpointError."""
        for record in checkpoints.records[-self._config.self_play.keep - 1 :]:
            self._newest = record.train_iter
            path = checkpoints.folder / record.file
            self._pool.load(self._index, path, file=record.file, train_iter=record.train_iter)


@dataclass
class Warnings:
    """For the log, which is opened after the environments were built, and before they are used."""

    logbook: Logbook | None = None

    def remark(self, text: str) -> None:
        """Write what is wrong with observations, into the log and on the terminal."""
        self.say("collector", text)
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def say(self, source: Source, text: str) -> None:
        """Write one."""
        assert self.logbook is not None, "no environment is used before"
        self.logbook.say(source, text, level="warning")


@dataclass(frozen=True)
class Built:
    """The parts of a run; made before anything is written."""

    said: Sequence[str]
    """Lines about what was chosen, for the log, which is opened later."""
    policies: Sequence[BuiltPolicy]
    environments: Environments
    """That the collector steps."""
    describe: Callable[[RunFolder], Sequence[str]]
    """Writes into the run folder what the environment is; returns warnings."""
    player: EpisodePlayer
    """Plays evaluations."""
    warnings: Warnings = field(default_factory=Warnings)
    """About environments that are made again."""


def build(config: ExperimentConfig, stack: ExitStack) -> Built:
    """Build everything; the stack closes it. Raises EnvironmentBuildError, UnsupportedSpaceError, DeviceError,
    SmallBufferError."""
    configs = configs_of_policies(config, agents_of(config.env, source_dir=config.source_dir))
    chosen, warnings = bind_cores_alone(config), Warnings()
    environments = _environments(config, configs, warnings, stack)
    several = config.env.kind == "pettingzoo"
    most = config.env.num_envs if several else 2 * config.env.num_envs  # a few more need no second turn
    num_players = min(most, config.evaluator.episodes)
    player = EpisodePlayer(config, configs, num_envs=num_players, broke=partial(warnings.say, "evaluator"))
    stack.enter_context(closing(player))
    pool = None if environments.opponents is None else environments.opponents.pool
    policies: list[BuiltPolicy] = []
    for index, ((name, own), spaces) in enumerate(zip(configs.items(), environments.spaces, strict=True)):
        algorithm = new_algorithm(own, *spaces)
        past = None if pool is None else SavedOpponents(own, algorithm, pool, index)
        acting = make_policy(own, algorithm.observation, algorithm.action, device=own.collector.device)
        evaluated = make_policy(own, algorithm.observation, algorithm.action)
        policies.append(BuiltPolicy(name, own, algorithm, acting, evaluated, past))
        check_buffer(own, collectors=1)

    def describe(folder: RunFolder) -> Sequence[str]:
        return [*environments.describe(folder), *player.films.take_warnings()]

    return Built([chosen, environments.said], policies, environments, describe, player, warnings)


def _environments(
    config: ExperimentConfig, policies: Mapping[str, ExperimentConfig], warnings: Warnings, stack: ExitStack
) -> Environments:
    broke = partial(warnings.say, "collector")
    built = Environments(config, policies, collectors=1, broke=broke, remark=warnings.remark)
    stack.enter_context(closing(built))
    for own, spaces in zip(policies.values(), built.spaces, strict=True):
        check_tasks(own, spaces)
    return built
