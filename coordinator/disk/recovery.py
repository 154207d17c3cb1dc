"""Recovers a run from its journal, its checkpoints and its payload files: after a crash, or resumed."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from remuda.buffer.chunk import ChunkError, parse_name, read_meta
from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.policy.policy_file import PolicyFileError, read_ref
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.training.commander.evaluation import EvaluationResult
from remuda.training.commander.reports import evaluation_report
from remuda.training.journal_entry import Recovered
from remuda.training.replay.ledger import Ledger
from remuda.training.snapshot import ResumePoint, RunSnapshot
from remuda.wire.messages import CheckpointRecord, ChunkMeta, Counters, PolicyRef


def counters_after(record: CheckpointRecord | None, recovered: Recovered | None) -> Counters | None:
    """Where a resumed run goes on: what was counted stays counted, what was learned since the checkpoint is gone."""
    if record is None:
        return None
    if recovered is None:
        return Counters(record.env_step, record.train_iter, record.episode, record.policy.version, record.wall_s)
    known = recovered.snapshot.counters
    return Counters(known.env_step, record.train_iter, known.episode, known.policy_version, known.wall_s)


def curves_hold_until(snapshot: RunSnapshot) -> Counters:
    """Up to where the curves of a run of a coordinator that died are valid.

    How far a learner has come that works is journaled once a second: its curves are not cut. One that is not ready has
    shown nothing, and what was shown beyond its beginning may be there still: the coordinator may have died before it
    rewound the curves for it."""
    leases = snapshot.experiment.leases.leases
    begins = any(lease.holder.role == "learner" and not lease.over and not lease.ready for lease in leases)
    known = snapshot.counters
    return known if begins else structs.replace(known, train_iter=sys.maxsize)


def with_payloads(recovered: Recovered, data: Path) -> Recovered:
    """Without the chunks whose payload file is gone."""
    files = set(os.listdir(data)) if data.is_dir() else set[str]()
    return replace(recovered, chunks=tuple(chunk for chunk in recovered.chunks if chunk.meta.file in files))


def payload_files(recovered: Recovered | None) -> frozenset[str]:
    """Those of its live chunks."""
    return frozenset() if recovered is None else frozenset(chunk.meta.file for chunk in recovered.chunks)


def uncounted_payloads(recovered: Recovered, data: Path) -> tuple[ChunkMeta, ...]:
    """Payloads that were written and not counted any more, as their headers describe them: their workers are dead and
    will not announce them again. Those of workers whose leases are forgotten are not among them: nobody knows whether
    they were counted."""
    counted = Ledger()
    counted.restore(recovered.snapshot.experiment.experience.ledger)
    live = payload_files(recovered)
    found: list[ChunkMeta] = []
    for name in sorted(os.listdir(data)):
        with contextlib.suppress(ChunkError, ValueError):  # no payload, or a damaged one: swept
            if name not in live and counted.lacks(parse_name(name)):
                found.append(read_meta(data / name))
    return tuple(sorted(found, key=lambda meta: meta.chunk))


def catch_up(checkpoints: CheckpointIndex, snapshot: RunSnapshot) -> None:
    """Enter what was journaled in the last moment and did not get into index.json any more: a checkpoint, what an
    evaluation gave, and which one an interrupted run ends with."""
    commander = snapshot.experiment.judging.commander
    newest = commander.last_record
    if newest is not None and (checkpoints.last is None or checkpoints.last.train_iter < newest.train_iter):
        checkpoints.add(newest)
    if newest is not None and commander.final_saved and commander.end is not None and commander.end[0] == "stopped":
        checkpoints.link_interrupt(newest.train_iter)
    rewards = {record.train_iter: record.reward for record in checkpoints.records}
    if commander.best is not None:
        best, reward = commander.best
        if best.train_iter in rewards and (checkpoints.best is None or checkpoints.best.reward != reward):
            checkpoints.set_reward(best.train_iter, reward, best=True)
            rewards[best.train_iter] = reward
    if commander.last is not None:
        judged = commander.last.record.train_iter
        if judged in rewards and rewards[judged] is None:
            checkpoints.set_reward(judged, EvaluationResult.of(commander.last).reward_mean)


def show_again(log: Logbook, snapshot: RunSnapshot, config: ExperimentConfig) -> None:
    """What was journaled in the last moment, and may not have got into progress.txt and the curves any more."""
    for row in snapshot.experiment.progress.given:
        if log.progress_file is not None and log.progress_file.next_epoch <= row.epoch:
            log.progress(row)
    commander = snapshot.experiment.judging.commander
    last = commander.last
    if last is None or config.evaluator.episodes == 0:  # without evaluations training episodes have judged
        return
    if not log.shows_evaluation(last.record.train_iter):
        best = commander.best is not None and commander.best[0].train_iter == last.record.train_iter
        log.emit(evaluation_report(EvaluationResult.of(last), best=best))


def resumed_at(
    checkpoints: CheckpointIndex, log: Logbook, counters: Counters | None, policy_file: Path
) -> ResumePoint | None:
    """What a run that is resumed goes on with: its newest checkpoint, and these counters."""
    record = checkpoints.last
    if counters is None or record is None:
        return None
    assert log.progress_file is not None, "a commander's logbook has one"
    published = _published(policy_file)  # maybe by a learner that came after the one of the checkpoint
    return ResumePoint(record, counters, max(record.policy, published), checkpoints.best, log.progress_file.next_epoch)


def _published(policy_file: Path) -> PolicyRef:
    try:
        return read_ref(policy_file) or PolicyRef()
    except PolicyFileError:  # damaged: replaced by the next publication
        return PolicyRef()


def policy_file_of(folder: RunFolder, experiment: str) -> Path:
    """The file of the life before this one, if there is one: its epoch keeps that life's learner from publishing."""
    known = sorted(path for path in folder.policy.glob("policy_*") if path.suffix != ".lock")
    return known[0] if known else folder.policy_file(experiment, 0)
