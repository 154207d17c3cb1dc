"""Films the first episode of an evaluation. The episode is played again, to leave the evaluation unchanged."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.copies import LocalCopies, local_copies
from remuda.environments.films import Pictures, drawn_unseen, encoder, gif_of
from remuda.environments.lanes import AGENT
from remuda.environments.make import make_parallel, make_single
from remuda.environments.seeding import episode_seed, generator
from remuda.evaluator.evaluate import Player, play
from remuda.policy.base import Policy
from remuda.wire.messages import MOST_FILM_BYTES, Film

MOST_STEPS = 1_000
"""Most steps in a film."""
MOST_PLAYING_S = 15.0
"""Most seconds of filming. The film then ends early, since the end of a run waits for the last film."""


class _GivenUpError(Exception):
    """Filming was stopped by its caller."""


class _LongEnoughError(Exception):
    """MOST_PLAYING_S have passed."""


class Films:
    """Films the first evaluation at or after each multiple of `log.film_interval_env_steps`.

    A problem is reported once, in `take_warnings`, and ends the films, but never the evaluation.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        agents: Sequence[Sequence[str]] = ((AGENT,),),
        explorations: Sequence[Mapping[str, float] | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check at once, by a first picture, if the environment can be filmed here. `agents` has the names of the
        agents of each policy; of the first alone in a league. `explorations`: of each policy, None for the best
        actions."""
        self._config, self._agents = config, agents
        self._explorations = explorations or [None] * len(agents)
        self._clock = clock
        self._copies: LocalCopies | None = None
        self._pictures: Pictures | None = None
        self._interval_env_steps = config.log.film_interval_env_steps
        self._reached = -1
        """Number of intervals passed at the newest film."""
        self._warnings: list[str] = []
        if self._interval_env_steps is None or not config.evaluator.episodes:
            return
        try:
            self._begin()
        except Exception as error:  # no display, no renderer, no encoder: whatever the environment makes of that
            self._end(error)

    def due(self, env_step: int) -> bool:
        """Return True if the evaluation of a checkpoint of this step needs a film."""
        return self._pictures is not None and self._passed(env_step) != self._reached

    def film(
        self,
        policies: Sequence[Policy],
        *,
        env_step: int,
        go_on: Callable[[int], bool] = lambda env_steps: True,
    ) -> Film | None:
        """Film the first episode of the evaluation, with the policies of the checkpoints of `env_step`. With
        exploration the film is of another episode with the same seed.

        `go_on` receives the number of further steps, and returns False to stop. Returns None without a film.
        """
        copies, pictures = self._copies, self._pictures
        if copies is None or pictures is None:
            return None
        try:
            self._play(copies, pictures, policies, go_on)
            gif = gif_of(pictures.pictures, pictures.fps, most_bytes=MOST_FILM_BYTES)
        except _GivenUpError:
            return None
        except Exception as error:  # whatever the environment raises where it is rendered
            self._end(error)
            return None
        self._reached = self._passed(env_step)
        return Film(gif.data, gif.height, gif.width)

    def take_warnings(self) -> list[str]:
        """Return new warnings for people."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def close(self) -> None:
        """Close the environment."""
        copies, self._copies, self._pictures = self._copies, None, None
        if copies is not None:
            copies.envs[0].close()

    def _begin(self) -> None:
        encoder()
        config, several = self._config, self._config.env.kind == "pettingzoo"
        make = make_parallel if several else make_single
        build = partial(make, config.env, source_dir=config.source_dir, render_mode="rgb_array")
        assigned = {str(index): its for index, its in enumerate(self._agents)}
        with NoExit(), drawn_unseen():
            copies = self._copies = local_copies(
                config.env, assigned, range(1), source_dir=config.source_dir, build=build
            )
            pictures = Pictures(copies.envs[0])
            copies.reset([0])
            pictures.began()
            self._pictures = pictures

    def _play(
        self,
        copies: LocalCopies,
        pictures: Pictures,
        policies: Sequence[Policy],
        go_on: Callable[[int], bool],
    ) -> None:
        """Take pictures of the first episode of evaluations. Raises _GivenUpError, and as the environment."""
        end_s = self._clock() + MOST_PLAYING_S

        def stepped(env_steps: int) -> None:
            if not go_on(env_steps):
                raise _GivenUpError
            if self._clock() >= end_s:
                raise _LongEnoughError

        players = [Player(*one) for one in zip(policies, self._explorations, strict=False)]
        everybody = {agent: player for player, its in zip(players, self._agents, strict=False) for agent in its}
        with NoExit(), contextlib.suppress(_LongEnoughError):
            play(
                copies,
                lambda position: everybody,
                seeds=[episode_seed(self._config.seed, 0)],
                rng=generator(self._config.seed, "evaluator", 0, "film"),
                max_episode_steps=min(self._config.evaluator.max_episode_steps, MOST_STEPS),
                progress=stepped,
                camera=pictures,
            )

    def _end(self, error: Exception) -> None:
        self._warnings.append(f"evaluations are not filmed: {type(error).__name__}: {error}")
        try:
            with NoExit():
                self.close()
        except Exception as second:  # what cannot draw may not be able to end either
            self._warnings.append(f"the environment that was to be filmed cannot be closed: {second}")

    def _passed(self, env_step: int) -> int:
        return env_step // (self._interval_env_steps or 1)
