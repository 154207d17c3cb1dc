"""How `remuda evaluate` plays runs of environments with several agents."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TextIO

from remuda.cli.chosen_policy import named_checkpoint
from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.evaluate_options import EvaluateOptions
from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import agents_of
from remuda.environments.assignment import assigned, policy_config
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.trust import distrusted_environment, trusted_source_dir
from remuda.evaluator.agents import AgentsEpisode, Player
from remuda.evaluator.agents_player import AgentsPlayer
from remuda.evaluator.evaluate import EvaluationError
from remuda.evaluator.outcome import outcome
from remuda.logbook.lines import grid
from remuda.policy.algorithms import declaration
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.playable import evaluated_at, load_checkpoint_policy
from remuda.storage.run_folder import PolicyFolder, RunFolder

EPISODES = 100
"""Played where -n does not say how many."""


class AgentsPlaying:
    """Plays the checkpoints of a run together, or one policy against older ones."""

    def __init__(self, asked: EvaluateOptions, config: ExperimentConfig, output: TextIO) -> None:
        """`config` is the run's. Results are written to `output`. Raises InputError."""
        _check(asked)
        self._asked, self._output = asked, output
        self._episodes = asked.episodes or EPISODES
        config = self._played(config)
        distrusted = None
        if not asked.trust_code:
            distrusted = distrusted_environment(config.env, source_dir=config.source_dir, run_dir=asked.run_dir)
            trusted = trusted_source_dir(config.source_dir, run_dir=asked.run_dir)
            config = config.model_copy(update={"source_dir": trusted})
        if distrusted is not None:
            raise InputError(distrusted)
        self._config = config
        try:
            self._of_policy = assigned(config, agents_of(config.env, source_dir=config.source_dir))
        except EnvironmentBuildError as error:
            raise InputError(str(error)) from error
        if asked.policy is not None and asked.policy not in config.policies:
            known = f"there are {', '.join(config.policies)}" if config.policies else "all agents share one"
            raise InputError(f"--policy {asked.policy}: the run has no such policy; {known}")

    def play(self) -> None:
        """Play and print the results. Raises CommandError."""
        asked = self._asked
        newest = {name: self._player(name, asked.which, "-i") for name in self._of_policy}
        configs = {name: policy_config(self._config, name, agents) for name, agents in self._of_policy.items()}
        try:
            player = AgentsPlayer(
                self._config,
                self._of_policy,
                configs,
                num_envs=min(self._episodes, self._config.env.num_envs),
                max_episode_steps=asked.length or None,
                broke=partial(print, file=sys.stderr),
            )
        except EnvironmentBuildError as error:
            raise InputError(str(error)) from error
        with closing(player), NoExit():
            try:
                self._play(player, newest)
            except (EvaluationError, OSError) as error:
                raise RunFailedError(f"the evaluation failed: {error}") from error

    def _played(self, config: ExperimentConfig) -> ExperimentConfig:
        """The settings with the environment that the chosen checkpoints were evaluated on."""
        ckpt = _folder(self._asked.run_dir, next(iter(sorted(config.policies)), "")).ckpt
        return evaluated_at(config, ckpt, named_checkpoint(ckpt, self._asked.which, "-i").train_iter)

    def _play(self, player: AgentsPlayer, newest: Mapping[str, Player]) -> None:
        asked = self._asked
        numbers = range(self._episodes)
        if asked.against is None:
            episodes = player.play(newest, numbers, seed=asked.seed, finished=self._told)
            self._show(episodes, {name: outcome([one.of_policy(its) for one in episodes])
                                  for name, its in self._of_policy.items()})  # fmt: skip
            return
        judged = asked.policy or next(iter(self._of_policy))
        others = {name: [self._player(name, asked.against, "--against")] for name in self._of_policy}
        played = player.play_against(judged, newest, others, numbers, seed=asked.seed)
        alone = [one.of_policy([agent]) for agent, one in played]
        self._show([one for _, one in played], {judged: outcome(alone)})

    def _player(self, name: str, which: str, option: str) -> Player:
        root = self._asked.run_dir
        folder = _folder(root, name)
        path = folder.ckpt / named_checkpoint(folder.ckpt, which, option).file
        try:
            asked = self._asked
            trained = load_checkpoint_policy(path, run_dir=root, trust_code=asked.trust_code)
        except CheckpointError as error:
            raise InputError(str(error)) from error
        counters = trained.counters
        self._say(
            f"{name or 'policy'}: checkpoint {path} (train_iter {counters.train_iter}, env_step {counters.env_step})"
        )
        explored = None if self._asked.deterministic else declaration(trained.config).least_exploration
        return Player(trained.policy, explored)

    def _told(self, episode: AgentsEpisode, count: int) -> None:
        returns = ", ".join(f"{agent} {value:.6g}" for agent, value in episode.returns.items())
        self._say(f"episode {count}: {episode.length} steps; {returns}")

    def _show(self, episodes: Sequence[AgentsEpisode], policies: Mapping[str, Mapping[str, float]]) -> None:
        agents = {agent: [one.returns[agent] for one in episodes] for agent in episodes[0].returns}
        means = {agent: sum(returns) / len(returns) for agent, returns in agents.items()}
        if self._asked.as_json:
            each = [{"seed": one.seed, "returns": one.returns, "length": one.length} for one in episodes]
            content = {
                "deterministic": self._asked.deterministic,
                "against": self._asked.against,
                "policies": {name or "policy": result for name, result in policies.items()},
                "agents": means,
                "each": each,
            }
            print(json.dumps(content, indent=2), file=self._output, flush=True)
            return
        for name, result in policies.items():
            self._say(f"\n{name or 'policy'}:\n{grid(result)}")
        self._say(f"\nmean return of each agent:\n{grid(means)}")

    def _say(self, text: str) -> None:
        """Print a line for people: on standard output, or with --json on standard error."""
        print(text, file=sys.stderr if self._asked.as_json else self._output, flush=True)


def _check(asked: EvaluateOptions) -> None:
    """Raise InputError for options that do not go together, or not with several agents."""
    for option, which in (("-i", asked.which), ("--against", asked.against)):
        if which == "model":
            raise InputError(
                f"{option} model: with several agents checkpoints play; give -1 (newest), best, or a train_iter"
            )
    if asked.policy is not None and asked.against is None:
        raise InputError("--policy says who plays --against: give both, or neither")


def _folder(root: Path, policy: str) -> RunFolder:
    return PolicyFolder(root, policy) if policy else RunFolder(root)
