"""Plays environments with one agent: an actor, or a policy given as a plain function, for scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from remuda.environments.copies import LocalCopies
from remuda.environments.lanes import AGENT
from remuda.environments.make import SingleEnv
from remuda.environments.seeding import episode_seed
from remuda.evaluator.evaluate import Episode, Player, Progress, episode_report, play
from remuda.logbook.lines import grid
from remuda.logbook.statistics import episode_statistics
from remuda.policy.base import Actor
from remuda.policy.files.functions import GetAction


def evaluate(
    envs: Sequence[SingleEnv],
    policy: Actor,
    *,
    seeds: Sequence[int],
    rng: np.random.Generator,
    exploration: Mapping[str, float] | None = None,
    max_episode_steps: int | None = None,
    episode_info: Sequence[str] = (),
    discount: float | None = None,
    progress: Progress = lambda env_steps: None,
    finished: Callable[[Episode, int], None] = lambda episode, count: None,
) -> list[Episode]:
    """Play episodes of environments with one agent; see `play`. The policy is deterministic without `exploration`.
    Raises ValueError without environments, and like `play`."""
    if not envs:
        raise ValueError("an evaluation needs at least one environment")
    player, only = Player(policy, exploration), (AGENT,)
    games = play(
        LocalCopies.of_one_agent(envs),
        lambda position: {AGENT: player},
        seeds=seeds,
        rng=rng,
        discounts=None if discount is None else {AGENT: discount},
        max_episode_steps=max_episode_steps,
        episode_info=episode_info,
        progress=progress,
        finished=lambda game, count: finished(game.of_policy(only), count),
    )
    return [game.of_policy(only) for game in games]


def outcome(episodes: Sequence[Episode], episode_info: Sequence[str] = ()) -> dict[str, float]:
    """Summarise episodes, under the names of the evaluator's log; with the values of `env.episode_info`."""
    found = {name: [episode.info[name] for episode in episodes if name in episode.info] for name in episode_info}
    info = {name: values for name, values in found.items() if values}
    returns, lengths = [episode.return_ for episode in episodes], [episode.length for episode in episodes]
    return {"episodes": len(episodes), **episode_statistics(returns, lengths, info)}


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
