"""A persistent coordinator owns its runs folder and finds the runs of the one before it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace as altered
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.buffer.chunk import chunk_name, write_chunk
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.disk.runs_folder import RunsFolder, known_runs, unrecoverable_run
from remuda.coordinator.effects import CloseRun, PrepareRun, Requester
from remuda.coordinator.events import PreparedRun, RecoveredRun
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.journaling import recovered_run
from remuda.logbook.progress import ProgressRow
from remuda.logbook.reports import BufferSampleReport
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import OnExists
from remuda.storage.run_folder import RunFolder
from remuda.tests.buffer.chunks import WORKER, cartpole_columns, meta_of
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.disk.writing import carry_out, journal
from remuda.tests.coordinator.simulation import World
from remuda.tests.logbook.event_reader import curves
from remuda.tests.worker.leases import small_config
from remuda.training.effects import Emit
from remuda.training.journal import RunJournal
from remuda.training.journal_database import JournalDamagedError
from remuda.training.journal_entry import JournalEntry
from remuda.training.journal_entry import Recovered as BareRun
from remuda.training.replay.ledger import Ledger
from remuda.training.run_snapshot import FORMAT, Changes, FinishedRun, HourRow, Rows, RunSnapshot
from remuda.training.snapshot import EvaluationResult, LeaseHolder, LeaseSnapshot
from remuda.wire.messages import (
    OVER,
    CheckpointRecord,
    ChunkId,
    Done,
    ExperimentState,
    LogRequest,
    LogText,
    PolicyRef,
    Quota,
    Rejected,
    Status,
    StatusRequest,
    StopExperiment,
    Submit,
    Used,
)

FIRST, SECOND, OTHER = (f"eeeeeeee-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))


def submitted(folders: RunFolders, experiment: str, name: str, on_exists: OnExists = "error") -> JournalEntry:
    """Make the run, as the service does, and return what it would journal."""
    config = small_config()
    submit = Submit(name, config.model_dump_json(), name, on_exists)
    prepared = folders.prepare(PrepareRun(Requester(b"client", 7), experiment, submit))
    assert isinstance(prepared, PreparedRun)
    identity = prepared.identity
    snapshot = Experiment([identity], config, 0.0).snapshot(0.0)
    return JournalEntry(
        experiment, RunSnapshot(FORMAT, replace(identity, config_json=submit.config_json), snapshot, leases=7)
    )


def save(run: RunFolder) -> None:
    """A checkpoint to resume from."""
    path = run.checkpoint(0)
    path.touch()
    CheckpointIndex(run.ckpt).add(CheckpointRecord(0, 0, 0.0, None, path.name, "0" * 64, "2026-01-01T00:00:00+00:00"))


def in_state(turn: JournalEntry, state: ExperimentState) -> JournalEntry:
    turn = altered(turn, snapshot=replace(turn.snapshot, experiment=replace(turn.snapshot.experiment, state=state)))
    if state not in OVER:
        return turn
    experiment = recovered_run(BareRun(turn.snapshot, (), None), 0.0).experiment
    return altered(turn, last=FinishedRun.of(experiment.identity, experiment.status(0.0)))


def leave(herd: RunsFolder, folders: RunFolders, turn: JournalEntry) -> None:
    """The coordinator writes a turn of a run and is killed."""
    herd.note(turn)
    journal(folders, turn)
    folders.close()
    herd.close()


def recover(runs: Path) -> list[RecoveredRun]:
    """What the next coordinator takes up."""
    return [found for found in all_found(runs) if isinstance(found, RecoveredRun)]


def all_found(runs: Path) -> list[RecoveredRun | FinishedRun]:
    """And what is over, or cannot be taken up."""
    herd, folders = RunsFolder(runs), RunFolders(runs)
    found = everything(herd, folders)
    folders.close()
    herd.close()
    return found


def everything(herd: RunsFolder, folders: RunFolders) -> list[RecoveredRun | FinishedRun]:
    finished, taken_up = herd.finished(), [herd.take_up(run, folders, 0.0) for run in herd.unfinished()]
    return [*finished, *(found for found in taken_up if found is not None)]


def drawn(train_iter: int) -> BufferSampleReport:
    return BufferSampleReport(
        train_iter=train_iter,
        env_step=0,
        sample_count=1,
        use_avg=1.0,
        use_max=1.0,
        priority_avg=1.0,
        priority_max=1.0,
        priority_min=1.0,
        staleness_avg=1.0,
        staleness_max=1.0,
    )


@pytest.mark.parametrize("ready", [False, True])
def test_curves_are_rewound_for_a_learner_that_begins_after_a_restart(tmp_path: Path, ready: bool) -> None:
    """They had come to update 900 when it was lost; another begins at 500. Once that is ready, it was done, and the
    newest points are its own."""
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    turn = in_state(submitted(folders, FIRST, "one"), "running")
    known = turn.snapshot.experiment
    holder = LeaseHolder(7, WORKER, 1, "learner", "here", 1)
    leases = replace(known.leases, leases=[LeaseSnapshot(holder, 0, 1, ready, draining=False, over=False)])
    known = replace(known, leases=leases, flow=replace(known.flow, train_iter=500))
    turn = altered(turn, snapshot=replace(turn.snapshot, experiment=known))
    herd.note(turn)
    journal(folders, altered(turn, changes=Changes(lease=Rows(tuple(leases.leases)), whole=True)))
    for train_iter in (400, 500, 600, 900):
        carry_out(folders, Emit(FIRST, drawn(train_iter)))
    folders.close()
    herd.close()
    [taken_up] = recover(tmp_path)
    assert taken_up.snapshot.experiment.leases.leases == leases.leases
    steps = [step for step, _ in curves(RunFolder(tmp_path / "one").buffer_tb)["buffer_iter/use_avg"]]
    assert steps == ([400, 500, 600, 900] if ready else [400, 500])


def test_a_run_that_is_over_costs_one_row_and_its_folder_is_not_looked_at(tmp_path: Path) -> None:
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    turn = in_state(submitted(folders, FIRST, "one"), "running")
    herd.note(turn)
    journal(folders, turn)
    herd.note(in_state(turn, "finished"))
    carry_out(folders, CloseRun(FIRST, frozenset()))
    folders.close()
    herd.close()
    assert not (tmp_path / "one" / ".owner").exists(), "nobody has it open"
    shutil.rmtree(tmp_path / "one")
    for _ in range(2):
        [found] = all_found(tmp_path)
        assert isinstance(found, FinishedRun)
        assert (found.identity.id, found.identity.run_dir) == (FIRST, str(tmp_path / "one"))
        assert found.state == "finished"


def test_a_run_whose_coordinator_died_between_its_journal_and_the_list_is_listed_as_over(tmp_path: Path) -> None:
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    turn = submitted(folders, FIRST, "one")
    herd.note(turn)
    journal(folders, in_state(turn, "finished"))
    folders.close()
    herd.close()
    for _ in range(2):
        [found] = all_found(tmp_path)
        assert isinstance(found, FinishedRun)
        assert found.state == "finished"
    herd = RunsFolder(tmp_path)
    assert herd.unfinished() == []
    herd.close()


def test_a_list_of_an_older_version_is_gone_on_with(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "coordinator.sqlite")) as db:
        db.execute("create table run (experiment text primary key, run_dir text, is_over integer not null default 0)")
        db.execute("insert into run values ('old', '/old', 1)")
        db.commit()
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    assert herd.finished() == []
    herd.note(submitted(folders, FIRST, "one"))
    herd.note(in_state(submitted(folders, SECOND, "two"), "finished"))
    assert [run.experiment for run in herd.unfinished()] == [FIRST]
    assert [run.identity.id for run in herd.finished()] == [SECOND]
    folders.close()
    herd.close()


def test_a_folder_that_was_resumed_is_taken_up_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its newest incarnation: the journal in it is that one's."""
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    first = in_state(submitted(folders, FIRST, "one"), "finished")
    herd.note(first)
    journal(folders, first)
    other = submitted(folders, OTHER, "other")
    herd.note(other)
    journal(folders, other)
    save(RunFolder(tmp_path / "one"))
    carry_out(folders, CloseRun(FIRST, frozenset()))
    second = submitted(folders, SECOND, "one", on_exists="resume")
    leave(herd, folders, second)
    assert [run.snapshot.identity.id for run in recover(tmp_path)] == [OTHER, SECOND]
    assert capsys.readouterr().err == ""
    herd = RunsFolder(tmp_path)
    herd.note(in_state(second, "finished"))
    assert [run.experiment for run in herd.unfinished()] == [OTHER]
    assert [run.identity.id for run in herd.finished()] == [SECOND]
    herd.close()


