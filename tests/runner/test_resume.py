"""A resumed run goes on: counters, weights, optimizer, best score and logs, each step shown once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from remuda.client.episodes import read_record
from remuda.environments.seeding import generator
from remuda.evaluator.player import EpisodePlayer
from remuda.learner.checkpoint import load
from remuda.logbook.book import Logbook
from remuda.logbook.episode_reports import EvaluationReport
from remuda.logbook.reports import Report
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.runner.serial import RunResult, Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import RunFolderError
from remuda.storage.run_folder import RunFolder
from remuda.tests.faults.sizes import LONG
from remuda.tests.logbook.event_reader import curves, histograms
from remuda.tests.runner.killing import Killed, Killer, run_to_its_death
from remuda.tests.runner.runs import Flag, forget_steps, run_tiny, steps_really_taken, tiny_config
from remuda.tests.runner.test_run_folder import rows
from remuda.training.journal import RunJournal
from remuda.training.snapshot import EvaluationResult


def interrupted(user: Path, root: Path) -> RunResult:
    return run_tiny(tiny_config(user), Start(root), stop=Flag(looks=80))


def test_counters_go_on_and_every_step_is_shown_once(user: Path, tmp_path: Path) -> None:
    """In a second and a third incarnation; once the run is over, a resume changes nothing."""
    first = interrupted(user, tmp_path / "run")
    forget_steps()
    second = run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    folder = RunFolder(second.run_dir)
    assert second.reason == "max_env_steps"
    assert second.counters.env_step == first.counters.env_step + steps_really_taken()
    assert second.counters.train_iter > first.counters.train_iter
    assert second.counters.episode > first.counters.episode
    assert second.counters.policy_version > first.counters.policy_version
    assert second.counters.wall_s > first.counters.wall_s
    shown = rows(folder.progress)
    steps = [int(row["TotalEnvInteracts"]) for row in shown]
    assert steps == sorted(set(steps))
    assert [row["Epoch"] for row in shown] == list(range(len(shown)))
    for tag, points in curves(folder.serial_tb).items():
        if tag.startswith(("learner_iter", "evaluator_iter", "collector_step")):
            at = [step for step, _ in points]
            assert at == sorted(set(at)), tag
    found = histograms(folder.serial_tb)
    evaluated = [step for step, _ in curves(folder.serial_tb)["evaluator_iter/reward_mean"]]
    assert [step for step, _ in found["actions_iter/action"]] == evaluated
    table = folder.progress.read_bytes()
    third = run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    assert (third.reason, third.counters.env_step) == ("max_env_steps", second.counters.env_step)
    assert third.counters.train_iter == second.counters.train_iter
    assert folder.progress.read_bytes() == table
    assert load(newest(folder)).progress.policy.epoch in (1, 2), "other episodes, and other random numbers"


def newest(folder: RunFolder) -> Path:
    """The last checkpoint."""
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    return folder.ckpt / last.file


def test_weights_optimizer_and_random_numbers_come_back_before_the_first_update(user: Path, tmp_path: Path) -> None:
    first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    before = torch.load(folder.interrupt, weights_only=True)
    exploration = before["rng"]["numpy"]["exploration"]
    fresh = generator(tiny_config(user).seed, "collector", 0, "exploration").bit_generator.state
    assert exploration["state"]["state"] != fresh["state"]["state"]
    run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"), stop=Flag(looks=0))
    after = torch.load(newest(folder), weights_only=True)
    assert after["last_iter"] == first.counters.train_iter
    for part in ("model", "target_model"):
        assert all(torch.equal(before[part][name], after[part][name]) for name in before[part])
    assert torch.equal(before["optimizer"]["exp_avg_sq"], after["optimizer"]["exp_avg_sq"])
    assert torch.equal(before["rng"]["torch"], after["rng"]["torch"])
    assert after["rng"]["numpy"]["exploration"] == exploration
    run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    later = torch.load(newest(folder), weights_only=True)["rng"]["numpy"]["exploration"]
    assert later["state"]["inc"] == exploration["state"]["inc"], "the same stream"
    assert later["state"]["state"] != exploration["state"]["state"]


def test_a_checkpoint_of_the_parallel_mode_or_of_another_version_is_resumed(user: Path, tmp_path: Path) -> None:
    """It has no random state of exploration; other versions are warned of where the commander speaks, too."""
    folder = RunFolder(interrupted(user, tmp_path / "run").run_dir)
    last = newest(folder)
    content = torch.load(last, weights_only=True)
    content["rng"]["numpy"] = {}
    content["versions"] |= {"remuda": "0.0.1", "torch": "1.13"}
    torch.save(content, last)
    index = CheckpointIndex(folder.ckpt)
    assert index.last is not None
    index.add(replace(index.last, sha256=hashlib.sha256(last.read_bytes()).hexdigest()))
    second = run_tiny(tiny_config(user, "stop.max_env_steps=500"), Start(tmp_path / "run", "resume"))
    assert second.reason == "max_env_steps"
    warnings = [line for line in folder.learner_log.read_text().splitlines() if "[WARNING]" in line]
    assert [f"{last.name} was saved with {of}, this is " in line
            for of, line in zip(("remuda 0.0.1", "torch 1.13"), warnings, strict=True)] == [True, True]  # fmt: skip
    said = folder.serial_evaluator_log.read_text()
    assert all(warning.partition("[WARNING]")[2] in said for warning in warnings)


def without_a_journal(folder: RunFolder) -> str:
    folder.journal.unlink()
    return "no replay was kept with iteration_"


def with_a_damaged_journal(folder: RunFolder) -> str:
    folder.journal.write_bytes(b"no database" * 1_000)
    return "journal.sqlite is damaged: file is not a database; it is kept as journal.sqlite.damaged"


def as_it_was(folder: RunFolder) -> str:
    return "replay is back: "


@pytest.mark.parametrize(
    ("change", "has_replay"), [(as_it_was, True), (without_a_journal, False), (with_a_damaged_journal, False)]
)
def test_updates_go_on_from_the_replay_that_is_left_and_the_log_says_so(
    user: Path, tmp_path: Path, change: Callable[[RunFolder], str], has_replay: bool
) -> None:
    """Without a journal, or with a damaged journal, replay begins empty."""
    first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    said = change(folder)
    limit = first.counters.env_step + 30  # fewer than min_rows
    second = run_tiny(tiny_config(user, f"stop.max_env_steps={limit}"), Start(tmp_path / "run", "resume"))
    assert second.counters.env_step >= limit
    assert (second.counters.train_iter > first.counters.train_iter) is has_replay
    log = folder.serial_evaluator_log.read_text()
    assert said in log
    assert ("replay is back: " in log) is has_replay


def test_killed_at_any_save_a_run_has_no_gap(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killer, short = Killer(at=0), tiny_config(user, "stop.max_env_steps=200")
    run_to_its_death(short, tmp_path / "whole", killer, monkeypatch)
    assert killer.moments > 60
    moments = [*range(killer.moments)] if LONG else [2, *range(8, 24, 5), *range(26, killer.moments, 31)]
    lost = 0
    for at in moments:
        root = tmp_path / f"killed-{at}"
        run_to_its_death(short, root, Killer(at), monkeypatch)
        folder = RunFolder(root)
        try:
            result = run_tiny(tiny_config(user, "stop.max_env_steps=300"), Start(root, "resume"))
        except CheckpointError:  # there was none yet
            lost += 1
            assert not (folder.ckpt / "index.json").exists()
            continue
        assert result.reason == "max_env_steps", at
        assert "starts empty" not in folder.serial_evaluator_log.read_text(), at
        shown = rows(folder.progress)
        assert [row["Epoch"] for row in shown] == list(range(len(shown))), at
        steps = [int(row["TotalEnvInteracts"]) for row in shown]
        assert steps == sorted(set(steps)), at
        assert steps[-1] == 300, at
        journal = RunJournal(folder.journal)
        found = journal.read()
        journal.close()
        assert found is not None
        assert {chunk.meta.file for chunk in found.chunks} == {file.name for file in folder.data.iterdir()}, at
        assert found.snapshot.counters.env_step == result.counters.env_step, at
        recorded = [one.counted for one in read_record(root).episodes]
        assert sum(recorded) == result.counters.episode, at
    assert 0 < lost < len(moments) / 2


def test_another_task_begins_a_new_best(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EvaluationResult, "reward_mean", 1000.0)  # nothing on the new task can beat it
        first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    former = CheckpointIndex(folder.ckpt).best
    assert former is not None
    harder = tiny_config(user, "env.max_episode_steps=3", "stop.stop_value=900")
    same = run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"), stop=Flag(looks=0))
    assert same.best is not None
    assert same.best.reward_mean == 1000.0, "of the same task the best stays"
    second = run_tiny(harder, Start(tmp_path / "run", "resume"))
    assert (second.reason, second.best is not None) == ("max_env_steps", True), "the former return stops nothing"
    index = CheckpointIndex(folder.ckpt)
    assert index.best is not None
    of_new = [each.reward for each in index.records if each.task == index.best.task and each.reward is not None]
    assert index.best.reward == max(of_new) < 1000.0
    assert folder.best.read_bytes() == (folder.ckpt / index.best.file).read_bytes()
    assert [task.env_step for task in index.tasks] == [0, first.counters.env_step], "marks of the page's curves"
    said = f"a new best begins. The best on the former task was {former.file}, with a mean return of 1000;"
    assert said in folder.serial_evaluator_log.read_text()


def test_the_checkpoint_that_was_never_evaluated_is_evaluated_first(user: Path, tmp_path: Path) -> None:
    first = interrupted(user, tmp_path / "run")
    record = CheckpointIndex(RunFolder(first.run_dir).ckpt).record(first.counters.train_iter)
    assert record.reward is None
    run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"), stop=Flag(looks=60))
    log = RunFolder(first.run_dir).serial_evaluator_log.read_text()
    assert f"evaluation of {record.file} at env_step {record.env_step}: mean return" in log


def test_what_cannot_be_resumed_says_why(user: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no run"):
        run_tiny(tiny_config(user), Start(tmp_path / "nothing", "resume"))
    root = interrupted(user, tmp_path / "run").run_dir
    with pytest.raises(CheckpointError, match=r"of another network: policy\.hidden is \[16, 8\] and was \[8, 8\]\."):
        run_tiny(tiny_config(user, "policy.hidden=[16, 8]"), Start(root, "resume"))
    longer = "policy={type: ppo, hidden: [8, 8], horizon_steps: 32}"
    with pytest.raises(RunFolderError, match=r"its stored rows have kind steps \(now segments\)\. Resume with"):
        run_tiny(tiny_config(user, longer), Start(root, "resume"))
    assert json.loads((root / "config.json").read_text())["policy"]["hidden"] == [8, 8]
    (root / "ckpt" / "index.json").unlink()
    (root / "journal.sqlite").unlink()
    with pytest.raises(CheckpointError, match="no checkpoint yet; start over with --force"):
        run_tiny(tiny_config(user), Start(root, "resume"))


def killed(*given: Any, **named: Any) -> None:
    raise Killed


def test_a_committed_evaluation_is_shown_later(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And entered in index.json, and not played again."""
    folder, emit, evaluated = RunFolder(tmp_path / "run"), Logbook.emit, list[EvaluationReport]()

    def dying(book: Logbook, report: Report) -> None:
        if isinstance(report, EvaluationReport) and report.train_iter > 0:
            evaluated.append(report)
            raise Killed
        emit(book, report)

    with monkeypatch.context() as patch:
        patch.setattr(Logbook, "emit", dying)
        with pytest.raises(Killed):
            run_tiny(tiny_config(user), Start(folder.root))
        patch.setattr(Logbook, "emit", emit)
        patch.setattr(EpisodePlayer, "evaluate", killed)
        run_tiny(tiny_config(user), Start(folder.root, "resume"), stop=Flag(looks=0))
    (report,) = evaluated
    mean = sum(report.returns) / len(report.returns)
    points = dict(curves(folder.serial_tb)["evaluator_iter/reward_mean"])
    assert points[report.train_iter] == pytest.approx(mean)
    rewards = {record.train_iter: record.reward for record in CheckpointIndex(folder.ckpt).records}
    assert rewards[report.train_iter] == pytest.approx(mean)
