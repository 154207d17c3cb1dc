"""Measures a run's steps, actions and updates on this machine, in this process.

Takes some tenths of a second, and more for slow steps or updates.
"""

# torch's annotations are partial: pyright does not know what fork_rng takes.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from remuda.buffer.ring import ColumnRing
from remuda.collector.collected import Collected
from remuda.collector.environments import make_rollout
from remuda.collector.recorder import Behavior
from remuda.collector.rollout import Rollout
from remuda.config.schema import ExperimentConfig
from remuda.deploy.sizes import Costs, Curve, interpolated
from remuda.environments.copies import make_copies
from remuda.environments.lanes import AGENT, Copies
from remuda.environments.make import obstacle_to_native
from remuda.environments.processes import usable_cores
from remuda.learner.checkpoint import new_algorithm
from remuda.learner.precision import choose_precision, device_clock, is_large, update_threads
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import declaration, make_policy
from remuda.policy.base import Algorithm, Arrays, Policy
from remuda.policy.networks.tensors import denormals_are_zero, threads
from remuda.policy.row_plan import RowPlan, row_plan
from remuda.wire.messages import PolicyRef
from remuda.worker.affinity import MOST_THREADS

ENOUGH_S = 0.03
"""Measuring time for each figure."""
SLOW_S = 0.5
"""A call of this length is not repeated."""
MOST = 100
"""Most calls for a figure."""
MANY_ENVS, MANY_OBSERVATIONS = 32, (8, 64)
FEW_SLOTS = 8
"""First steps of a vector; then as many at a time as ENOUGH_S allows."""
LONGEST_WAIT_FOR_ROWS_S = 5.0
FEW_ENV_STEPS = 128
"""Environment steps of the first update of an on-policy algorithm. Whole updates within WHOLE_UPDATE_S are computed;
else one of twice as many steps, and a whole update is extrapolated from both."""
WHOLE_UPDATE_S = 0.2
GAIN = 1.1
"""Least speedup of an update for trying more threads."""
_LATE = 2**50
"""Environment step of least exploration: policies then compute all actions."""

Clock = Callable[[], float]


class NoRowsError(Exception):
    """Collecting took too long."""


@dataclass(frozen=True)
class _Collecting:
    """Seconds of a vector's step, and its rows."""

    stepping_s: float
    recording_s: float
    """All but stepping the environments and calling the policy."""
    columns: Arrays
    """At least one row."""


def measure(config: ExperimentConfig, *, serial: bool, try_threads: bool, clock: Clock | None = None) -> Costs:
    """Measure with environments, networks and rows of this config. Raises the exceptions of environment and algorithm,
    and NoRowsError.

    Restores torch's random numbers and number of threads. `try_threads` measures updates with several numbers of
    threads, in place of the config's number. Without `clock` counts real seconds, once the learner's device has
    finished its work.
    """
    clock = clock or partial(device_clock, torch.device(config.learner.device))
    vector_s: dict[int, float] = {}
    with torch.random.fork_rng(devices=[]):
        with closing(_copies(config, 1)) as single:
            group = single.lanes[0].group
            learner = config.learner.model_copy(update={"compile": False})  # the first updates would measure compiling
            algorithm = new_algorithm(config.model_copy(update={"learner": learner}), group.observation, group.action)
            choose_precision(config, algorithm, timed=False, say=lambda line: None)
            collecting = _collecting(config, single, _policy(config, algorithm), clock)
            vector_s[1] = collecting.stepping_s
        if _steps_together(config):
            with closing(_copies(config, MANY_ENVS)) as many:
                vector_s[MANY_ENVS] = _collecting(config, many, _policy(config, algorithm), clock).stepping_s
        act_s = _act_s(config, algorithm, collecting.recording_s, clock)
        counts = _thread_counts(config, algorithm, serial=serial, several=try_threads)
        return Costs(usable_cores(), vector_s, act_s, _learn_s(config, algorithm, collecting.columns, counts, clock))


def seconds(call: Callable[[], object], clock: Clock) -> float:
    """Return the least time of at least two calls: other work on the machine, and a first call, only add to the time. A
    call of SLOW_S is not repeated."""
    times_s: list[float] = []
    while len(times_s) < MOST and (len(times_s) < 2 or sum(times_s) < ENOUGH_S):
        begin_s = clock()
        call()
        times_s.append(clock() - begin_s)
        if times_s[0] >= SLOW_S:
            break
    return min(times_s)


def _steps_together(config: ExperimentConfig) -> bool:
    """Return True if a vector of these environments has a class of its own, instead of single objects."""
    env = config.env
    return env.vectorization == "envpool" or (
        env.vectorization in ("auto", "native") and obstacle_to_native(env) is None
    )


def _copies(config: ExperimentConfig, num_envs: int) -> Copies:
    env = config.env
    if not _steps_together(config):
        env = env.model_copy(update={"vectorization": "sync"})
    return make_copies(env, {"": (AGENT,)}, num_envs=num_envs, source_dir=config.source_dir)


def _policy(config: ExperimentConfig, algorithm: Algorithm) -> Policy:
    """The acting side, with the algorithm's weights."""
    policy = make_policy(config, algorithm.observation, algorithm.action, device=config.collector.device)
    policy.load_state(algorithm.published_state())
    return policy