def test_runs_go_on_in_a_runs_folder_that_was_moved(tmp_path: Path) -> None:
    """Also in the folder of an older version, with absolute paths."""
    before, after = tmp_path / "before", tmp_path / "after"
    herd, folders = RunsFolder(before), RunFolders(before)
    herd.note(in_state(submitted(folders, OTHER, "other"), "finished"))
    leave(herd, folders, submitted(folders, FIRST, "one"))
    with closing(sqlite3.connect(before / "coordinator.sqlite")) as db:
        db.execute("update run set run_dir = ? where experiment = ?", (f"{before}/other", OTHER))
        db.commit()
    RunsFolder(before).close()
    before.rename(after)
    over, gone_on_with = all_found(after)
    assert isinstance(over, FinishedRun)
    assert over.identity.run_dir == over.status(0.0).run_dir == str(after / "other")
    assert isinstance(gone_on_with, RecoveredRun)
    identity = gone_on_with.experiment.identity
    assert identity.run_dir == str(after / "one")
    assert Path(identity.policy_file).parent == after / "one" / "policy"
    assert {run.run_dir for run in known_runs(after)} == {after / "one", after / "other"}


def test_what_was_journaled_in_the_last_moment_is_shown_once(tmp_path: Path) -> None:
    """A row of progress.txt and an evaluation, whether or not they got there before the coordinator was killed; of one
    that was not the best, too, index.json has what it gave."""
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    turn = submitted(folders, FIRST, "one")
    row = ProgressRow(epoch=0, env_step=0, test_returns=[3.0, 5.0], test_lengths=[3, 5], losses={}, wall_s=1.0)
    run = RunFolder(tmp_path / "one")
    save(run)
    record = CheckpointIndex(run.ckpt).last
    assert record is not None
    experiment = turn.snapshot.experiment
    dispatch = experiment.dispatch
    commander = replace(dispatch.commander, last=EvaluationResult(record, (3.0, 5.0), (3, 5), 0.5), last_record=record)
    snapshot = replace(
        experiment,
        dispatch=replace(dispatch, commander=commander),
        progress=replace(experiment.progress, epoch=1, given=[row]),
    )
    turn = in_state(altered(turn, snapshot=replace(turn.snapshot, experiment=snapshot)), "running")
    leave(herd, folders, turn)
    for _ in range(3):
        recover(tmp_path)
        assert len(run.progress.read_text().splitlines()) == 2
        assert curves(run.commander_tb)["evaluator_iter/reward_mean"] == [(0, 4.0)]
        assert run.commander_log.read_text().count("=== Evaluation") == 1
        assert [(each.train_iter, each.reward) for each in CheckpointIndex(run.ckpt).records] == [(0, 4.0)]
        assert not run.best.exists()


