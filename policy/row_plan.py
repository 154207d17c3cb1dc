"""Sizes of chunks, rows and requests, on which collector, coordinator and learner must agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from remuda.config.declaration import RowShape, Segments, Sequences, Steps, Unrolls
from remuda.config.errors import Error
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import declaration
from remuda.wire.messages import ChunkMeta


class UnsupportedReuseError(Error, ValueError):
    """The rows and the reuse of an algorithm do not go together; the message lists the supported pairs."""

    def __init__(self, algorithm: str, rows: RowShape, reuse: str) -> None:
        super().__init__(
            f"policy.type {algorithm}: {type(rows).__name__} with reuse {reuse!r}; there are Steps, Unrolls and "
            "Sequences with reuse 'replay', and Segments with reuse 'once'"
        )


class SmallBufferError(Error, ValueError):
    """A collector's largest delivery does not fit into the buffer; the message names the settings to change."""


@dataclass(frozen=True)
class RowPlan:
    """Sizes for a policy. Replay moves rows of one step, sampled many times; on-policy learning moves whole segments,
    each used once."""

    on_policy: bool
    chunk_slots: int
    """Environment steps per chunk. On-policy, resets count too, so all chunks have the same shape. A step counts
    once, however many agents act in it."""
    longest_chunk_s: float | None
    """Largest duration of a chunk, even with fewer steps; None: no limit."""
    slots_per_row: int
    """Time slots from one row of an environment to the next: 1, the horizon of segments, or the period of overlapping
    sequences."""
    rows_per_update: int
    capacity: int
    """Capacity in rows of the replay index and of the learner's ring."""
    batches_per_request: int
    requests_in_flight: int
    """Largest number of unanswered batch requests of the learner. A batch that waits during training is older by one
    update, so the number is 1 if the lag is bounded."""
    publish_interval_iters: int
    """Updates between published policies; 1 on-policy, since the next experience is collected with
    the newest policy."""
    rows_held_back: int
    """Largest number of rows at the end of a chunk that wait for the steps after them and come with the next chunk."""
    num_envs: int
    """Environments of a collector."""
    overlapping: bool = False
    """True for sequences: a row begins every `slots_per_row` slots of an environment, including resets."""
    offline: bool = False
    """True for steps of a dataset, handed in at once and without environment steps."""
    agents: int = 1
    """Agents of the policy. Every agent in every copy of the environment counts as an environment in `num_envs`."""

    def most_rows(self, env_steps: int) -> int:
        """Largest number of rows in a chunk of `env_steps` environment steps."""
        if self.on_policy:
            return self.num_envs
        if self.offline:
            return self.capacity
        if not self.overlapping:
            return env_steps * self.agents + self.rows_held_back
        slots = 2 * env_steps * self.agents // self.num_envs + 1  # between two resets of an environment lies a step
        return self.num_envs * -(-slots // self.slots_per_row)

    @property
    def most_chunk_rows(self) -> int:
        """Largest number of rows in a regular chunk: at most one step of all environments beyond `chunk_slots`."""
        return -(-(self.chunk_slots * self.agents + self.num_envs) // self.slots_per_row)

    def slots_for(self, rows: int) -> int:
        """Credit for collecting at least `rows` rows."""
        return -(-rows * self.slots_per_row // self.agents)


def row_plan(config: ExperimentConfig, *, collectors: int | None = None) -> RowPlan:
    """Derive the sizes from the config; `collectors` is 1 in serial mode. Raises UnknownAlgorithmError, and
    UnsupportedReuseError."""
    declared = declaration(config)
    rows, reuse = declared.rows, declared.reuse
    match rows, reuse:
        case Steps() | Unrolls(), "replay":
            ahead = rows.n_step if isinstance(rows, Steps) else rows.window_steps
            return _replayed_steps(config, ahead * config.env.num_envs, serial=collectors is not None)
        case Sequences(), "replay":
            return _replayed_sequences(config, rows)
        case Segments(), "once":
            return _segments_used_once(config, rows, collectors)
        case _:
            raise UnsupportedReuseError(config.policy.type, rows, reuse)


def check_buffer(config: ExperimentConfig, *, collectors: int | None = None) -> None:
    """Raise SmallBufferError where the buffer might not hold a chunk; `collectors` as for `row_plan`."""
    plan = row_plan(config, collectors=collectors)
    copies = plan.num_envs // plan.agents
    rows = plan.most_rows(-(-plan.chunk_slots // copies) * copies)  # a chunk has whole steps of all copies
    if rows > plan.capacity:
        raise SmallBufferError(
            f"buffer.capacity is {plan.capacity}, and what a collector hands in at once can have {rows} rows: raise "
            "buffer.capacity or lower collector.chunk_env_steps"
        )


def _replayed_steps(config: ExperimentConfig, rows_held_back: int, *, serial: bool) -> RowPlan:
    free = config.collector.chunk_env_steps is None and config.buffer.samples_per_insert is None and not serial
    return RowPlan(
        on_policy=False,
        chunk_slots=config.collector.chunk_env_steps
        or (_free_chunk_env_steps(config) if free else HELD_BACK_CHUNK_ENV_STEPS),
        longest_chunk_s=FREE_CHUNK_S if free else None,
        slots_per_row=1,
        rows_per_update=config.learner.batch_size,
        capacity=config.buffer.capacity,
        batches_per_request=config.learner.prefetch_batches,
        requests_in_flight=2,
        publish_interval_iters=config.learner.publish_interval_iters,
        rows_held_back=rows_held_back,
        num_envs=config.env.num_envs,
        offline=config.collector.dataset is not None,
        agents=_agents(config),
    )


def _replayed_sequences(config: ExperimentConfig, rows: Sequences) -> RowPlan:
    each = rows.period_slots * config.env.num_envs // _agents(config)  # one row of each environment
    return replace(
        _replayed_steps(config, 0, serial=True),
        chunk_slots=config.collector.chunk_env_steps or max(HELD_BACK_CHUNK_ENV_STEPS, each),
        slots_per_row=rows.period_slots,
        overlapping=True,
    )


def _segments_used_once(config: ExperimentConfig, rows: Segments, collectors: int | None) -> RowPlan:
    horizon, num_envs = rows.horizon_steps, config.env.num_envs
    rows_per_update = config.learner.segments_per_update or num_envs * config.collector.count  # in serial mode too
    lag = config.buffer.max_policy_lag
    waiting_updates = 2 + (UNBOUNDED_LAG if lag is None else lag)
    return RowPlan(
        on_policy=True,
        chunk_slots=horizon * num_envs // _agents(config),
        longest_chunk_s=None,
        slots_per_row=horizon,
        rows_per_update=rows_per_update,
        capacity=waiting_updates * rows_per_update + 2 * num_envs * (collectors or config.collector.count),
        batches_per_request=1,
        requests_in_flight=2 if lag is None else 1,
        publish_interval_iters=1,
        rows_held_back=0,
        num_envs=num_envs,
        agents=_agents(config),
    )


def _agents(config: ExperimentConfig) -> int:
    return len(config.env.agents) or 1


def _free_chunk_env_steps(config: ExperimentConfig) -> int:
    """Steps of a free chunk. A chunk costs a collector about 0.7 ms: 2 % of these steps in the fastest vectors."""
    lanes = min(FREE_CHUNK_VECTOR_STEPS * config.env.num_envs, config.buffer.capacity // CHUNKS_IN_A_BUFFER)
    return max(1, lanes // _agents(config))


HELD_BACK_CHUNK_ENV_STEPS = 64
FREE_CHUNK_VECTOR_STEPS = 512
FREE_CHUNK_S = 0.1
CHUNKS_IN_A_BUFFER = 8
"""A chunk takes at most this fraction of the buffer (1 / n)."""

UNBOUNDED_LAG = 8
"""Updates' worth of waiting rows without a bound on the lag: limits memory."""


@dataclass(frozen=True)
class JointPlan:
    """Sizes for the chunks of all policies together; for a single policy, the plan of the policy."""

    plans: tuple[RowPlan, ...]
    """In the order of the policies' names."""
    chunk_slots: int
    """See RowPlan."""
    longest_chunk_s: float | None
    """See RowPlan."""

    def slots(self, metas: Sequence[ChunkMeta]) -> int:
        """Credit used by a chunk; `metas` has the parts of all policies."""
        most = 0
        for plan, meta in zip(self.plans, metas, strict=True):
            most = max(most, meta.rows * plan.slots_per_row // plan.agents if plan.on_policy else meta.env_steps)
        return most


def joint_plan(plans: Sequence[RowPlan]) -> JointPlan:
    """Join the plans of all policies. The config guarantees equal chunks for on-policy plans."""
    exact = [plan.chunk_slots for plan in plans if plan.on_policy]
    longest = [plan.longest_chunk_s for plan in plans]
    bounds = [bound_s for bound_s in longest if bound_s is not None]
    return JointPlan(
        tuple(plans),
        chunk_slots=exact[0] if exact else max(plan.chunk_slots for plan in plans),
        longest_chunk_s=min(bounds) if len(bounds) == len(longest) else None,
    )
