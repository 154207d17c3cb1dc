"""Builds the parts of a serial run: environments, algorithms, and what collects and evaluates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from remuda.collector.environments import Environments, make_environments
from remuda.collector.past import PastPlayers
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import agents_of
from remuda.environments.assignment import assigned, policy_config
from remuda.environments.check import check_tasks
from remuda.evaluator.agents_player import AgentsPlayer
from remuda.evaluator.checkpoint_player import CheckpointPlayer
from remuda.learner.start import new_algorithm
from remuda.logbook.book import Logbook, Source
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.row_plan import check_buffer
from remuda.runner.evaluations import Evaluations, JointEvaluations, OwnEvaluations
from remuda.runner.past_checkpoints import PastCheckpoints
from remuda.storage.run_folder import RunFolder
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
    evaluations: Evaluations
    past: PastCheckpoints | None = None
    """Of self-play."""


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
    joint: JointEvaluations | None = None
    """Of environments with several agents."""
    warnings: Warnings = field(default_factory=Warnings)
    """About environments that are made again."""


def build(config: ExperimentConfig, stack: ExitStack) -> Built:
    """Build everything; the stack closes it. Raises EnvironmentBuildError, UnsupportedSpaceError, DeviceError,
    SmallBufferError."""
    built = _several_agents(config, stack) if config.env.kind == "pettingzoo" else _one_agent(config, stack)
    for each in built.policies:
        check_buffer(each.config, collectors=1)
    return built


def _one_agent(config: ExperimentConfig, stack: ExitStack) -> Built:
    said, warnings = bind_cores_alone(config), Warnings()
    environments = _environments(config, {"": config}, warnings, stack)
    num_players = min(2 * config.env.num_envs, config.evaluator.episodes)  # a few more need no second turn
    player = CheckpointPlayer(config, num_envs=num_players, broke=partial(warnings.say, "evaluator"))
    stack.enter_context(closing(player))
    algorithm = new_algorithm(config, *environments.spaces[0])
    policy, evaluated = _acting(config, algorithm), make_policy(config, algorithm.observation, algorithm.action)

    def describe(folder: RunFolder) -> Sequence[str]:
        return [*environments.describe(folder), *player.films.take_warnings()]

    evaluations = OwnEvaluations(player, algorithm, evaluated)
    only = BuiltPolicy("", config, algorithm, policy, evaluations)
    return Built([said, environments.said], [only], environments, describe, warnings=warnings)


def _environments(
    config: ExperimentConfig, policies: Mapping[str, ExperimentConfig], warnings: Warnings, stack: ExitStack
) -> Environments:
    broke = partial(warnings.say, "collector")
    built = make_environments(config, policies, collectors=1, broke=broke, remark=warnings.remark)
    stack.enter_context(closing(built))
    for own, spaces in zip(policies.values(), built.spaces, strict=True):
        check_tasks(own, spaces)
    return built


def _several_agents(config: ExperimentConfig, stack: ExitStack) -> Built:
    of_policy = assigned(config, agents_of(config.env, source_dir=config.source_dir))
    configs = {name: policy_config(config, name, agents) for name, agents in of_policy.items()}
    said, warnings = bind_cores_alone(config), Warnings()
    environments = _environments(config, configs, warnings, stack)
    num_players = max(1, min(config.env.num_envs, config.evaluator.episodes))
    longest = config.evaluator.max_episode_steps
    player = AgentsPlayer(
        config,
        of_policy,
        configs,
        num_envs=num_players,
        max_episode_steps=longest,
        broke=partial(warnings.say, "evaluator"),
    )
    joint = JointEvaluations(stack.enter_context(closing(player)))
    policies: list[BuiltPolicy] = []
    for (name, own), spaces in zip(configs.items(), environments.spaces, strict=True):
        algorithm = new_algorithm(own, *spaces)
        past = None
        if environments.past is not None:
            remember = partial(_remember, environments.past, joint, len(policies), name)
            past = PastCheckpoints(own, algorithm, remember)
        evaluations, acting = joint.add(name, own, algorithm), _acting(own, algorithm)
        policies.append(BuiltPolicy(name, own, algorithm, acting, evaluations, past))
    return Built([said, environments.said], policies, environments, environments.describe, joint, warnings)


def _remember(
    players: PastPlayers, joint: JointEvaluations, group: int, name: str, train_iter: int, policy: Policy
) -> None:
    """From now on the policy as it is after this update plays in training, and in evaluations of later ones."""
    players.remember(group, policy)
    joint.remember(name, train_iter, policy)


def _acting(config: ExperimentConfig, algorithm: Algorithm) -> Policy:
    return make_policy(config, algorithm.observation, algorithm.action, device=config.collector.device)
