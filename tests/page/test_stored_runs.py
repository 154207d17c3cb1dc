"""What run folders say without a coordinator, and that they are read again only when they have changed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from remuda.logbook.tensorboard import EventWriter
from remuda.page import stored_runs
from remuda.page.checkpoints import Films, NoFilmError, checkpoints
from remuda.page.run_ids import RunIds, UnknownRunError
from remuda.page.run_rows import run_rows, with_headline
from remuda.page.stored_runs import StoredRun, StoredRuns
from remuda.tests.page.folders import EXPERIMENT, GIF, film, finished_run, run_folder, say


class Newest(StoredRuns):
    """Every list is late enough to be another one."""

    now_s = 0.0

    def all(self) -> list[StoredRun]:
        self.now_s += 1_000.0
        return super().all()


def runs_of(folder: Path) -> StoredRuns:
    stored = Newest(RunIds(folder), lambda: stored.now_s)
    return stored


def test_a_run_that_is_over(tmp_path: Path) -> None:
    finished_run(tmp_path / "runs", "a", seed=3)
    (found,) = runs_of(tmp_path / "runs").all()
    assert (found.run, found.name, found.group, found.seed) == ("a", "a", "a", 3)
    assert (found.algorithm, found.env, found.mode, found.experiment) == ("dqn", "CartPole-v1", "parallel", EXPERIMENT)
    assert (found.state, found.reason) == ("finished", "max_env_steps")
    assert (found.env_step, found.train_iter, found.wall_s) == (160, 20, 3.0)
    assert (found.last_return, found.best_return) == (50.0, 100.0)
    assert found.sweep is None


def test_seeds_are_one_group_and_other_settings_another(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for seed in (0, 1):
        run_folder(runs, f"slow_s{seed}", name="cartpole", seed=seed)
        run_folder(runs, f"fast_s{seed}", name="cartpole", seed=seed, learner={"learning_rate": 0.1})
    groups = {found.run: found.group for found in runs_of(runs).all()}
    assert groups["slow_s0"] == groups["slow_s1"] == "cartpole (learning_rate=0.001)"
    assert groups["fast_s0"] == groups["fast_s1"] == "cartpole (learning_rate=0.1)"


def test_a_name_that_is_no_text_hides_no_other_run(tmp_path: Path) -> None:
    finished_run(tmp_path / "runs", "good")
    config = run_folder(tmp_path / "runs", "bad").config_json
    config.write_text(config.read_text().replace('"bad"', r'"b\udcffd"'))
    rows = [
        with_headline(row, None, {}, {}) for row in run_rows(runs_of(tmp_path / "runs").all(), None, RunIds(tmp_path))
    ]
    shown = {row.run: row for row in rows}
    assert msgspec.json.encode(rows)
    assert shown["bad"].name == "b\N{REPLACEMENT CHARACTER}d"
    assert shown["bad"].says.endswith("lone surrogates): \N{REPLACEMENT CHARACTER} stands for each.")
    assert shown["good"].damage == ""


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


def test_serial_runs(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    folder.commander_log.unlink()
    folder.serial_tb.mkdir()
    os.remove(folder.policy / os.listdir(folder.policy)[0])
    say(folder.serial_evaluator_log, "the run is over after 1.0 s: stop_value; reached")
    (found,) = runs_of(tmp_path / "runs").all()
    assert (found.mode, found.experiment, found.state, found.reason) == ("serial", None, "finished", "stop_value")


def test_films_beside_curves(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    writer = EventWriter(folder.commander_tb, now_s=lambda: 1.7e9)
    for step in range(300):
        writer.scalars("evaluator", {"reward_mean": step}, train_iter=step, env_step=step)
    writer.close()
    films = Films(folder)
    assert films.all() == []
    film(folder, 400)
    film(folder, 500, b"GIF89a" + bytes(300_000))
    assert [each.train_iter for each in films.all()] == [400, 500]
    assert films.gif(400) == GIF
    assert len(films.gif(500)) == 300_006
    with pytest.raises(NoFilmError):
        films.gif(401)


def test_checkpoints_with_their_returns_and_films(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs", "a")
    film(folder, 10)
    (folder.ckpt / "iteration_0.pth.tar").unlink()
    found = checkpoints(folder, Films(folder))
    assert [(each.train_iter, each.reward, each.best, each.last, each.film) for each in found.checkpoints] == [
        (0, 9.0, False, False, False),
        (10, 100.0, True, False, True),
        (20, 50.0, False, True, False),
    ]
    assert [each.size_bytes for each in found.checkpoints] == [None, 100, 100]
    folder.index.write_text("{")
    assert checkpoints(folder, Films(folder)).problem is not None
