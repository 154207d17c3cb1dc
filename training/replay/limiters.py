"""Limiter and sampler for the config of a run."""

from __future__ import annotations

from remuda.buffer.limiter import OnPolicyLimiter, SamplesPerInsertLimiter
from remuda.buffer.samplers import PrioritizedSampler, Sampler, UniformSampler
from remuda.config.learning import BufferConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.row_plan import UNBOUNDED_LAG, RowPlan

CHUNKS_AHEAD = 2
"""Most unfinished chunks of a collector: one being collected, one being announced."""
REQUESTS_IN_FLIGHT = 3
"""Most requests with sampled but untrained batches: one in use, two ahead."""


def on_policy_limiter(config: ExperimentConfig, plan: RowPlan) -> OnPolicyLimiter | None:
    """Return the limit on the lead of collectors over an on-policy learner; None for learning from replay and without
    learning."""
    if not plan.on_policy or config.learner.inference:
        return None
    lag = config.buffer.max_policy_lag
    return OnPolicyLimiter(plan.rows_per_update, updates_ahead=UNBOUNDED_LAG if lag is None else lag)


def replay_limiter(config: ExperimentConfig, plan: RowPlan, *, serial: bool) -> SamplesPerInsertLimiter:
    """Return the limit on the distance between collectors and a learner from replay; `serial`: they work in turn."""
    batches = 1 if serial else REQUESTS_IN_FLIGHT * plan.batches_per_request
    return SamplesPerInsertLimiter(
        None if config.learner.inference else config.buffer.samples_per_insert,
        config.buffer.min_rows,
        request_rows=batches * plan.rows_per_update,
        chunk_rows=plan.most_chunk_rows * (1 if serial else config.collector.count),
    )


def sampler_of(buffer: BufferConfig) -> Sampler:
    """Return the sampler of replay rows."""
    if buffer.prioritized:
        return PrioritizedSampler(buffer.capacity, buffer.priority_exponent)
    return UniformSampler(buffer.capacity)
