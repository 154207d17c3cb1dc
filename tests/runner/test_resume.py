"""A resumed run goes on: counters, weights, optimizer, best score and logs, each step shown once."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

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
from remuda.tests.logbook.event_reader import curves
from remuda.tests.runner.killing import Killed, Killer, run_to_its_death
from remuda.tests.runner.runs import Flag, forget_steps, run_tiny, steps_really_taken, tiny_config
from remuda.tests.runner.test_run_folder import rows
from remuda.training import journal_database
from remuda.training.commander.evaluation import EvaluationResult
from remuda.training.journal import RunJournal
from remuda.training.journal_database import JournalError


def interrupted(user: Path, root: Path) -> RunResult:
    return run_tiny(tiny_config(user), Start(root), stop=Flag(looks=80))


def test_counters_go_on_and_every_step_is_shown_once(user: Path, tmp_path: Path) -> None:
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


def test_weights_and_optimizer_come_back_before_the_first_update(user: Path, tmp_path: Path) -> None:
    first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    before = torch.load(folder.interrupt, weights_only=True)
    run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"), stop=Flag(looks=0))
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    assert last.train_iter == first.counters.train_iter
    after = torch.load(folder.ckpt / last.file, weights_only=True)
    for part in ("model", "target_model"):
        assert all(torch.equal(before[part][name], after[part][name]) for name in before[part])
    assert torch.equal(before["optimizer"]["exp_avg_sq"], after["optimizer"]["exp_avg_sq"])
    assert torch.equal(before["rng"]["torch"], after["rng"]["torch"])


def test_an_optimizer_of_the_user_comes_back_and_takes_no_state_of_another(user: Path, tmp_path: Path) -> None:
    (user / "mine.py").write_text("import torch\n\nclass Nadam(torch.optim.NAdam):\n    pass\n")
    nadam = ("learner.optimizer=mine:Nadam", "learner.optimizer_settings={weight_decay: 0.01}")
    first = run_tiny(tiny_config(user, *nadam), Start(tmp_path / "run"), stop=Flag(looks=80))
    folder = RunFolder(first.run_dir)
    before = torch.load(folder.interrupt, weights_only=True)["optimizer"]
    assert before["state_dict"]["state"][0]["step"] == first.counters.train_iter > 0
    with pytest.raises(CheckpointError, match=r"the state is of mine:Nadam, and learner\.optimizer is adam"):
        run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    run_tiny(tiny_config(user, *nadam), Start(tmp_path / "run", "resume"), stop=Flag(looks=0))
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    after = torch.load(folder.ckpt / last.file, weights_only=True)["optimizer"]
    torch.testing.assert_close(after["state_dict"], before["state_dict"], rtol=0, atol=0)


def test_exploration_goes_on_with_its_random_numbers(user: Path, tmp_path: Path) -> None:
    """Those that the killed run would have drawn next, and not the first ones again."""
    first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    before = torch.load(folder.interrupt, weights_only=True)["rng"]["numpy"]["exploration"]
    fresh = generator(tiny_config(user).seed, "collector", 0, "exploration")
    assert before["state"]["state"] != fresh.bit_generator.state["state"]["state"]
    run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"), stop=Flag(looks=0))
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    assert torch.load(folder.ckpt / last.file, weights_only=True)["rng"]["numpy"]["exploration"] == before
    run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    after = torch.load(folder.ckpt / last.file, weights_only=True)["rng"]["numpy"]["exploration"]
    assert after["state"]["inc"] == before["state"]["inc"], "the same stream"
    assert after["state"]["state"] != before["state"]["state"]


def test_a_checkpoint_of_the_parallel_mode_has_no_exploration_to_go_on_with(user: Path, tmp_path: Path) -> None:
    """Nor has an older one: then exploration begins a stream of its own."""
    first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    content = torch.load(folder.ckpt / last.file, weights_only=True)
    content["rng"]["numpy"] = {}
    torch.save(content, folder.ckpt / last.file)
    second = run_tiny(tiny_config(user, "stop.max_env_steps=500"), Start(tmp_path / "run", "resume"))
    assert second.reason == "max_env_steps"


def test_updates_go_on_from_the_replay_there_was(user: Path, tmp_path: Path) -> None:
    first = interrupted(user, tmp_path / "run")
    limit = first.counters.env_step + 30  # fewer than min_rows
    second = run_tiny(tiny_config(user, f"stop.max_env_steps={limit}"), Start(tmp_path / "run", "resume"))
    assert second.counters.env_step >= limit
    assert second.counters.train_iter > first.counters.train_iter
    assert "replay is back: " in RunFolder(second.run_dir).serial_evaluator_log.read_text()


def test_without_a_journal_replay_is_filled_anew(user: Path, tmp_path: Path) -> None:
    """As in a run of a Remuda that kept none."""
    first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    folder.journal.unlink()
    limit = first.counters.env_step + 30  # fewer than min_rows
    second = run_tiny(tiny_config(user, f"stop.max_env_steps={limit}"), Start(tmp_path / "run", "resume"))
    assert second.counters.train_iter == first.counters.train_iter
    assert "no replay was kept with iteration_" in folder.serial_evaluator_log.read_text()


def test_with_a_damaged_journal_replay_is_filled_anew(user: Path, tmp_path: Path) -> None:
    """And the damaged one is kept."""
    first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    folder.journal.write_bytes(b"no database" * 1_000)
    second = run_tiny(tiny_config(user, "stop.max_env_steps=900"), Start(tmp_path / "run", "resume"))
    assert second.counters.train_iter > first.counters.train_iter
    log = folder.serial_evaluator_log.read_text()
    assert "journal.sqlite is damaged: file is not a database; it is kept as journal.sqlite.damaged" in log
    assert "no replay was kept with iteration_" in log


def test_a_damaged_payload_is_left_out_with_a_warning(user: Path, tmp_path: Path) -> None:
    folder = RunFolder(interrupted(user, tmp_path / "run").run_dir)
    newest = max(folder.data.iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    second = run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    assert second.reason == "max_env_steps"
    log = folder.serial_evaluator_log.read_text()
    assert f"[WARNING] payload {newest.name} is not sampled any more: " in log
    assert "replay is back: " in log


def test_a_finished_run_goes_on_with_a_larger_budget(user: Path, tmp_path: Path) -> None:
    first = run_tiny(tiny_config(user), Start(tmp_path / "run"))
    second = run_tiny(tiny_config(user, "stop.max_env_steps=700"), Start(tmp_path / "run", "resume"))
    assert second.reason == "max_env_steps"
    assert 700 <= second.counters.env_step < 720
    assert second.counters.train_iter > first.counters.train_iter
    shown = rows(RunFolder(second.run_dir).progress)
    assert [row["Epoch"] for row in shown] == list(range(len(shown)))
    steps = [int(row["TotalEnvInteracts"]) for row in shown]
    assert steps == sorted(set(steps))


def test_killed_at_any_moment_of_a_save_a_run_goes_on_without_a_gap(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer, short = Killer(at=0), tiny_config(user, "stop.max_env_steps=200")
    run_to_its_death(short, tmp_path / "whole", killer, monkeypatch)
    assert killer.moments > 60
    moments = [*range(killer.moments)] if LONG else [2, *range(8, 24, 5), *range(26, killer.moments, 23)]
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
    assert 0 < lost < len(moments) / 2


def test_the_same_checkpoint_resumed_twice_gives_the_same_numbers_twice(user: Path, tmp_path: Path) -> None:
    first = interrupted(user, tmp_path / "one")
    shutil.copytree(first.run_dir, tmp_path / "two")
    ends = [run_tiny(tiny_config(user), Start(tmp_path / name, "resume")) for name in ("one", "two")]
    assert ends[0].counters.train_iter == ends[1].counters.train_iter
    saved = [torch.load(RunFolder(end.run_dir).checkpoint(end.counters.train_iter), weights_only=True) for end in ends]
    for part in ("model", "target_model"):
        assert all(torch.equal(saved[0][part][name], saved[1][part][name]) for name in saved[0][part])


def test_a_run_in_the_hands_of_another_process_is_not_resumed(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = interrupted(user, tmp_path / "run").run_dir
    monkeypatch.setattr(journal_database, "BUSY_S", 0.05)
    held = RunJournal(RunFolder(root).journal)
    with contextlib.closing(held), pytest.raises(JournalError, match="locked"):
        run_tiny(tiny_config(user), Start(root, "resume"))


def test_the_best_score_survives(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EvaluationResult, "reward_mean", 1000.0)  # nothing can beat it
        first = interrupted(user, tmp_path / "run")
    index = CheckpointIndex(RunFolder(first.run_dir).ckpt)
    second = run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    assert second.best is not None
    assert second.best.reward_mean == 1000.0
    assert load(RunFolder(second.run_dir).ckpt / index.records[0].file).progress.best_reward is None


def test_another_task_begins_a_new_best_though_its_returns_are_lower(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EvaluationResult, "reward_mean", 1000.0)  # nothing on the new task can beat it
        first = interrupted(user, tmp_path / "run")
    folder = RunFolder(first.run_dir)
    former = CheckpointIndex(folder.ckpt).best
    assert former is not None
    harder = tiny_config(user, "env.max_episode_steps=3", "stop.stop_value=900")
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


def test_a_run_that_is_over_stays_over(user: Path, tmp_path: Path) -> None:
    first = run_tiny(tiny_config(user), Start(tmp_path / "run"))
    table = RunFolder(first.run_dir).progress.read_bytes()
    second = run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    assert second.reason == "max_env_steps"
    assert second.counters.env_step == first.counters.env_step
    assert second.counters.train_iter == first.counters.train_iter
    assert RunFolder(second.run_dir).progress.read_bytes() == table


def test_a_second_incarnation_sees_other_episodes_and_draws_other_numbers(user: Path, tmp_path: Path) -> None:
    interrupted(user, tmp_path / "run")
    longer = tiny_config(user, "stop.max_env_steps=5000")
    second = run_tiny(longer, Start(tmp_path / "run", "resume"), stop=Flag(looks=100))
    progress = load(RunFolder(second.run_dir).interrupt).progress
    assert progress.policy.epoch == 1
    third = run_tiny(tiny_config(user), Start(tmp_path / "run", "resume"))
    last = CheckpointIndex(RunFolder(third.run_dir).ckpt).last
    assert last is not None
    assert load(RunFolder(third.run_dir).ckpt / last.file).progress.policy.epoch == 2


def test_other_versions_are_warned_of_where_the_resume_is_logged(user: Path, tmp_path: Path) -> None:
    folder = RunFolder(interrupted(user, tmp_path / "run").run_dir)
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    content = torch.load(folder.ckpt / last.file, weights_only=True)
    content["versions"] |= {"remuda": "0.0.1", "torch": "1.13"}
    torch.save(content, folder.ckpt / last.file)
    run_tiny(tiny_config(user), Start(folder.root, "resume"), stop=Flag(looks=0))
    warnings = [line for line in folder.learner_log.read_text().splitlines() if "[WARNING]" in line]
    assert f"] {last.file} was saved with remuda 0.0.1, this is " in warnings[0]
    assert f"] {last.file} was saved with torch 1.13, this is {torch.__version__.partition('+')[0]}" in warnings[1]
    assert len(warnings) == 2
    said = folder.serial_evaluator_log.read_text()
    assert all(warning.partition("[WARNING]")[2] in said for warning in warnings), "where the commander speaks too"


def test_what_cannot_be_resumed_says_why(user: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no run"):
        run_tiny(tiny_config(user), Start(tmp_path / "nothing", "resume"))
    root = interrupted(user, tmp_path / "run").run_dir
    with pytest.raises(CheckpointError, match=r"of another network: policy\.hidden is \[16, 8\] and was \[8, 8\]\."):
        run_tiny(tiny_config(user, "policy.hidden=[16, 8]"), Start(root, "resume"))
    assert json.loads((root / "config.json").read_text())["policy"]["hidden"] == [8, 8]
    (root / "ckpt" / "index.json").unlink()
    (root / "journal.sqlite").unlink()
    with pytest.raises(CheckpointError, match="no checkpoint yet; start over with --force"):
        run_tiny(tiny_config(user), Start(root, "resume"))


def killed(*given: Any, **named: Any) -> None:
    raise Killed


def test_the_link_to_an_interrupted_checkpoint_is_made_by_the_next_incarnation_if_it_was_not(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointIndex, "link_interrupt", killed)
        with pytest.raises(Killed):
            interrupted(user, folder.root)
    assert not folder.interrupt.exists()
    last = CheckpointIndex(folder.ckpt).last
    assert last is not None
    inode = folder.checkpoint(last.train_iter).stat().st_ino
    run_tiny(tiny_config(user), Start(folder.root, "resume"))
    assert folder.interrupt.stat().st_ino == inode


def test_an_evaluation_that_was_committed_and_not_shown_is_shown_by_the_next_incarnation(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        patch.setattr(EpisodePlayer, "play", killed)
        run_tiny(tiny_config(user), Start(folder.root, "resume"), stop=Flag(looks=0))
    (report,) = evaluated
    mean = sum(report.returns) / len(report.returns)
    points = dict(curves(folder.serial_tb)["evaluator_iter/reward_mean"])
    assert points[report.train_iter] == pytest.approx(mean)
    rewards = {record.train_iter: record.reward for record in CheckpointIndex(folder.ckpt).records}
    assert rewards[report.train_iter] == pytest.approx(mean)
