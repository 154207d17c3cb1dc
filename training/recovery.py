"""Continuation of a killed run: journaled records that its files lack, and the start of a resumed run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import structs

from remuda.config.current import without_secrets
from remuda.config.declaration import RowShape, Steps
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import configs_of_policies
from remuda.environments.errors import EnvironmentBuildError
from remuda.logbook.book import Logbook
from remuda.policy.algorithms import declaration
from remuda.storage.atomic import write_bytes
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import RunFolderError
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import read_bounded
from remuda.training.commander.curriculum import Curriculum
from remuda.training.commander.end import End
from remuda.training.commander.outcomes import evaluation_report
from remuda.training.journal_entry import Recovered, ResumePoint
from remuda.training.run_snapshot import RunSnapshot
from remuda.training.snapshot import CommanderSnapshot, CountedSnapshot, TaskSnapshot
from remuda.wire.messages import CheckpointRecord, ChunkMeta, Counters, PolicyRef


def check_rows(run: RunFolder, policies: Mapping[str, ExperimentConfig]) -> dict[str, str]:
    """Check a run to resume, before config.json is replaced: its stored rows must have the shape of new rows, since
    both lie in the same replay. Return warnings by policy: stored steps keep their discount. Raises RunFolderError."""
    agents = [agent for own in policies.values() for agent in own.env.agents]
    try:
        former = configs_of_policies(load_config(run.config_json, import_algorithm=False).config, agents)
    except (ConfigError, EnvironmentBuildError):  # there is no readable config.json, or the policies are others
        return {}
    warnings: dict[str, str] = {}
    for name, own in policies.items():
        stored, new = declaration(former[name]).rows, declaration(own).rows
        before, now = _sizes(stored), _sizes(new)
        if before != now:
            changed = [
                f"{key} {value} (now {now[key]})" for key, value in before.items() if now.get(key, value) != value
            ]
            raise RunFolderError(
                f"{run.root} cannot be resumed: its stored rows have {', '.join(changed)}. Resume with the former "
                "settings of policy, or begin a new run with the weights of this one (learner.initialize_from)"
            )
        if isinstance(stored, Steps) and stored.discount != new.discount:
            warnings[name] = (
                f"the replay's stored steps keep the discount {stored.discount:g} until they are evicted; only new "
                f"steps have {new.discount:g}. To begin with the new discount alone, begin a new run with the weights "
                "of this one (learner.initialize_from)"
            )
    return warnings


def _sizes(rows: RowShape) -> dict[str, object]:
    """Return the settings that determine the shape of a row. A step has one shape, over any number of steps."""
    return {"kind": rows.kind} if isinstance(rows, Steps) else rows.model_dump(exclude={"discount", "overlap_steps"})


def catch_up(checkpoints: CheckpointIndex, commander: CommanderSnapshot) -> None:
    """Add journaled facts missing in index.json: a checkpoint, the result of an evaluation, and the checkpoint of an
    interrupted run's end."""
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
            checkpoints.set_reward(best.train_iter, reward, task=best.task, best=True)
            rewards[best.train_iter] = reward
    if commander.last is not None:
        evaluated = commander.last.record.train_iter
        if evaluated in rewards and rewards[evaluated] is None:
            last = commander.last
            kwargs_json = without_secrets(last.task.kwargs_json)
            checkpoints.set_reward(evaluated, last.reward_mean, task=last.record.task, kwargs_json=kwargs_json)


_COUNTED = msgspec.json.Decoder(list[CountedSnapshot])
_MOST_BYTES = 64 << 20


def keep_counted(run: RunFolder, recovered: Recovered | None, uncounted: Iterable[ChunkMeta] = ()) -> None:
    """Keep which chunks were counted before this resume, since the ledger of a resumed run begins without leases: only
    episodes of counted chunks count (see remuda.client.replaying). `uncounted` are counted from now on. Raises OSError.
    """
    if recovered is None or not run.steps.is_dir():
        return
    more = [
        CountedSnapshot(0, meta.chunk.worker, meta.chunk.incarnation, meta.chunk.sequence, meta.chunk.sequence, [])
        for meta in uncounted
    ]
    rows = [*counted_before(run), *recovered.snapshot.experiment.replay.ledger.counted, *more]
    write_bytes(run.counted_before, msgspec.json.encode(rows), durable=True)


def counted_before(run: RunFolder) -> list[CountedSnapshot]:
    """Return the leases before the last resume; empty without a resume, or without a readable file."""
    try:
        return _COUNTED.decode(read_bounded(run.counted_before, most_bytes=_MOST_BYTES))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def show_again(log: Logbook, snapshot: RunSnapshot, config: ExperimentConfig) -> None:
    """Log the last journaled evaluation and rows, if missing in progress.txt and the curves."""
    for row in snapshot.experiment.progress.given:
        if log.progress_file is not None and log.progress_file.next_epoch <= row.epoch:
            log.progress(row)
    commander = snapshot.experiment.dispatch.commander
    last = commander.last
    if last is None or config.evaluator.episodes == 0:  # without evaluations training episodes have evaluated
        return
    if not log.shows_evaluation(last.record.train_iter):
        best = commander.best is not None and commander.best[0].train_iter == last.record.train_iter
        has_tasks = Curriculum(config, commander.task).shown is not None
        log.emit(evaluation_report(last, best=best, has_tasks=has_tasks))


def task_at(recovered: Recovered | None) -> TaskSnapshot:
    """Return the journaled task of a run; without a journal the first task, from which conditions continue."""
    return TaskSnapshot() if recovered is None else recovered.snapshot.experiment.dispatch.commander.task


def resume_point(
    record: CheckpointRecord,
    counters: Counters,
    published: PolicyRef,
    checkpoints: CheckpointIndex,
    log: Logbook,
    *,
    config: ExperimentConfig,
    state: TaskSnapshot,
) -> ResumePoint:
    """Return the start of a resumed run: this checkpoint, these counters, and a policy newer than the last `published`
    policy. `log` is cut off already.

    The run continues at the task of `state`. If evaluations now measure another task, earlier returns no longer count:
    the checkpoint is evaluated again, as the first that may be the best.
    """
    assert log.progress_file is not None, "a run has one"
    policy, rows = max(record.policy, published), log.progress_file.next_epoch
    best, task = checkpoints.best, Curriculum(config, state).name
    if best is not None and _is_of_another(best, task):
        log.say(
            "commander",
            f"the task is another than before: a new best begins. The best on the former task was {best.file}, with a "
            f"mean return of {best.reward:.6g}; ckpt_best.pth.tar stays that file until the first evaluation",
            level="warning",
        )
        best = None
    if _is_of_another(record, task):
        record = structs.replace(record, reward=None)
    return ResumePoint(record, counters, policy, best, rows, checkpoints.records, state)


def _is_of_another(record: CheckpointRecord, task: str) -> bool:
    """True if its reward was measured on another task; records of older versions of Remuda have no task."""
    return record.task not in ("", task)