@pytest.mark.parametrize("on_exists", [None, "resume"])
def test_the_last_checkpoint_of_an_interrupted_run_is_linked(tmp_path: Path, on_exists: OnExists | None) -> None:
    """Also where the coordinator was killed between its journal and index.json; whether it is started again, or the run
    resumed."""
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    turn = submitted(folders, FIRST, "one")
    run = RunFolder(tmp_path / "one")
    save(run)
    run.checkpoint(5).touch()
    record = CheckpointRecord(5, 9, 1.0, None, "iteration_5.pth.tar", "0" * 64, "2026-01-01T00:00:00+00:00")
    experiment = turn.snapshot.experiment
    dispatch = experiment.dispatch
    commander = replace(dispatch.commander, last_record=record, end=("stopped", "asked to"), final_saved=True)
    snapshot = replace(experiment, state="stopping", dispatch=replace(dispatch, commander=commander))
    turn = altered(turn, snapshot=replace(turn.snapshot, experiment=snapshot))
    leave(herd, folders, turn)
    if on_exists is None:
        recover(tmp_path)
    else:
        folders = RunFolders(tmp_path)
        submitted(folders, SECOND, "one", on_exists)
        folders.close()
    assert CheckpointIndex(run.ckpt).last == record
    assert run.interrupt.samefile(run.checkpoint(5))


LOSSES = {
    "the journal": "journal.sqlite is gone",
    "what was in it": "journal.sqlite is empty",
    "its first page": "journal.sqlite is damaged: file is not a database",
    "its middle": "journal.sqlite is damaged: ",
    "index.json": "index.json is damaged",
    "the folder": "one is gone",
}


@pytest.mark.parametrize(("loss", "reason"), LOSSES.items())
def test_a_lost_journal_fails_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], loss: str, reason: str) -> None:
    """With the counters of its last checkpoint, and what to do; nobody has it open, and looking changes nothing."""
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    turn = in_state(submitted(folders, FIRST, "one"), "running")
    herd.note(turn)
    journal(folders, turn)
    run = RunFolder(tmp_path / "one")
    save(run)
    folders.close()
    herd.close()
    run.owner.write_text("process 1 on another\n")  # as a killed coordinator leaves it
    os.utime(run.owner, (0, 0))
    lose(run, loss)
    for _ in range(2):
        [lost] = all_found(tmp_path)
        assert isinstance(lost, FinishedRun)
        status = lost.status(0.0)
        assert (status.id, status.state) == (FIRST, "failed")
        assert status.name == ("one" if loss == "the folder" else "small")
        assert status.reason is not None
        assert reason in status.reason
        assert status.reason in capsys.readouterr().err
        resumable = loss not in ("index.json", "the folder")
        assert ("to go on from iteration_0.pth.tar, type: remuda submit --resume" in status.reason) == resumable
        assert not run.owner.exists()
    assert run.root.exists() == (loss != "the folder")


