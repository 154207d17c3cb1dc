"""Plays policies for `remuda evaluate`, and prints the results."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TextIO

from remuda.cli.chosen_policy import EvaluateOptions, PlayedPolicies
from remuda.cli.errors import InputError, RunFailedError
from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import SCORE, assigned
from remuda.environments.copies import LocalCopies, agents_of, local_copies
from remuda.environments.errors import EnvironmentBuildError, RestartLimit
from remuda.environments.films import EpisodeFilms, draw_unseen
from remuda.environments.lanes import AGENT
from remuda.environments.make import make_parallel
from remuda.environments.rebuild import distrusted_environment, rebuild, trusted_source_dir
from remuda.environments.seeding import episode_seed, generator
from remuda.evaluator import evaluate as evaluating
from remuda.evaluator.evaluate import EvaluationError, Game, Player, episode_report
from remuda.evaluator.play_policy import outcome
from remuda.evaluator.player import players_against, score
from remuda.logbook.lines import grid
from remuda.policy.files.playable import NewestPolicy, Playable, evaluated_at, require_fit
from remuda.storage.run_folder import RunFolder, folder_of_policy
from remuda.training.journal import is_queued
from remuda.training.journal_database import is_open
from remuda.wire.messages import CheckpointRecord

LOOK_INTERVAL_S = 0.5
"""Seconds between two searches for a newer policy."""


class EpisodeView:
    """Plays and prints episodes, in environments built once."""

    def __init__(
        self,
        options: EvaluateOptions,
        output: TextIO,
        run: ExperimentConfig | None = None,
        *,
        mode: str | None = None,
    ) -> None:
        """Write results to `output`. `run` has the settings of a run with several agents; None: the first policy names
        the environment. `mode` is the render mode."""
        self.options, self._run, self._mode = options, run, mode
        self._output = output
        self._copies: LocalCopies | None = None
        self._agents: Mapping[str, Sequence[str]] = {"": (AGENT,)}
        """Agents of each policy."""
        self._film: EpisodeFilms | None = None

    def __enter__(self) -> EpisodeView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._film is not None:
            self._film.cut()
        if self._copies is not None:
            for env in self._copies.envs:
                env.close()

    @property
    def shows(self) -> bool:
        """True if episodes are shown on a display."""
        return self._mode == "human"

    def say(self, text: str) -> None:
        """Print a line for people: on standard output, or with --json on standard error."""
        print(text, file=sys.stderr if self.options.as_json else self._output, flush=True)

    def play(self, policies: PlayedPolicies) -> None:
        """Play and print the results. Raises CommandError."""
        for name, playable in policies.playables.items():
            self.say(_introduced(playable, policies.record, name))
        for name, playable in (policies.others or {}).items():
            self.say(_introduced(playable, None, name))
        copies = self._copies or self._build(policies.first)
        films = 0
        if self._film is not None:
            self._film.begin(f"iteration_{policies.first.train_iter}")
            films = len(self._film.written)
        games = self._played(copies, policies)
        videos = [] if self._film is None else self._film.written[films:]
        if self.options.as_json:
            content = self._content(policies, games) | ({"videos": [str(video) for video in videos]} if videos else {})
            print(json.dumps(content, indent=None if self.options.follow else 2), file=self._output, flush=True)
            return
        for name, result in self._outcomes(policies, games).items():
            self.say(f"\n{grid(result)}" if self._run is None else f"\n{name or 'policy'}:\n{grid(result)}")
        if self._run is not None:
            self.say(f"\nmean return of each agent:\n{grid(_means(games))}")
        for video in videos:
            self.say(f"recorded {video}")

    def _build(self, playable: Playable) -> LocalCopies:
        options, mode = self.options, self._mode
        if mode is not None:
            os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it prints a greeting on standard output
        if mode == "rgb_array":
            draw_unseen()
        try:
            run = None if self._run is None else self._at_its_task(self._run, playable)
            env = playable.env if run is None else run.env
            count = 1 if mode is not None else min(options.number, env.num_envs)
            copies = self._one_agent(playable, count) if run is None else self._several_agents(run, count)
            self._copies = copies
            if run is None:
                for one in copies.envs:
                    require_fit(playable, one)
            if options.record is not None:
                self._film = EpisodeFilms(copies.envs[0], options.record)
        except EnvironmentBuildError as error:
            hint = "\nWith -nr the episodes are not shown, and no display is needed." if mode == "human" else ""
            raise InputError(f"{error}{hint}") from error
        return copies

    def _one_agent(self, playable: Playable, count: int) -> LocalCopies:
        options = self.options
        build = partial(
            rebuild,
            playable.env,
            source_dir=playable.source_dir,
            run_dir=options.folder,
            render_mode=self._mode,
            trust_code=options.trust_code,
        )
        return local_copies(playable.env, {}, range(count), source_dir=playable.source_dir, build=build)

    def _several_agents(self, run: ExperimentConfig, count: int) -> LocalCopies:
        source_dir, options = run.source_dir, self.options
        if not options.trust_code:
            distrusted = distrusted_environment(run.env, source_dir=source_dir, run_dir=options.folder)
            if distrusted is not None:
                raise EnvironmentBuildError(distrusted)
            source_dir = trusted_source_dir(source_dir, run_dir=options.folder)
        agents = assigned(run, agents_of(run.env, source_dir=source_dir))
        self._agents = {name: agents[name] for name in options.playing(run)}
        build = partial(make_parallel, run.env, source_dir=source_dir, render_mode=self._mode)
        limit = RestartLimit(run.env.restarts_per_hour, partial(print, file=sys.stderr))
        return local_copies(run.env, self._agents, range(count), source_dir=source_dir, limit=limit, build=build)

    def _at_its_task(self, run: ExperimentConfig, first: Playable) -> ExperimentConfig:
        """Return the settings with the environment in which this checkpoint of the first policy was evaluated."""
        ckpt = folder_of_policy(self.options.folder, self.options.playing(run)[0]).ckpt
        return evaluated_at(run, ckpt, first.train_iter)

    def _played(self, copies: LocalCopies, policies: PlayedPolicies) -> Sequence[Game]:
        """Return all episodes; after Ctrl-C the finished episodes, if any."""
        options = self.options
        seed = policies.first.seed if options.seed is None else options.seed
        if self._run is not None and options.seed is None:
            seed = self._run.seed
        over: list[Game] = []

        def finished(game: Game, count: int) -> None:
            with _ctrl_c_waits():  # else an episode could be counted and not shown
                over.append(game)
                if not options.as_json:
                    self.say(self._line(game, count))

        seats = self._seats(policies)
        try:
            with NoExit():
                over = evaluating.play(
                    copies,
                    lambda position: seats(position)[1],
                    seeds=[episode_seed(seed, number) for number in range(options.number)],
                    rng=generator(seed, "evaluator", 0, "actions"),
                    max_episode_steps=options.length or None,
                    episode_info=policies.first.env.episode_info,
                    finished=finished,
                    camera=self._film,
                )
        except KeyboardInterrupt:
            if self._film is not None:
                self._film.drop()
            if options.follow or not over:
                raise
            self.say(f"interrupted: {len(over)} of {options.number} episodes were finished")
        except (EvaluationError, EnvironmentBuildError, OSError) as error:
            raise RunFailedError(f"the evaluation failed: {error}") from error
        if self._film is not None:
            self._film.cut()
        return over

    def _seats(self, policies: PlayedPolicies) -> Callable[[int], tuple[str, Mapping[str, Player]]]:
        """Return a function of the episode's number: the judged agent (empty: all agents) and the
        player of each agent."""
        players = {name: self._player(playable) for name, playable in policies.playables.items()}
        if policies.judged is None or policies.others is None:
            everybody = {agent: players[name] for name, its in self._agents.items() for agent in its}
            return lambda number: ("", everybody)
        names = list(self._agents)
        others = [[self._player(playable)] for playable in policies.others.values()]
        judged, agents = names.index(policies.judged), [self._agents[name] for name in names]
        return lambda number: players_against(number, judged, [players[name] for name in names], others, agents)

    def _player(self, playable: Playable) -> Player:
        return Player(playable.actor, None if self.options.deterministic else playable.least_exploration)

    def _line(self, game: Game, count: int) -> str:
        """A finished episode, for people."""
        if self._run is None:
            return episode_report(game.of_policy((AGENT,)), count, train_iter=0, env_step=0).text()
        returns = ", ".join(f"{agent} {value:.6g}" for agent, value in game.returns.items())
        return f"episode {count}: {game.length} steps; {returns}"

    def _outcomes(self, policies: PlayedPolicies, games: Sequence[Game]) -> dict[str, dict[str, float]]:
        """Summarize each policy, or the judged policy."""
        info = policies.first.env.episode_info
        if policies.judged is not None and policies.others is not None:
            own = self._agents[policies.judged]
            judged = [own[number % len(own)] for number in range(len(games))]
            result = outcome([game.of_policy([agent]) for agent, game in zip(judged, games, strict=True)], info)
            if self._run is not None and self._run.self_play.league is not None:
                result[SCORE] = sum(map(score, games, judged)) / len(games)
            return {policies.judged: result}
        return {name: outcome([game.of_policy(its) for game in games], info) for name, its in self._agents.items()}

    def _content(self, policies: PlayedPolicies, games: Sequence[Game]) -> dict[str, object]:
        """Return the results for --json."""
        outcomes, deterministic = self._outcomes(policies, games), self.options.deterministic
        if self._run is None:
            playable = policies.first
            return {
                "checkpoint": str(playable.source),
                "train_iter": playable.train_iter,
                "env_step": playable.env_step,
                "deterministic": deterministic,
                **outcomes[""],
                "each": [{"seed": one.seed, "return": one.returns[AGENT], "length": one.length} for one in games],
            }
        return {
            "deterministic": deterministic,
            "against": self.options.against,
            "policies": {name or "policy": result for name, result in outcomes.items()},
            "agents": _means(games),
            "each": [{"seed": one.seed, "returns": one.returns, "length": one.length} for one in games],
        }


def _means(games: Sequence[Game]) -> dict[str, float]:
    return {agent: sum(game.returns[agent] for game in games) / len(games) for agent in games[0].returns}


@contextmanager
def _ctrl_c_waits() -> Generator[None]:
    """Delay Ctrl-C until the end of the body."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if heard:
        raise KeyboardInterrupt


