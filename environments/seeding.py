"""All random numbers of an experiment: one seed per environment, one stream per purpose.

Everything is derived from the experiment's seed and a name, never from a shared stream, so no number depends on the
speed of a worker.

- A *stream* (`generator`) is numpy's SeedSequence with the experiment's seed as entropy and (owner, index,
  incarnation, purpose) as spawn key.
- An *environment seed* must fit into 31 bits, since simulators store seeds in a C int. Hashes of so few bits would give
  two environments of a large herd the same seed. So (role, index, environment) is packed into 31 bits, then shuffled by
  an odd multiplier and an offset hashed from the experiment's seed. Both steps are reversible modulo 2**31, so
  different environments of an experiment have different seeds.
- *Episode seeds* of evaluations use a quarter of the 31 bits, unused by workers. They depend only on the number of the
  episode: every evaluation plays the same episodes, on any evaluator.
- A replacement of a broken environment has a seed hashed from the old seed (`replacement_seed`); equal seeds are very
  unlikely.

A restarted worker passes its incarnation to get other first states. The incarnation changes only the offset: within one
incarnation all seeds are different; across incarnations equal seeds are very unlikely.
"""

from __future__ import annotations

import zlib
from typing import Literal, TypeAlias

import numpy as np

from remuda.wire.messages import Role

StreamOwner: TypeAlias = Role | Literal["coordinator"]
EnvironmentOwner: TypeAlias = Literal["collector", "evaluator", "learner"]
"""Roles with environments."""

MAX_WORKERS_PER_ROLE = 1 << 13
MAX_ENVS_PER_WORKER = 1 << 16
MAX_EPISODES = 1 << 29

_OWNERS: tuple[StreamOwner, ...] = ("collector", "evaluator", "learner", "coordinator", "reanalyzer", "inference")
_EPISODES = 3  # the quarter of the 31 bits that no worker's environments use: the coordinator has none
_MODULUS = 1 << 31
_GENERATIONS = 1 << 32  # of a worker's place; there are fewer
_REPLACEMENT = (1, 1, 1)  # not the spawn key of an offset or of a stream
_MULTIPLIER = 0x2545F491  # odd, so it is a permutation modulo 2**31; spreads neighbouring numbers


def environment_seeds(
    seed: int, role: EnvironmentOwner, index: int, num_envs: int, *, incarnation: int = 0
) -> list[int]:
    """Return a seed in [0, 2**31) for each environment of a worker, all different within an experiment (for
    incarnations see above).

    Raises ValueError beyond MAX_WORKERS_PER_ROLE workers or MAX_ENVS_PER_WORKER environments.
    """
    _within("worker index", index, MAX_WORKERS_PER_ROLE)
    _within("number of environments", num_envs, MAX_ENVS_PER_WORKER + 1)
    first = _OWNERS.index(role) * MAX_EPISODES + index * MAX_ENVS_PER_WORKER
    return [_deal(seed, first + env, incarnation) for env in range(num_envs)]


def incarnation_at(generation: int, task: int) -> int:
    """Return a number unique to this generation and task of environments."""
    return generation + task * _GENERATIONS


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed in [0, 2**31) of an evaluation's episode; the same at every evaluation.

    Raises ValueError beyond MAX_EPISODES.
    """
    _within("episode", episode, MAX_EPISODES)
    return _deal(seed, _EPISODES * MAX_EPISODES + episode, 0)


def replacement_seed(seed: int) -> int:
    """Return the seed in [0, 2**31) for the replacement of an environment, or episode, with this seed."""
    return int(np.random.SeedSequence(seed, spawn_key=_REPLACEMENT).generate_state(1)[0]) % _MODULUS


def generator(seed: int, owner: StreamOwner, index: int, purpose: str, *, incarnation: int = 0) -> np.random.Generator:
    """Return the stream of random numbers of `owner` number `index` for `purpose`, independent of all others."""
    key = (_OWNERS.index(owner), index, incarnation, zlib.crc32(purpose.encode()))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _deal(seed: int, ordinal: int, incarnation: int) -> int:
    offset = int(np.random.SeedSequence(seed, spawn_key=(incarnation,)).generate_state(1)[0])
    return (offset + ordinal * _MULTIPLIER) % _MODULUS


def _within(what: str, value: int, limit: int) -> None:
    if not 0 <= value < limit:
        raise ValueError(f"{what} {value} has no seed of its own: it must be at least 0 and below {limit}")
