"""Which limiter and which sampler the config of a run asks for."""

from __future__ import annotations

from remuda.buffer.limiter import OnPolicyLimiter, SamplesPerInsertLimiter
from remuda.buffer.samplers import PrioritizedSampler, Sampler, UniformSampler
from remuda.config.learning import BufferConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.row_plan import UNBOUNDED_LAG, RowPlan

CHUNKS_AHEAD = 2
"""Chunks that a collector may have in progress: one being collected while the one before is announced."""
REQUESTS_IN_FLIGHT = 3
"""The most requests whose batches were sampled and are not trained on yet: one in use, two ahead."""


def on_policy_limiter(config: ExperimentConfig, plan: RowPlan) -> OnPolicyLimiter | None:
    """The limit on how far collectors may be ahead of an on-policy learner; None for one that learns from replay, or
    not at all."""
    if not plan.on_policy or config.learner.inference:
        return None
    lag = config.buffer.max_policy_lag
    return OnPolicyLimiter(plan.rows_per_update, updates_ahead=UNBOUNDED_LAG if lag is None else lag)


def replay_limiter(config: ExperimentConfig, plan: RowPlan, *, serial: bool) -> SamplesPerInsertLimiter:
    """The limit on how far collectors and a learner from replay may be apart; `serial`: they work in turn."""
    batches = 1 if serial else REQUESTS_IN_FLIGHT * plan.batches_per_request
    return SamplesPerInsertLimiter(
        None if config.learner.inference else config.buffer.samples_per_insert,
        config.buffer.min_rows,
        request_rows=batches * plan.rows_per_update,
        chunk_rows=plan.most_chunk_rows * (1 if serial else config.collector.count),
    )


def sampler_of(buffer: BufferConfig) -> Sampler:
    """The sampler that draws rows of a replay."""
    if buffer.prioritized:
        return PrioritizedSampler(buffer.capacity, buffer.priority_exponent)
    return UniformSampler(buffer.capacity)
