"""Films the first episode of an evaluation. The episode is played again, so that the evaluation stays unchanged."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from remuda.config.errors import NoExit
from remuda.config.schema import ExperimentConfig
from remuda.environments.films import PicturedEnv, drawn_unseen, encoder, gif_of
from remuda.environments.make import make_single
from remuda.environments.seeding import episode_seed, generator
from remuda.evaluator.evaluate import evaluate
from remuda.policy.base import Policy
from remuda.wire.messages import MOST_FILM_BYTES, Film

MOST_STEPS = 1_000
"""Most steps in a film."""
MOST_PICTURES = 200
"""The most pictures of a film; of longer episodes every n-th step is shown."""
MOST_PLAYING_S = 15.0
"""Most seconds of filming. The film then ends early, since the end of a run waits for its last film."""


class _GivenUpError(Exception):
    """Filming was stopped by its caller."""


class _LongEnoughError(Exception):
    """MOST_PLAYING_S have passed."""


class Films:
    """Films the first evaluation at or after each multiple of `log.film_interval_env_steps`.

    A problem is reported once, in `take_warnings`, and ends the films, but never the evaluation.
    """

    def __init__(self, config: ExperimentConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """Check at once whether the environment can be filmed here, by a first picture. `clock`: seconds."""
        self._config = config
        self._clock = clock
        self._env: PicturedEnv | None = None
        self._interval_env_steps = config.log.film_interval_env_steps
        self._reached = -1
        """Number of intervals passed at the newest film."""
        self._warnings: list[str] = []
        if self._interval_env_steps is None or not config.evaluator.episodes:
            return
        try:
            self._begin()
        except Exception as error:  # no display, no renderer, no encoder, or any error of the environment
            self._end(error)

    def due(self, env_step: int) -> bool:
        """Return True if the evaluation of a checkpoint of this step needs a film."""
        return self._env is not None and self._passed(env_step) != self._reached

    def film(
        self, policy: Policy, *, env_step: int, steps: int, go_on: Callable[[int], bool] = lambda env_steps: True
    ) -> Film | None:
        """Film the first episode of the evaluation, of `steps` steps, with the policy of the checkpoint of `env_step`.

        `go_on` receives the number of further steps, and returns False to stop. Returns None without a film.
        """
        env = self._env
        if env is None:
            return None
        try:
            self._play(env, policy, min(steps, MOST_STEPS), go_on)
            gif = gif_of(env.pictures, env.fps, most_bytes=MOST_FILM_BYTES)
        except _GivenUpError:
            return None
        except Exception as error:  # any error of rendering
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
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _begin(self) -> None:
        encoder()
        with NoExit(), drawn_unseen():
            self._env = PicturedEnv(
                make_single(self._config.env, source_dir=self._config.source_dir, render_mode="rgb_array")
            )
            self._env.reset(seed=0)

    def _play(self, env: PicturedEnv, policy: Policy, steps: int, go_on: Callable[[int], bool]) -> None:
        """Take pictures of the first episode of evaluations. Raises _GivenUpError, and as the environment."""
        end_s = self._clock() + MOST_PLAYING_S

        def stepped(env_steps: int) -> None:
            if not go_on(env_steps):
                raise _GivenUpError
            if self._clock() >= end_s:
                raise _LongEnoughError

        env.begin(every=-(-steps // (MOST_PICTURES - 2)))  # without the pictures of reset and end
        with NoExit(), contextlib.suppress(_LongEnoughError):
            evaluate(
                [env],
                policy,
                seeds=[episode_seed(self._config.seed, 0)],
                rng=generator(self._config.seed, "evaluator", 0, "film"),
                max_episode_steps=steps,
                progress=stepped,
            )

    def _end(self, error: Exception) -> None:
        self._warnings.append(f"evaluations are not filmed: {type(error).__name__}: {error}")
        try:
            with NoExit():
                self.close()
        except Exception as second:  # any error of closing
            self._warnings.append(f"the environment that was to be filmed cannot be closed: {second}")

    def _passed(self, env_step: int) -> int:
        return env_step // (self._interval_env_steps or 1)
