"""How much experience moves at a time: the sizes that collector, coordinator and learner must agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from remuda.config.declaration import RowShape, Segments, Sequences, Steps, Unrolls
from remuda.config.errors import Error
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import declaration
from remuda.wire.messages import ChunkMeta


class UnsupportedReuseError(Error, ValueError):
    """An algorithm asks for rows and reuse that do not go together (yet); the text says which, and what does."""

    def __init__(self, algorithm: str, rows: RowShape, reuse: str) -> None:
        super().__init__(
            f"policy.type {algorithm}: {type(rows).__name__} with reuse {reuse!r}; there are Steps, Unrolls and "
            "Sequences with reuse 'replay', and Segments with reuse 'once'"
        )


class SmallBufferError(Error, ValueError):
    """The buffer does not hold what a collector hands in at once; the text says which settings to change."""


@dataclass(frozen=True)
class RowPlan:
    """Replay moves one row per step, each sampled many times; on-policy learning whole segments, each used once."""

    on_policy: bool
    chunk_slots: int
    """Environment steps per chunk; on-policy the resets among them count, so that every chunk has the same shape. A
    step counts once, however many agents act in it."""
    longest_chunk_s: float | None
    """A chunk ends when this time has passed, even with fewer steps; None if only its steps count."""
    slots_per_row: int
    """Slots of time from one row of an environment to its next: 1, the horizon of segments, or the period of sequences
    that overlap."""
    rows_per_update: int
    capacity: int
    """Rows that the index and the learner's ring hold."""
    batches_per_request: int
    requests_in_flight: int
    """Requests for batches that the learner has out at once. A batch that waits while another is trained on lags by one
    update more: so there is one where the lag is bounded."""
    publish_interval_iters: int
    """Updates from one published policy to the next; 1 on-policy, where the next experience is collected with it."""
    rows_held_back: int
    """Rows of the last chunks that may wait for the steps that follow them, and come with the next: at most so many."""
    num_envs: int
    """Environments of a collector."""
    overlapping: bool = False
    """Rows are sequences: they begin every `slots_per_row` slots of an environment, resets among them."""
    agents: int = 1
    """Agents that the policy acts for. Each of them, in each copy of the environment, is one of the `num_envs`."""

    def most_rows(self, env_steps: int) -> int:
        """The most rows that a chunk of so many environment steps can have."""
        if self.on_policy:
            return self.num_envs
        if not self.overlapping:
            return env_steps * self.agents + self.rows_held_back
        slots = 2 * env_steps * self.agents // self.num_envs + 1  # between two resets of an environment lies a step
        return self.num_envs * -(-slots // self.slots_per_row)

    @property
    def most_chunk_rows(self) -> int:
        """Rows of a chunk as it should be, and no more than a step of all environments beyond that."""
        return -(-(self.chunk_slots * self.agents + self.num_envs) // self.slots_per_row)

    def slots(self, meta: ChunkMeta) -> int:
        """The part of a collector's credit that a chunk uses."""
        return meta.rows * self.slots_per_row // self.agents if self.on_policy else meta.env_steps

    def slots_for(self, rows: int) -> int:
        """The credit with which collectors bring so many rows, or a few more."""
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
    """A chunk costs a collector some 0.7 ms: 2 % of so many steps of the fastest vectors."""
    lanes = min(FREE_CHUNK_VECTOR_STEPS * config.env.num_envs, config.buffer.capacity // CHUNKS_IN_A_BUFFER)
    return max(1, lanes // _agents(config))


HELD_BACK_CHUNK_ENV_STEPS = 64
FREE_CHUNK_VECTOR_STEPS = 512
FREE_CHUNK_S = 0.1
CHUNKS_IN_A_BUFFER = 8
"""A chunk takes at most this fraction of the buffer (1 / n)."""

UNBOUNDED_LAG = 8
"""Updates' worth of rows that may wait where no lag is asked for: memory stays bounded all the same."""


@dataclass(frozen=True)
class JointPlan:
    """How much several policies collect together; of one alone its own plan."""

    plans: tuple[RowPlan, ...]
    """In the order of the policies' names."""
    chunk_slots: int
    """As RowPlan has it."""
    longest_chunk_s: float | None
    """As RowPlan has it."""

    def slots(self, metas: Sequence[ChunkMeta]) -> int:
        """The part of a collector's credit that a chunk uses; `metas` are those of all policies."""
        return max(plan.slots(meta) for plan, meta in zip(self.plans, metas, strict=True))


def joint_plan(plans: Sequence[RowPlan]) -> JointPlan:
    """On-policy ones collect chunks of one shape: the config has seen to that."""
    exact = [plan.chunk_slots for plan in plans if plan.on_policy]
    longest = [plan.longest_chunk_s for plan in plans]
    bounds = [bound_s for bound_s in longest if bound_s is not None]
    return JointPlan(
        tuple(plans),
        chunk_slots=exact[0] if exact else max(plan.chunk_slots for plan in plans),
        longest_chunk_s=min(bounds) if len(bounds) == len(longest) else None,
    )
