"""Plays seeded episodes with a policy, one episode per seed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from remuda.config.errors import Error
from remuda.environments.episode_info import DISCOUNTED_RETURN, of_single
from remuda.environments.faults import REPLACED
from remuda.environments.legal_actions import (
    ACTION_MASK,
    Components,
    Legal,
    components_of,
    legal_of_each,
    without_any,
)
from remuda.environments.make import SingleEnv
from remuda.environments.seeding import replacement_seed
from remuda.environments.spaces import Array, column_layout
from remuda.logbook.statistics import merged
from remuda.policy.base import Actor


class EvaluationError(Error, ValueError):
    """An environment returned a number that is not finite, so the episode has no return; or it has no legal action."""


@dataclass(frozen=True)
class Episode:
    """One finished episode."""

    seed: int
    env_index: int
    """Which of the environments played it."""
    return_: float
    """Undiscounted sum of rewards."""
    length: int
    """Steps."""
    info: Mapping[str, float] = field(default_factory=dict[str, float])
    """By name: the discounted return, if there is a discount, and the requested values that the environment reported
    with the last step."""
    cut: bool = False
    """It had not ended: `max_episode_steps` cut it."""


def merged_info(episodes: Sequence[Episode]) -> dict[str, list[float]]:
    """The `info` of the episodes, in their order, by name."""
    return merged({name: [value] for name, value in episode.info.items()} for episode in episodes)


@dataclass(frozen=True)
class Turn:
    """An episode that is to be played."""

    position: int
    """Position of its seed among all seeds."""
    seed: int
    broken: int = 0
    """How often its environment broke."""

    def again(self) -> Turn:
        """After its environment broke: with the same seed the first time, then with others."""
        seed = replacement_seed(self.seed) if self.broken else self.seed
        return Turn(self.position, seed, self.broken + 1)


@dataclass
class _RunningEpisode:
    """An episode that is not over, and the environment that plays it."""

    env_index: int
    env: SingleEnv
    turn: Turn
    observation: Array
    state: Array
    """float32 [Actor.state_size]: what the actor carries through it."""
    return_: float = 0.0
    discounted: float = 0.0
    weight: float = 1.0
    """Weight of the next reward in `discounted`."""
    length: int = 0
    info: Mapping[str, object] = field(default_factory=dict[str, object])
    """The info of the newest step, or of the reset."""


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
    progress: Callable[[int], None] = lambda env_steps: None,
    finished: Callable[[Episode, int], None] = lambda episode, count: None,
    acted: Callable[[Array], None] = lambda actions: None,
) -> list[Episode]:
    """Play exactly one episode per seed and return them in the order of `seeds`.

    Each environment plays one episode after another, reset with the episode's own seed; the policy acts for all of them
    at once. Every episode that is begun is counted, so short ones are not favoured. With a deterministic policy an
    episode's result depends on its seed alone, not on how many environments share the work (except for the last bits,
    which a network's batch size may change).

    An environment that was made again because it broke (REPLACED) plays its episode again from the start, with the same
    seed, or with another one if that broke it before. What was played until then is no result.

    The policy is deterministic unless there is `exploration`, which uses `rng`. `max_episode_steps` ends an episode
    early. `episode_info` names what environments report of an episode with its last step. With `discount` the
    discounted return is computed, too. `progress` is called with the number of steps as they are taken; `finished` with
    each episode and the number finished so far; `acted` with the actions [n, …] of each step. With environments made
    for `render_mode="human"` the episodes are shown.

    Raises EvaluationError, ValueError without environments, and whatever environments or policy raise.
    """
    if not envs:
        raise ValueError("an evaluation needs at least one environment")
    shape, dtype = column_layout(envs[0].observation_space, what="observation", keeps_float64=policy.keeps_float64)
    act = _acting(policy, envs[0], exploration, rng)
    waiting = deque(Turn(position, seed) for position, seed in enumerate(seeds))
    size = policy.state_size
    playing = [_begin(index, env, waiting.popleft(), size) for index, env in enumerate(envs[: len(seeds)])]
    episodes: dict[int, Episode] = {}
    while playing:
        observations = np.empty((len(playing), *shape), dtype)
        for row, running in enumerate(playing):
            observations[row] = running.observation
        actions = act(observations, playing)
        acted(actions)
        progress(len(playing))
        still_playing: list[_RunningEpisode] = []
        for running, action in zip(playing, actions, strict=True):
            over = _step(running, action, discount=1.0 if discount is None else discount)
            if REPLACED in running.info:
                still_playing.append(_begin(running.env_index, running.env, running.turn.again(), size))
                continue
            if not over and running.length != max_episode_steps:
                still_playing.append(running)
                continue
            reported = of_single(running.info, episode_info)
            if discount is not None and math.isfinite(running.discounted):
                reported = {DISCOUNTED_RETURN: running.discounted, **reported}
            episodes[running.turn.position] = Episode(
                running.turn.seed, running.env_index, running.return_, running.length, reported, cut=not over
            )
            finished(episodes[running.turn.position], len(episodes))
            if waiting:
                still_playing.append(_begin(running.env_index, running.env, waiting.popleft(), size))
        playing = still_playing
    return [episodes[position] for position in range(len(seeds))]


def _begin(env_index: int, env: SingleEnv, turn: Turn, state_size: int) -> _RunningEpisode:
    while True:
        observation, info = env.reset(seed=turn.seed)
        if REPLACED not in info:
            return _RunningEpisode(env_index, env, turn, observation, np.zeros(state_size, np.float32), info=info)
        turn = turn.again()  # the new environment has begun with a seed of its own


def _acting(
    policy: Actor, env: SingleEnv, exploration: Mapping[str, float] | None, rng: np.random.Generator
) -> Callable[[Array, Sequence[_RunningEpisode]], Array]:
    """From the observations of those that are playing to their actions."""
    deterministic, explored = exploration is None, exploration or {}
    components = components_of(env.action_space) if policy.uses_legal_actions else ()

    def act(observations: Array, playing: Sequence[_RunningEpisode]) -> Array:
        legal = _legal(playing, components) if components else None
        state = np.stack([running.state for running in playing]) if policy.state_size else None
        actions = policy.act(observations, explored, rng, deterministic=deterministic, legal=legal, state=state)
        if state is not None:
            for running, carried in zip(playing, state, strict=True):
                running.state = carried
        return actions

    return act


def _legal(playing: Sequence[_RunningEpisode], components: Components) -> Legal | None:
    """Which actions are legal: [playing, values]. Raises EvaluationError where an environment says that none is."""
    legal = legal_of_each([running.info for running in playing], components=components)
    if legal is not None and (stuck := without_any(legal, components)).any():
        running = playing[int(stuck.argmax())]
        raise EvaluationError(
            f"environment {running.env_index} has no legal action (info[{ACTION_MASK!r}]) after step {running.length} "
            f"of the episode with seed {running.turn.seed}, which goes on"
        )
    return legal


def _step(running: _RunningEpisode, action: object, *, discount: float) -> bool:
    """Take one step; return whether the episode ended."""
    running.observation, reward, terminated, truncated, running.info = running.env.step(action)
    paid = float(reward)
    running.return_ += paid
    running.discounted += running.weight * paid
    running.weight *= discount
    running.length += 1
    if not (math.isfinite(running.return_) and np.isfinite(running.observation).all()):
        raise EvaluationError(
            f"environment {running.env_index} returned a reward or an observation that is not finite "
            f"at step {running.length} of the episode with seed {running.turn.seed}"
        )
    return bool(terminated or truncated)
