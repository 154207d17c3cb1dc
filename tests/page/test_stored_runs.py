"""What run folders say without a coordinator, and that they are read again only when they have changed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from remuda.page import stored_runs
from remuda.page.run_ids import RunIds, UnknownRunError
from remuda.page.stored_run import StoredRun
from remuda.page.stored_runs import StoredRuns
from remuda.tests.page.folders import EXPERIMENT, finished_run, run_folder, say, touch, write_checkpoints
from remuda.tests.patience import HANG_S


class Clock:
    """Stands still until it is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Newest(StoredRuns):
    """Every list is late enough to be another one."""

    def all(self) -> list[StoredRun]:
        clock.now_s += 1_000.0
        return super().all()


clock = Clock()


def runs_of(folder: Path) -> StoredRuns:
    return Newest(RunIds(folder), clock)


def test_a_run_that_is_over(tmp_path: Path) -> None:
    finished_run(tmp_path / "runs", "a", seed=3)
    (found,) = runs_of(tmp_path / "runs").all()
    assert (found.run, found.name, found.group, found.seed) == ("a", "a", "a", 3)
    assert (found.algorithm, found.env, found.mode, found.experiment) == ("dqn", "CartPole-v1", "parallel", EXPERIMENT)
    assert (found.state, found.reason) == ("finished", "max_env_steps")
    assert (found.env_step, found.train_iter, found.wall_s) == (160, 20, 3.0)
    assert (found.last_return, found.best_return) == (50.0, 100.0)
    assert found.sweep is None


