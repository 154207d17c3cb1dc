"""How a killed run continues: what its journal has and its files do not have yet, and where a resumed run begins."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.training.commander.end import End
from remuda.training.commander.evaluation import EvaluationResult
from remuda.training.commander.reports import evaluation_report
from remuda.training.resume_point import ResumePoint
from remuda.training.run_snapshot import RunSnapshot
from remuda.training.snapshot import CommanderSnapshot
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef


def catch_up(checkpoints: CheckpointIndex, commander: CommanderSnapshot) -> None:
    """Add to index.json what was journaled in the last moment and is missing there: a checkpoint, the result of an
    evaluation, and which checkpoint an interrupted run ends with."""
    newest = commander.last_record
    if newest is not None and (checkpoints.last is None or checkpoints.last.train_iter < newest.train_iter):
        checkpoints.add(newest)
    end = None if commander.end is None else End(*commander.end)
    if newest is not None and commander.final_saved and end is not None and end.on_request:
        checkpoints.link_interrupt(newest.train_iter)
    rewards = {record.train_iter: record.reward for record in checkpoints.records}
    if commander.best is not None:
        best, reward = commander.best
        listed = checkpoints.best
        is_listed = listed is not None and (listed.train_iter, listed.reward) == (best.train_iter, reward)
        if best.train_iter in rewards and not is_listed:
            checkpoints.set_reward(best.train_iter, reward, best=True)
            rewards[best.train_iter] = reward
    if commander.last is not None:
        evaluated = commander.last.record.train_iter
        if evaluated in rewards and rewards[evaluated] is None:
            checkpoints.set_reward(evaluated, EvaluationResult.of(commander.last).reward_mean)


def show_again(log: Logbook, snapshot: RunSnapshot, config: ExperimentConfig) -> None:
    """The evaluation that was journaled in the last moment, and may be missing in progress.txt and the curves."""
    for row in snapshot.experiment.progress.given:
        if log.progress_file is not None and log.progress_file.next_epoch <= row.epoch:
            log.progress(row)
    commander = snapshot.experiment.dispatch.commander
    last = commander.last
    if last is None or config.evaluator.episodes == 0:  # without evaluations training episodes have evaluated
        return
    if not log.shows_evaluation(last.record.train_iter):
        best = commander.best is not None and commander.best[0].train_iter == last.record.train_iter
        log.emit(evaluation_report(EvaluationResult.of(last), best=best))


def resume_point(
    record: CheckpointRecord, counters: Counters, published: PolicyRef, checkpoints: CheckpointIndex, log: Logbook
) -> ResumePoint:
    """What a resumed run continues with: this checkpoint and these counters, after the policy that was `published`
    last, maybe later than the checkpoint. `log` has been cut off there already."""
    assert log.progress_file is not None, "a run has one"
    policy, rows = max(record.policy, published), log.progress_file.next_epoch
    return ResumePoint(record, counters, policy, checkpoints.best, rows, checkpoints.records)