def lose(run: RunFolder, loss: str) -> None:
    match loss:
        case "the journal":
            run.journal.unlink()
        case "what was in it":
            run.journal.write_bytes(b"")
        case "its first page":
            run.journal.write_bytes(b"no database at all" * 1_000)
        case "its middle":
            content = run.journal.read_bytes()
            run.journal.write_bytes(content[:4_096] + b"\xff" * (len(content) - 4_096))
        case "index.json":
            run.index.write_text("{")
        case _:
            shutil.rmtree(run.root)


def test_each_start_has_a_higher_epoch_and_knows_where_the_last_one_listened(tmp_path: Path) -> None:
    epochs: list[int] = []
    for port in range(3):
        herd = RunsFolder(tmp_path)
        assert herd.last_address == (f"tcp://127.0.0.1:{port - 1}" if port else None)
        epochs.append(herd.begin(f"tcp://127.0.0.1:{port}"))
        herd.close()
    assert epochs == [1, 2, 3]


@pytest.mark.parametrize("page", ["of the addresses", "of the runs"])
def test_damage_within_the_list_is_said_as_well(tmp_path: Path, page: str) -> None:
    """Opening it does not read all of it."""
    herd = RunsFolder(tmp_path)
    herd.begin("tcp://127.0.0.1:1")
    herd.close()
    path = tmp_path / "coordinator.sqlite"
    with closing(sqlite3.connect(path)) as db:
        [(root,)] = db.execute(
            "select rootpage from sqlite_master where name = ?", ("start" if page == "of the addresses" else "run",)
        )
    content = bytearray(path.read_bytes())
    content[(root - 1) * 4_096 : root * 4_096] = b"\xff" * 4_096
    path.write_bytes(content)
    with pytest.raises(JournalDamagedError, match=r"coordinator\.sqlite is damaged: .*; move it away, and go on"):
        RunsFolder(tmp_path)
    assert not (tmp_path / ".coordinator").exists(), "the folder is free"


def test_a_run_that_was_journaled_and_not_listed_yet_is_begun_again_by_its_submission(tmp_path: Path) -> None:
    dying = RunFolders(tmp_path)
    journal(dying, submitted(dying, FIRST, "one"))
    dying.close()
    folders = RunFolders(tmp_path)
    submitted(folders, FIRST, "one")
    folders.close()
    begun = RunJournal(RunFolder(tmp_path / "one").journal)
    assert begun.read() is None, "nobody was told of it"
    begun.close()


def test_payloads_that_were_written_while_there_was_no_coordinator_are_found(tmp_path: Path) -> None:
    """Those of leases that the journal knows, and that it has not counted; nothing else in data/."""
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    turn = in_state(submitted(folders, FIRST, "one"), "running")
    ledger = Ledger()
    ledger.open(3, WORKER, 1)
    ledger.accept(meta_of(0, 20), 3)
    replay = replace(turn.snapshot.experiment.replay, ledger=ledger.snapshot())
    snapshot = replace(turn.snapshot, experiment=replace(turn.snapshot.experiment, replay=replay))
    turn = altered(turn, snapshot=snapshot, changes=Changes(counted=Rows(ledger.rows_of_leases())))
    herd.note(turn)
    journal(folders, turn)
    data = RunFolder(tmp_path / "one").data
    written = [write_chunk(data, meta_of(number, 20), cartpole_columns(20)) for number in (0, 1)]
    other = replace(meta_of(5, 20), chunk=ChunkId(WORKER, 2, 5), file=chunk_name(ChunkId(WORKER, 2, 5)))
    write_chunk(data, other, cartpole_columns(20))
    (data / meta_of(2, 20).file).write_bytes(b"damaged")
    folders.close()
    herd.close()
    [found] = recover(tmp_path)
    assert found.uncounted == ((written[1],),)


ID = "eeeeeeee-0000-4000-8000-000000000001"
LOST = unrecoverable_run(ID, Path("/runs/x"), JournalDamagedError("it is gone"))


