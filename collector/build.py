"""The rollout that an experiment's algorithm needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from remuda.collector.agents import AgentsRollout, Seat
from remuda.collector.past import PastPlayers
from remuda.collector.rollout import Rollout
from remuda.collector.rows import NStepRows, Rows, SegmentRows
from remuda.collector.sequences import SequenceRows
from remuda.collector.unrolls import UnrollRows
from remuda.config.declaration import RowShape, Segments, Sequences, Steps, Unrolls
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import AgentsVector
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


def make_agents_rollout(
    config: ExperimentConfig,
    vector: AgentsVector,
    policies: Sequence[tuple[ExperimentConfig, Policy]],
    *,
    index: int,
    collectors: int,
    past: PastPlayers | None = None,
    generation: int,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int], None] = lambda env_steps: None,
    timers: Timers | None = None,
) -> AgentsRollout:
    """`policies` are in the order of the vector's groups, each with its own config. `config` is that of the run;
    `index` and `generation` say whose random numbers it uses; see make_rollout."""
    seats: list[Seat] = []
    for own, policy in policies:
        declared = declaration(own)
        policy.take_place(index * own.env.num_envs, collectors * own.env.num_envs)
        seats.append(
            Seat(
                policy=policy,
                rows=_rows(declared.rows),
                metrics=declared.collected,
                episode_info=own.env.episode_info,
            )
        )
    return AgentsRollout(
        vector,
        seats,
        rng=generator(config.seed, "collector", index, "exploration", incarnation=generation),
        seeds=environment_seeds(config.seed, "collector", index, vector.num_envs, incarnation=generation),
        past=past,
        clock=clock,
        progress=progress,
        timers=timers,
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