def test_one_that_goes_on_or_was_killed_has_no_end(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    stored = runs_of(tmp_path / "runs")
    assert stored.all()[0].state == "unknown"
    assert stored.all()[0].env_step == 0
    write_checkpoints(folder, [1.0, None, 2.0])
    assert (stored.all()[0].env_step, stored.all()[0].last_return) == (160, 2.0)
    say(folder.commander_log, "the run is over after 1.0 s: stopped; a client asked to stop")
    assert stored.all()[0].state == "stopped"


def test_seeds_are_one_group_and_other_settings_another(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for seed in (0, 1):
        run_folder(runs, f"slow_s{seed}", name="cartpole", seed=seed)
        run_folder(runs, f"fast_s{seed}", name="cartpole", seed=seed, learner={"learning_rate": 0.1})
    groups = {found.run: found.group for found in runs_of(runs).all()}
    assert groups["slow_s0"] == groups["slow_s1"] == "cartpole (learning_rate=0.001)"
    assert groups["fast_s0"] == groups["fast_s1"] == "cartpole (learning_rate=0.1)"


def test_the_newest_comes_first(tmp_path: Path) -> None:
    for name, time_s in (("old", 1_000.0), ("new", 3_000.0), ("middle", 2_000.0)):
        folder = run_folder(tmp_path / "runs", name)
        for path in (folder.config_json, folder.commander_log):
            touch(path, time_s)
    assert [(found.run, found.changed_s) for found in runs_of(tmp_path / "runs").all()] == [
        ("new", 3_000.0), ("middle", 2_000.0), ("old", 1_000.0),
    ]  # fmt: skip


def test_runs_of_a_sweep_name_its_folder(tmp_path: Path) -> None:
    run_folder(tmp_path / "runs", "alone")
    (tmp_path / "runs" / "lr").mkdir()
    (tmp_path / "runs" / "lr" / "sweep.json").write_text("{}")
    run_folder(tmp_path / "runs", "lr/fast/fast_s0")
    stored = runs_of(tmp_path / "runs")
    assert {found.run: found.sweep for found in stored.all()} == {"alone": None, "lr/fast/fast_s0": "lr"}
    assert stored.sweeps() == {"lr": 1}


def test_a_folder_that_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_run(tmp_path / "runs", "a")
    stored = runs_of(tmp_path / "runs")
    stored.all()
    monkeypatch.setattr(stored_runs, "read_folder", None)  # would fail if it were called
    assert len(stored.all()) == 1


def test_a_new_run_is_found_at_once_when_it_is_asked_for(tmp_path: Path) -> None:
    stored = StoredRuns(RunIds(tmp_path / "runs"), clock=lambda: 0.0)
    assert stored.all() == []
    run_folder(tmp_path / "runs", "a")
    assert stored.all() == [], "the list is that of a moment ago"
    assert stored.one("a").run == "a"
    with pytest.raises(UnknownRunError):
        stored.one("b")


def test_one_run_is_looked_at_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (0, 1):
        run_folder(tmp_path / "runs", f"a_s{seed}", name="a", seed=seed)
    run_folder(tmp_path / "runs", "other", name="a", seed=0, learner={"learning_rate": 0.1})
    stored = runs_of(tmp_path / "runs")
    (listed,) = (each for each in stored.all() if each.run == "a_s1")
    monkeypatch.setattr(RunIds, "found", None)  # would fail if it were called
    assert stored.one("a_s1") == listed
    assert stored.one("a_s1").group == "a (learning_rate=0.001)"


def test_a_list_that_takes_long_is_made_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(), 0

    def found(ids: RunIds) -> tuple[list[str], bool]:
        nonlocal made
        made += 1
        clock.now_s += 3.0
        return [], False

    monkeypatch.setattr(RunIds, "found", found)
    stored = StoredRuns(RunIds(tmp_path), clock)
    stored.all()
    clock.now_s += 59.9  # twenty times as long as it took
    stored.all()
    assert (made, stored.complete) == (1, False)
    clock.now_s += 0.2
    stored.all()
    assert made == 2


def test_whoever_asks_while_the_list_is_made_gets_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder(tmp_path / "runs", "a")
    clock = Clock()
    stored = StoredRuns(RunIds(tmp_path / "runs"), clock)
    former = stored.all()
    clock.now_s += 100.0
    asked: list[list[StoredRun]] = []

    def found(ids: RunIds) -> tuple[list[str], bool]:
        other = threading.Thread(target=lambda: asked.append(stored.all()))
        other.start()
        other.join(HANG_S)
        return [], True

    monkeypatch.setattr(RunIds, "found", found)
    assert stored.all() == []
    assert asked == [former]


def test_secrets_are_masked(tmp_path: Path) -> None:
    run_folder(tmp_path / "runs", "a", env={"id": "CartPole-v1", "kwargs": {"api_key": "hunter2", "size": 3}})
    run_folder(tmp_path / "runs", "b", name="a", env={"id": "CartPole-v1", "kwargs": {"api_key": "hunter3"}})
    stored = runs_of(tmp_path / "runs")
    told = f"{stored.settings('a')} {stored.all()}"
    assert "hunter" not in told
    assert "'size': 3" in told


@pytest.mark.parametrize("content", ["", "{", "[]", '{"seed": "x", "policy": 3}', "[" * 100_000])
def test_a_damaged_config_is_a_run_without_settings(tmp_path: Path, content: str) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    folder.config_json.write_text(content)
    (found,) = runs_of(tmp_path / "runs").all()
    assert (found.run, found.name, found.seed, found.algorithm) == ("a", "a", None, None)


def test_a_damaged_list_of_checkpoints_is_none(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs", "a")
    folder.index.write_text("{")
    (found,) = runs_of(tmp_path / "runs").all()
    assert (found.env_step, found.best_return, found.state) == (0, None, "finished")


def test_a_list_of_checkpoints_that_is_a_link_is_none(tmp_path: Path) -> None:
    folder, other = finished_run(tmp_path / "runs", "a"), finished_run(tmp_path / "others", "b")
    folder.index.unlink()
    folder.index.symlink_to(other.index)
    (found,) = runs_of(tmp_path / "runs").all()
    assert (found.env_step, found.best_return) == (0, None)


def test_serial_runs(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    folder.commander_log.unlink()
    folder.serial_tb.mkdir()
    os.remove(folder.policy / os.listdir(folder.policy)[0])
    say(folder.serial_evaluator_log, "the run is over after 1.0 s: stop_value; reached")
    (found,) = runs_of(tmp_path / "runs").all()
    assert (found.mode, found.experiment, found.state, found.reason) == ("serial", None, "finished", "stop_value")
