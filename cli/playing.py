"""How `remuda evaluate` plays policies and prints the results."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from remuda.cli.errors import InputError, RunFailedError
from remuda.config.errors import NoExit
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.films import FilmedEnv, draw_unseen
from remuda.environments.make import SingleEnv
from remuda.environments.rebuild import rebuild
from remuda.environments.seeding import episode_seed, generator
from remuda.evaluator.checkpoint_player import episode_report
from remuda.evaluator.evaluate import Episode, EvaluationError, evaluate
from remuda.evaluator.outcome import outcome
from remuda.logbook.lines import grid
from remuda.policy.files.playable import Playable, require_fit
from remuda.wire.messages import CheckpointRecord


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The values of the options."""

    run_dir: Path
    episodes: int
    length: int
    """Longest episode in steps; 0 keeps the environment's own limit."""
    deterministic: bool
    render_mode: str | None
    record: Path | None
    trust_code: bool
    seed: int | None
    as_json: bool
    follows: bool
    """Policies are played one after another: each JSON is one line, and Ctrl-C ends everything at once."""


class Player:
    """Plays episodes of one or more policies, in environments that are built once."""

    def __init__(self, asked: Asked, output: TextIO) -> None:
        """Results are written to `output`."""
        self._asked = asked
        self._output = output
        self._envs: list[SingleEnv] = []
        self._film: FilmedEnv | None = None

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for env in self._envs:
            env.close()

    @property
    def shows(self) -> bool:
        """Whether episodes are shown on a display."""
        return self._asked.render_mode == "human"

    def say(self, text: str) -> None:
        """Print a line for people: on standard output, or with --json on standard error."""
        print(text, file=sys.stderr if self._asked.as_json else self._output, flush=True)

    def play(self, playable: Playable, record: CheckpointRecord | None = None) -> None:
        """Play one policy and print the results; `record` is its record in index.json. Raises CommandError."""
        self.say(_introduced(playable, record))
        self._build(playable)
        recorded = 0
        if self._film is not None:
            self._film.begin(f"iteration_{playable.train_iter}")
            recorded = len(self._film.written)
        played = self._played(playable)
        videos = [] if self._film is None else self._film.written[recorded:]
        if self._asked.as_json:
            content = _content(playable, played, videos, deterministic=self._asked.deterministic)
            print(json.dumps(content, indent=None if self._asked.follows else 2), file=self._output, flush=True)
            return
        self.say(f"\n{grid(outcome(played))}")
        for video in videos:
            self.say(f"recorded {video}")

    def _build(self, playable: Playable) -> None:
        if self._envs:
            return
        asked, mode = self._asked, self._asked.render_mode
        if mode is not None:
            os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it prints a greeting on standard output
        if mode == "rgb_array":
            draw_unseen()
        count = 1 if mode is not None else min(asked.episodes, playable.env.num_envs)
        try:
            for _ in range(count):
                env = rebuild(
                    playable.env,
                    source_dir=playable.source_dir,
                    run_dir=asked.run_dir,
                    render_mode=mode,
                    trust_code=asked.trust_code,
                )
                self._envs.append(env)
                require_fit(playable, env)
            if asked.record is not None:
                self._film = FilmedEnv(self._envs[0], asked.record)
                self._envs[0] = self._film
        except EnvironmentBuildError as error:
            hint = "\nWith -nr the episodes are not shown, and no display is needed." if mode == "human" else ""
            raise InputError(f"{error}{hint}") from error

    def _played(self, playable: Playable) -> Sequence[Episode]:
        """All episodes, or after Ctrl-C the finished ones, if there are any."""
        asked = self._asked
        seed = playable.seed if asked.seed is None else asked.seed
        over: list[Episode] = []

        def finished(episode: Episode, count: int) -> None:
            with _ctrl_c_waits():  # else an episode could be counted and not shown
                over.append(episode)
                if not asked.as_json:
                    self.say(episode_report(episode, count, train_iter=0, env_step=0).text())

        try:
            with NoExit():
                over = evaluate(
                    self._envs,
                    playable.actor,
                    seeds=[episode_seed(seed, number) for number in range(asked.episodes)],
                    rng=generator(seed, "evaluator", 0, "actions"),
                    exploration=None if asked.deterministic else playable.least_exploration,
                    max_episode_steps=asked.length or None,
                    finished=finished,
                )
        except KeyboardInterrupt:
            if self._film is not None:
                self._film.drop()
            if asked.follows or not over:
                raise
            self.say(f"interrupted: {len(over)} of {asked.episodes} episodes were finished")
        except (EvaluationError, EnvironmentBuildError, OSError) as error:
            raise RunFailedError(f"the evaluation failed: {error}") from error
        if self._film is not None:
            self._film.cut()
        return over


@contextmanager
def _ctrl_c_waits() -> Generator[None]:
    """Ctrl-C is heard at the end of this block, where Python would have raised KeyboardInterrupt within it."""
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


def _introduced(playable: Playable, record: CheckpointRecord | None) -> str:
    step = "" if playable.env_step is None else f", env_step {playable.env_step}"
    reward = "" if record is None or record.reward is None else f", mean return when evaluated {record.reward:.6g}"
    kind = {".tar": "checkpoint", ".pt": "model", ".onnx": "exported policy"}.get(playable.source.suffix, "policy")
    return f"{kind} {playable.source} (train_iter {playable.train_iter}{step}{reward})"


def _content(
    playable: Playable, episodes: Sequence[Episode], videos: Sequence[Path], *, deterministic: bool
) -> dict[str, object]:
    content: dict[str, object] = {
        "checkpoint": str(playable.source),
        "train_iter": playable.train_iter,
        "env_step": playable.env_step,
        "deterministic": deterministic,
        **outcome(episodes),
        "each": [{"seed": one.seed, "return": one.return_, "length": one.length} for one in episodes],
    }
    return content | ({"videos": [str(video) for video in videos]} if videos else {})
