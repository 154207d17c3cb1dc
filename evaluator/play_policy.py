"""Plays a policy given as a plain function, for scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np

from remuda.environments.make import SingleEnv
from remuda.environments.seeding import episode_seed
from remuda.evaluator.evaluate import Episode, episode_report, evaluate, outcome
from remuda.logbook.lines import grid
from remuda.policy.base import Actor
from remuda.policy.files.functions import GetAction


def run_policy(
    env: SingleEnv,
    get_action: Callable[[object], object],
    *,
    episodes: int = 100,
    max_episode_steps: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> list[Episode]:
    """Play episodes with `get_action`, a function from an observation to an action, and return the episodes.

    A true attribute `uses_legal_actions` of `get_action` adds the legal actions as an argument; an attribute
    `begin_episode` is called before each episode. Functions of `load_policy` may have both. `say` receives every
    episode and the summary. Equal seeds play equal episodes, like `remuda evaluate --seed`. An environment made for
    render_mode "human" shows the episodes. Raises EvaluationError, and errors of environment and function.
    """

    def finished(episode: Episode, count: int) -> None:
        say(episode_report(episode, count, train_iter=0, env_step=0).text())

    played = evaluate(
        [env],
        _OneByOne(get_action),
        seeds=[episode_seed(seed, number) for number in range(episodes)],
        rng=np.random.default_rng(seed),
        max_episode_steps=max_episode_steps,
        finished=finished,
    )
    say(grid(outcome(played)))
    return played


class _OneByOne(Actor):
    """Calls the function for each observation."""

    keeps_float64 = True  # a function of a policy that normalises needs every digit
    state_size = 1
    """Above 0 after the first step of the episode."""

    def __init__(self, get_action: Callable[[object], object]) -> None:
        self._get_action = get_action
        self.uses_legal_actions = bool(getattr(get_action, "uses_legal_actions", False))
        self._begin_episode: Callable[[], None] | None = getattr(get_action, "begin_episode", None)

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the actions of the function, which handles randomness and memory of the only episode."""
        if state is not None and self._begin_episode is not None and not state.any():
            self._begin_episode()
        if state is not None:
            state[:] = 1.0
        if legal is None:
            return np.stack([np.asarray(self._get_action(observation)) for observation in observations])
        told = cast("GetAction", self._get_action)
        pairs = zip(observations, legal, strict=True)
        return np.stack([np.asarray(told(observation, legal_actions=mask)) for observation, mask in pairs])
