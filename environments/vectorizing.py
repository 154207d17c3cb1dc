"""Decides whether environments are stepped as objects in one process or in several processes, after timing a copy."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import gymnasium

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.legal_actions import sample_legal
from remuda.environments.spaces import Array, Space

ROUND_TRIP_S = 200e-6
"""Assumed cost of sending a step to processes and waiting for them (measured: 100 us)."""
WORTH_IT = 1.3
"""Expected speedup above which processes are used: a smaller one is within the noise, and objects need less memory."""

_STEPS = 20
_LONGEST_S = 1.0

StepTimer: TypeAlias = Callable[[gymnasium.Env[Array, Any]], float]
"""Steps an environment a few times and returns how long a step takes, in seconds."""


def time_step(env: gymnasium.Env[Array, Any], *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median duration of a few random steps by legal actions, in seconds; resets are not timed.

    Makes fewer steps if they take more than a second in total. Raises what the environment raises.
    """
    env.action_space.seed(0)
    _, info = env.reset(seed=0)
    durations_s: list[float] = []
    while len(durations_s) < _STEPS and sum(durations_s) < _LONGEST_S:
        action = sample_legal(env.action_space, info)
        start_s = clock()
        _, _, terminated, truncated, info = env.step(action)
        durations_s.append(clock() - start_s)
        if terminated or truncated:
            _, info = env.reset()
    return statistics.median(durations_s)


def choose_processes(
    env: EnvConfig,
    build: Callable[[], gymnasium.Env[Array, Any]],
    *,
    num_envs: int,
    sharers: int,
    chosen: Callable[[str], None],
    timer: StepTimer = time_step,
) -> tuple[int, tuple[Space, Space] | None]:
    """Choose the number of processes for the environments, 0 for none, and return the spaces that processes need.

    If there is a choice, a copy is built, timed with `timer` and closed. Raises what building raises.
    """
    cores = usable_cores()
    fair_share = max(cores // sharers, 1)
    if env.vectorization == "sync" or (env.vectorization == "auto" and min(fair_share, num_envs) < 2):
        chosen("environments: sync, objects in one process")
        return 0, None
    copy = build()
    try:
        spaces = cast("tuple[Space, Space]", (copy.observation_space, copy.action_space))
        if env.vectorization == "async":
            processes, why = min(cores, num_envs), "as the config says"
        else:
            processes, why = _timed(copy, timer, num_envs, fair_share)
    finally:
        copy.close()
    how = f"async, {processes} processes" if processes else "sync, objects in one process"
    chosen(f"environments: {how}, {why}")
    return processes, spaces


def _timed(copy: gymnasium.Env[Array, Any], timer: StepTimer, num_envs: int, cores: int) -> tuple[int, str]:
    """How many processes, and why."""
    try:
        with NoExit():
            step_s = timer(copy)
    except Exception as error:  # an environment that always fails will do so again where failures are counted
        return 0, f"since a copy could not be timed: {type(error).__name__}: {error}"
    processes = processes_for(step_s, num_envs=num_envs, cores=cores)
    return processes, f"since a step takes {step_s * 1e6:.0f} us and {num_envs} may share {cores} cores"


def processes_for(step_s: float, *, num_envs: int, cores: int) -> int:
    """Return how many processes should step `num_envs` environments whose step takes `step_s`; 0 is none at all.

    Objects in one process take num_envs steps in turn; processes divide them evenly and cost a round trip.
    """
    processes = min(cores, num_envs)
    if processes < 2:
        return 0
    in_turn_s = num_envs * step_s
    shared_out_s = -(-num_envs // processes) * step_s + ROUND_TRIP_S
    return processes if in_turn_s >= WORTH_IT * shared_out_s else 0


def usable_cores() -> int:
    """Cores that the operating system lets this process use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
