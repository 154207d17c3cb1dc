"""Reports of single collectors and evaluators in the commander's logs."""

from __future__ import annotations

from remuda.logbook.episode_reports import WorkerReport
from remuda.logbook.statistics import episode_statistics
from remuda.wire.messages import CheckpointRecord, CollectorReport, EvaluationDone


def collector_report(message: CollectorReport, worker: str, env_step: int) -> WorkerReport:
    """What one collector did."""
    return WorkerReport(
        train_iter=message.train_iter,
        env_step=env_step,
        role="collector",
        worker=worker,
        episode_count=message.episode_count,
        step_count=message.step_count,
        duration_s=message.duration_s,
        reward_mean=message.reward_mean,
        reward_std=message.reward_std,
        statistics=message.statistics,
        metrics=message.metrics,
    )


def evaluator_report(message: EvaluationDone, worker: str, record: CheckpointRecord) -> WorkerReport:
    """What one evaluator played."""
    statistics = episode_statistics(message.returns, message.lengths, message.info)
    return WorkerReport(
        train_iter=record.train_iter,
        env_step=record.env_step,
        role="evaluator",
        worker=worker,
        episode_count=len(message.returns),
        step_count=sum(message.lengths),
        duration_s=message.duration_s,
        reward_mean=statistics.pop("reward_mean"),
        reward_std=statistics.pop("reward_std"),
        statistics=statistics,
    )
