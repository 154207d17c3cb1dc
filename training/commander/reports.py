"""What the logs show of evaluations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from remuda.config.secrets import masked
from remuda.logbook.episode_reports import EvaluationReport
from remuda.logbook.page_reports import HistogramReport
from remuda.training.commander.curriculum import Curriculum
from remuda.training.commander.evaluation import BestCheckpoint, EvaluationResult
from remuda.wire.messages import CheckpointRecord, Histogram


def evaluation_report(result: EvaluationResult, *, best: bool, has_tasks: bool) -> EvaluationReport:
    """The table of an evaluation; `best`: it is the best so far."""
    return EvaluationReport(
        train_iter=result.record.train_iter,
        env_step=result.record.env_step,
        ckpt_name=result.record.file,
        returns=result.returns,
        lengths=result.lengths,
        duration_s=result.duration_s,
        info=result.info,
        cut=result.cut,
        wall_s=result.record.wall_s,
        best=best,
        task=result.task.number if has_tasks else None,
    )


def actions_report(record: CheckpointRecord, actions: Mapping[str, Histogram]) -> HistogramReport:
    """The actions that the policy of a checkpoint took in its evaluation."""
    return HistogramReport(train_iter=record.train_iter, env_step=record.env_step, of="actions", histograms=actions)


def task_line(curriculum: Curriculum, *, new_best: bool) -> str:
    """The commander's line about a task that begins."""
    task = curriculum.task
    kwargs = json.dumps(masked(cast("JsonValue", json.loads(task.kwargs_json or "{}"))))
    best = "a new best begins" if new_best else "evaluations measure the same as before"
    return f"task {task.number} begins at env_step {curriculum.state.since_env_step}, with env.kwargs {kwargs}: {best}"


def evaluation_line(result: EvaluationResult, *, is_best: bool, best: BestCheckpoint | None) -> str:
    """The commander's line about an evaluation."""
    said = (
        f"evaluation of {result.record.file} at env_step {result.record.env_step}: mean return "
        f"{result.reward_mean:.6g} over {len(result.returns)} episodes ({_comparison(is_best, best)})"
    )
    return f"{said}; {result.cut} of them cut at evaluator.max_episode_steps" if result.cut else said


def training_evaluation_line(result: EvaluationResult, *, is_best: bool, best: BestCheckpoint | None) -> str:
    """The commander's line about a checkpoint that was evaluated by the training episodes before it."""
    return (
        f"{result.record.file} at env_step {result.record.env_step}: mean return {result.reward_mean:.6g} over the "
        f"newest {len(result.returns)} training episodes ({_comparison(is_best, best)})"
    )


def _comparison(is_best: bool, best: BestCheckpoint | None) -> str:
    return "the best so far" if is_best else "no best yet" if best is None else f"best is {best.reward_mean:.6g}"
