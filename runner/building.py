"""Builds the parts of a serial run: environments, algorithms, and what collects and evaluates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from remuda.collector.build import make_agents_rollout, make_rollout
from remuda.collector.collecting import Collecting, OneRollout
from remuda.collector.past import PastPlayers
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import AgentsVector, agents_of, make_agents_vector
from remuda.environments.assignment import assigned, policy_config
from remuda.environments.record import record_agents, record_environment
from remuda.environments.vectors import make_vector, single_spaces
from remuda.evaluator.agents_player import AgentsPlayer
from remuda.evaluator.checkpoint_player import CheckpointPlayer
from remuda.learner.start import new_algorithm
from remuda.logbook.book import Logbook, Source
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.row_plan import check_buffer
from remuda.runner.evaluations import Evaluations, JointEvaluations, OwnEvaluations
from remuda.runner.past_checkpoints import PastCheckpoints
from remuda.storage.run_folder import RunFolder
from remuda.worker.affinity import settle_alone

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


class MakeCollector(Protocol):
    """Makes the collector of a run."""

    def __call__(self, *, generation: int, clock: Clock, timers: Timers) -> Collecting:
        """`generation` says whose random numbers it uses: which incarnation of the run it is."""
        ...


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
    make_collector: MakeCollector
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
    said, warnings = [settle_alone(config)], Warnings()
    vector = make_vector(
        config.env,
        num_envs=config.env.num_envs,
        source_dir=config.source_dir,
        chosen=said.append,
        broke=partial(warnings.say, "collector"),
        remark=warnings.remark,
    )
    stack.enter_context(closing(vector))
    num_players = min(2 * config.env.num_envs, config.evaluator.episodes)  # a few more need no second turn
    player = CheckpointPlayer(config, num_envs=num_players, broke=partial(warnings.say, "evaluator"))
    stack.enter_context(closing(player))
    algorithm = new_algorithm(config, *single_spaces(vector))
    policy, evaluated = _acting(config, algorithm), make_policy(config, algorithm.observation, algorithm.action)

    def make_collector(*, generation: int, clock: Clock, timers: Timers) -> Collecting:
        return OneRollout(
            make_rollout(
                config, vector, policy, index=0, collectors=1, generation=generation, clock=clock, timers=timers
            )
        )

    def describe(folder: RunFolder) -> Sequence[str]:
        return [*record_environment(folder, config, vector), *player.films.take_warnings()]

    evaluations = OwnEvaluations(player, algorithm, evaluated)
    only = BuiltPolicy("", config, algorithm, policy, evaluations)
    return Built(said, [only], make_collector, describe, warnings=warnings)


def _several_agents(config: ExperimentConfig, stack: ExitStack) -> Built:
    of_policy = assigned(config, agents_of(config.env, source_dir=config.source_dir))
    configs = {name: policy_config(config, name, agents) for name, agents in of_policy.items()}
    warnings = Warnings()
    vector = make_agents_vector(
        config.env,
        of_policy,
        num_envs=config.env.num_envs,
        source_dir=config.source_dir,
        broke=partial(warnings.say, "collector"),
    )
    stack.enter_context(closing(vector))
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
    players = PastPlayers(vector, config.self_play.share, config.self_play.keep)
    policies: list[BuiltPolicy] = []
    for (name, own), lanes in zip(configs.items(), vector.lanes, strict=True):
        algorithm = new_algorithm(own, lanes.group.observation, lanes.group.action)
        past = None
        if config.self_play.share:
            remember = partial(_remember, players, joint, len(policies), name)
            past = PastCheckpoints(own, algorithm, remember)
        evaluations, acting = joint.add(name, own, algorithm), _acting(own, algorithm)
        policies.append(BuiltPolicy(name, own, algorithm, acting, evaluations, past))

    def make_collector(*, generation: int, clock: Clock, timers: Timers) -> Collecting:
        seats = [(one.config, one.acting) for one in policies]
        return make_agents_rollout(
            config,
            vector,
            seats,
            index=0,
            collectors=1,
            past=players,
            generation=generation,
            clock=clock,
            timers=timers,
        )

    described = partial(record_agents, config=config, vector=vector, policies=list(of_policy))
    return Built(
        [settle_alone(config), _told(vector, list(of_policy))], policies, make_collector, described, joint, warnings
    )


def _remember(
    players: PastPlayers, joint: JointEvaluations, group: int, name: str, train_iter: int, policy: Policy
) -> None:
    """From now on the policy as it is after this update plays in training, and in evaluations of later ones."""
    players.remember(group, policy)
    joint.remember(name, train_iter, policy)


def _acting(config: ExperimentConfig, algorithm: Algorithm) -> Policy:
    return make_policy(config, algorithm.observation, algorithm.action, device=config.collector.device)


def _told(vector: AgentsVector, policies: Sequence[str]) -> str:
    groups = [lanes.group for lanes in vector.lanes]
    named = zip(policies, groups, strict=True)
    each = "; ".join(f"{f'{name}: ' if name else ''}{', '.join(group.agents)}" for name, group in named)
    return f"environments: {vector.num_envs} copies in this process, with the agents {each}"