def _collecting(config: ExperimentConfig, copies: Copies, policy: Policy, clock: Clock) -> _Collecting:
    """Collect for ENOUGH_S, and until rows exist."""
    own = config.model_copy(update={"env": config.env.model_copy(update={"num_envs": copies.num_envs})})
    timers, plan = Timers(clock), row_plan(own)
    rollout = make_rollout(
        own, copies, [(own, policy)], index=0, collectors=1, generation=0, clock=clock, timers=timers
    )
    behaviors = [Behavior(declaration(own).exploration_at(_LATE), PolicyRef())]
    whole_slots = max(plan.chunk_slots // copies.num_envs, 1)
    (collected,) = rollout.collect(min(FEW_SLOTS, whole_slots) * copies.num_envs, behaviors)
    count, stepping_s, acting_s = _blocks(timers)
    at_a_time = int(ENOUGH_S * count / max(stepping_s + acting_s, 1e-9))
    slots = max(min(at_a_time, whole_slots), min(FEW_SLOTS, whole_slots))
    return _repeated(rollout, collected, slots * copies.num_envs, behaviors, timers)


def _repeated(
    rollout: Rollout, collected: Collected, env_steps: int, behaviors: Sequence[Behavior], timers: Timers
) -> _Collecting:
    """Collect again and again; the first chunk had a reset and does not count."""
    before, begin_s = _blocks(timers), timers.clock()
    elapsed_s, chunks = 0.0, 0
    while (elapsed_s < ENOUGH_S and chunks < MOST) or not collected.rows:
        if elapsed_s > LONGEST_WAIT_FOR_ROWS_S:
            raise NoRowsError(f"{elapsed_s:.1f} s of collecting did not make one row of experience")
        (collected,) = rollout.collect(env_steps, behaviors)
        elapsed_s, chunks = timers.clock() - begin_s, chunks + 1
    count, stepping_s, acting_s = (now - then for now, then in zip(_blocks(timers), before, strict=True))
    recording_s = max(elapsed_s - stepping_s - acting_s, 0.0)
    return _Collecting(stepping_s / count, recording_s / count, collected.columns)


def _blocks(timers: Timers) -> tuple[int, float, float]:
    """Steps of the vector until now, and the seconds of stepping and of acting."""
    flat = timers.flat()
    count, stepping_s = flat["step environments"]
    return count, stepping_s, flat["act"][1]


def _act_s(config: ExperimentConfig, algorithm: Algorithm, recording_s: float, clock: Clock) -> Curve:
    exploration, rng = declaration(config).exploration_at(_LATE), np.random.default_rng(0)

    def acting(count: int) -> Callable[[], object]:
        policy = _policy(config, algorithm)
        policy.take_place(0, count)
        seen = algorithm.observation
        narrowed = seen.dtype == "float64" and not policy.keeps_float64
        observations = seen.example(count).astype("float32" if narrowed else seen.dtype, copy=False)
        state = np.zeros((count, policy.state_size), np.float32) if policy.state_size else None
        return lambda: policy.act_recording(observations, exploration, rng, state=state)

    curve: dict[int, float] = {}
    for count in (1, *MANY_OBSERVATIONS):
        curve[count] = seconds(acting(count), clock) + recording_s
        if curve[count] > SLOW_S:
            break
    return curve


def _thread_counts(config: ExperimentConfig, algorithm: Algorithm, *, serial: bool, several: bool) -> Sequence[int]:
    plan = row_plan(config)
    if several and config.learner.device == "cpu":
        most = min(usable_cores(), MOST_THREADS) if is_large(algorithm, plan) else 1
        return [count for count in (1, 2, 4) if count <= most]
    own = update_threads(config, algorithm, plan, alone=serial, say=lambda line: None)
    return [own or 1]


def _learn_s(
    config: ExperimentConfig, algorithm: Algorithm, columns: Arrays, counts: Sequence[int], clock: Clock
) -> Curve:
    """Seconds of learning per environment step (per update, if nothing ties the two), by threads."""
    plan = row_plan(config)
    if config.learner.inference:
        return dict.fromkeys(counts, 0.0)
    learned: dict[int, float] = {}
    best_s = math.inf
    with denormals_are_zero():
        for count in counts:
            with threads(count):
                learned[count] = _update_s(algorithm, plan, columns, clock) / _env_steps_per_update(config, plan)
            if GAIN * learned[count] > best_s:
                break
            best_s = learned[count]
    return learned


def _env_steps_per_update(config: ExperimentConfig, plan: RowPlan) -> float:
    env_steps = float(plan.rows_per_update * plan.slots_per_row)
    if plan.on_policy:
        return env_steps
    per_insert = config.buffer.samples_per_insert
    return env_steps / per_insert if per_insert else 1.0


def _update_s(algorithm: Algorithm, plan: RowPlan, columns: Arrays, clock: Clock) -> float:
    """Return the seconds of a whole update; a long update is extrapolated from two smaller updates."""
    held = len(columns["reward"])
    ring = ColumnRing(held)
    ring.write(0, dict(columns))

    def learning(rows: int) -> Callable[[], object]:
        batch = {**ring.gather(np.arange(rows) % held), "weights": np.ones(rows, np.float32)}
        return lambda: algorithm.learn(batch)

    if not plan.on_policy:
        return seconds(learning(plan.rows_per_update), clock)
    slots = columns["reward"].shape[1]
    whole = max(plan.rows_per_update * plan.slots_per_row // slots, 1)
    few = max(FEW_ENV_STEPS // slots, 1)
    if whole <= 2 * few:
        return seconds(learning(whole), clock)
    few_s = seconds(learning(few), clock)
    if few_s * whole / few <= WHOLE_UPDATE_S:
        return seconds(learning(whole), clock)
    return interpolated({few: few_s, 2 * few: seconds(learning(2 * few), clock)}, whole)