def _introduced(playable: Playable, record: CheckpointRecord | None, policy: str) -> str:
    step = "" if playable.env_step is None else f", env_step {playable.env_step}"
    reward = "" if record is None or record.reward is None else f", mean return when evaluated {record.reward:.6g}"
    kind = {".tar": "checkpoint", ".pt": "model", ".onnx": "exported policy"}.get(playable.source.suffix, "policy")
    text = f"{kind} {playable.source} (train_iter {playable.train_iter}{step}{reward})"
    return f"{policy}: {text}" if policy else text


def follow_run(view: EpisodeView, *, policies: Sequence[str] = ()) -> None:
    """Play every newer policy until the end of the run, including the last policy; Ctrl-C ends the command earlier.
    Waits for a queued run.

    If episodes are shown, a policy plays until a newer policy exists. `policies` are the names of several policies,
    which play together. Raises CommandError.
    """
    options = view.options
    run_dir, search = options.run_dir, not options.no_search
    newest = {
        name: NewestPolicy(folder_of_policy(run_dir, name), trust_code=options.trust_code, search=search)
        for name in policies or [""]
    }
    journal, current = RunFolder(run_dir).journal, dict[str, Playable]()
    played, has_waited = 0, False
    try:
        while True:
            # Before looking for a policy: the last one may be written in between. A journal that is opened between the
            # first two looks is noticed by the third.
            opened = is_open(journal)
            queued = not opened and is_queued(journal)
            goes_on = opened or queued or is_open(journal)
            newer = {name: found for name, one in newest.items() if (found := one.newer()) is not None}
            current |= newer
            if not newer and not goes_on:
                break
            if not newer and queued and not has_waited:
                has_waited = True
                view.say("it waits for workers")
            if len(current) < len(newest) or not (newer or view.shows):
                time.sleep(LOOK_INTERVAL_S)
                continue
            played += bool(newer)
            view.play(PlayedPolicies({name: current[name] for name in newest}))
    except KeyboardInterrupt:
        view.say(f"no longer following; the run was not touched (policies played: {played})")
        return
    if not played:
        raise InputError(f"{run_dir} has no policy to play: the run is over, and no checkpoint was saved")
    view.say(f"the run is over (policies played: {played})")
