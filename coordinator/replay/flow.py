"""Which limiter and which sampler a config asks for."""

from __future__ import annotations

from remuda.buffer.limiter import OnPolicyLimiter, SamplesPerInsertLimiter
from remuda.buffer.samplers import PrioritizedSampler, Sampler, UniformSampler
from remuda.config.schema import BufferConfig, ExperimentConfig
from remuda.policy.row_plan import UNBOUNDED_LAG, RowPlan

REQUESTS_IN_FLIGHT = 3
"""Most requests' worth of batches that were sampled and are not trained on yet: one in use, two ahead."""


def on_policy_limiter(config: ExperimentConfig, plan: RowPlan) -> OnPolicyLimiter | None:
    """How far collectors may run ahead of an on-policy learner; None for one that learns from replay, or does not."""
    if not plan.on_policy or config.learner.inference:
        return None
    lag = config.buffer.max_policy_lag
    return OnPolicyLimiter(plan.rows_per_update, updates_ahead=UNBOUNDED_LAG if lag is None else lag)


def replay_limiter(
    config: ExperimentConfig, plan: RowPlan, collectors: int | None, batches_in_flight: int | None
) -> SamplesPerInsertLimiter:
    """How far collectors and a learner from replay may be apart; see Experience for the last two."""
    batches = batches_in_flight or REQUESTS_IN_FLIGHT * plan.batches_per_request
    chunk_rows = plan.chunk_slots + config.env.num_envs
    return SamplesPerInsertLimiter(
        None if config.learner.inference else config.buffer.samples_per_insert,
        config.buffer.min_rows,
        request_rows=batches * plan.rows_per_update,
        chunk_rows=chunk_rows * (config.collector.count if collectors is None else collectors),
    )


def sampler_of(buffer: BufferConfig) -> Sampler:
    """How rows of a replay are drawn."""
    if buffer.prioritized:
        return PrioritizedSampler(buffer.capacity, buffer.priority_exponent)
    return UniformSampler(buffer.capacity)
