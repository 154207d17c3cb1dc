"""What the logs show of evaluations, and of what collectors and evaluators did."""

from __future__ import annotations

from remuda.logbook.episode_reports import EvaluationReport, WorkerReport
from remuda.logbook.spread import episode_statistics
from remuda.training.commander.evaluation import EvaluationResult, Judged
from remuda.wire.messages import CheckpointRecord, CollectorReport, EvaluationDone


def evaluation_report(result: EvaluationResult, *, best: bool, cut: int = 0) -> EvaluationReport:
    """The table of an evaluation; `cut` is how many of its episodes were cut, `best` whether it is the best so far."""
    return EvaluationReport(
        train_iter=result.record.train_iter,
        env_step=result.record.env_step,
        ckpt_name=result.record.file,
        returns=result.returns,
        lengths=result.lengths,
        duration_s=result.duration_s,
        info=result.info,
        cut=cut,
        wall_s=result.record.wall_s,
        best=best,
    )


def verdict_line(result: EvaluationResult, *, is_best: bool, best: Judged | None, cut: int = 0) -> str:
    """What the commander says of an evaluation; `cut` is how many of its episodes were cut."""
    said = (
        f"evaluation of {result.record.file} at env_step {result.record.env_step}: mean return "
        f"{result.reward_mean:.6g} over {len(result.returns)} episodes ({_comparison(is_best, best)})"
    )
    return f"{said}; {cut} of them cut at evaluator.max_episode_steps" if cut else said


def training_verdict_line(result: EvaluationResult, *, is_best: bool, best: Judged | None) -> str:
    """What the commander says of a checkpoint that was judged by the training episodes before it."""
    return (
        f"{result.record.file} at env_step {result.record.env_step}: mean return {result.reward_mean:.6g} over the "
        f"newest {len(result.returns)} training episodes ({_comparison(is_best, best)})"
    )


def _comparison(is_best: bool, best: Judged | None) -> str:
    return "the best so far" if is_best else "no best yet" if best is None else f"best is {best.reward_mean:.6g}"


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