def world_with_an_unrecoverable_run() -> World:
    world = World(config())
    world.coordinator.recover([LOST], world.now_s)
    return world


def answer(world: World, question: object) -> object:
    before = len(world.replies)
    world.ask(question)  # type: ignore[arg-type]
    while len(world.replies) == before:
        world.step()
    return world.replies[-1]


@pytest.mark.parametrize("query", ["x", ID, "eeee"])
def test_it_is_shown_as_failed_and_can_be_asked_for(query: str) -> None:
    world = world_with_an_unrecoverable_run()
    status = answer(world, StatusRequest(query))
    assert isinstance(status, Status)
    [shown] = status.experiments
    assert (shown.id, shown.state, shown.reason) == (ID, "failed", LOST.last.reason)
    assert world.status().experiments == [shown]
    log = answer(world, LogRequest(query, "commander"))
    assert isinstance(log, LogText)
    assert log.over, "following it ends"
    assert isinstance(answer(world, StopExperiment(query)), Done)
    unknown = answer(world, StatusRequest("nobody"))
    assert isinstance(unknown, Rejected)
    assert "x (eeeeeeee)" in unknown.reason


def test_once_its_folder_is_resumed_it_is_not_shown_any_more() -> None:
    world = world_with_an_unrecoverable_run()
    world.herd(collectors=2)
    world.submit("other")
    world.step()
    assert [each.name for each in world.status().experiments] == ["x", "other"]
    world.submit("x")
    world.step()
    assert [each.name for each in world.status().experiments] == ["other", "x"]
    assert world.experiment(1).state != "failed"


def test_what_is_left_of_a_run_folder_tells_name_counters_and_where_to_resume(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.ckpt.mkdir()
    run.config_json.write_text(json.dumps({"name": "pole"}))
    checkpoints = CheckpointIndex(run.ckpt)
    run.checkpoint(7).touch()
    record = CheckpointRecord(7, 700, 9.5, None, "iteration_7.pth.tar", "0" * 64, "now", 3, PolicyRef(1, 4, 6))
    checkpoints.add(record)
    checkpoints.set_reward(7, 12.5, best=True)
    lost = unrecoverable_run(ID, tmp_path, JournalDamagedError("the journal is gone"))
    status = lost.status(0.0)
    assert (status.name, status.env_step, status.train_iter, status.episode) == ("pole", 700, 7, 3)
    assert (status.policy_version, status.last_return, status.best_return) == (4, 12.5, 12.5)
    assert status.reason == (
        f"{tmp_path} cannot be recovered: the journal is gone; to go on from iteration_7.pth.tar, type: "
        f"remuda submit --resume --run-dir {tmp_path}"
    )


def test_a_run_of_another_coordinator_is_not_taken_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    turn = in_state(submitted(folders, FIRST, "one"), "running")
    herd.note(turn)
    journal(folders, turn)
    herd.close()  # the folder is free, the run is not
    assert all_found(tmp_path) == []
    assert "which is alive" in capsys.readouterr().err
    folders.close()


def test_the_use_of_runs_and_quotas_outlive_the_coordinator_and_repeated_rows_change_nothing(tmp_path: Path) -> None:
    """An unfinished run is charged by its journal alone, so its hours are no past."""
    hour = int(time.time()) // 3_600
    herd, folders = RunsFolder(tmp_path), RunFolders(tmp_path)
    over, begun = submitted(folders, FIRST, "over"), submitted(folders, OTHER, "begun")
    rows = HourRow(hour - 3, Used(5, env_steps=2)), HourRow(hour, Used(9, env_steps=2))
    last = in_state(over, "finished").last
    assert last is not None
    for _ in range(2):
        herd.note(altered(over, changes=Changes(hour=Rows(rows[:1]))))
        herd.note(altered(begun, changes=Changes(hour=Rows(rows))))
        herd.note_over(replace(last, hours=[*rows]))
        herd.keep_quota(Quota("user/a", workers=3))
    herd.keep_quota(Quota("user/b", weight=2.0))
    herd.keep_quota(Quota("user/b"))
    herd.close()
    folders.close()
    herd = RunsFolder(tmp_path)
    assert herd.quotas() == [Quota("user/a", workers=3)]
    assert [(past.hour, past.used) for past in herd.past()] == [(hour - 3, Used(5, env_steps=2)), (hour, Used(4))]
    lines = herd.used(hour - 1, hour + 1, without={OTHER})
    assert [(line.name, line.experiment, line.used) for line in lines] == [("over", FIRST, Used(4))]
    assert len(herd.used(0, hour, without=())) == 2
    herd.close()
