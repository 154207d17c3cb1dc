"""The rollout that an experiment's algorithm needs."""

from __future__ import annotations

import time
from collections.abc import Callable

from remuda.collector.rollout import Rollout
from remuda.collector.rows import NStepRows, Rows, SegmentRows
from remuda.collector.sequences import SequenceRows
from remuda.collector.unrolls import UnrollRows
from remuda.config.declaration import RowShape, Segments, Sequences, Steps, Unrolls
from remuda.config.schema import ExperimentConfig
from remuda.environments.seeding import environment_seeds, generator
from remuda.environments.vectors import Vector
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import declaration
from remuda.policy.base import Policy


def make_rollout(
    config: ExperimentConfig,
    vector: Vector,
    policy: Policy,
    *,
    index: int,
    collectors: int,
    generation: int,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int], None] = lambda env_steps: None,
    timers: Timers | None = None,
) -> Rollout:
    """`index` and `generation` say whose random numbers it uses: which collector of `collectors`, and which to hold
    that place."""
    declared = declaration(config)
    policy.take_place(index * config.env.num_envs, collectors * config.env.num_envs)
    return Rollout(
        vector,
        policy,
        rows=_rows(declared.rows),
        rng=generator(config.seed, "collector", index, "exploration", incarnation=generation),
        seeds=environment_seeds(config.seed, "collector", index, config.env.num_envs, incarnation=generation),
        clock=clock,
        progress=progress,
        timers=timers,
        episode_info=config.env.episode_info,
        metrics=declared.collected,
    )


def _rows(shape: RowShape) -> Rows:
    match shape:
        case Steps() as rows:
            return NStepRows(n_step=rows.n_step, discount=rows.discount)
        case Segments() as rows:
            return SegmentRows(discount=rows.discount)
        case Unrolls() as rows:
            return UnrollRows(unroll_steps=rows.unroll_steps, n_step=rows.n_step, discount=rows.discount)
        case Sequences() as rows:
            return SequenceRows(slots=rows.slots, period_slots=rows.period_slots, discount=rows.discount)
