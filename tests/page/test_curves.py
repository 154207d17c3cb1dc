"""Curves of runs and of their groups, from files of any length, thinned or as a whole table."""

from __future__ import annotations

import csv
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.logbook.series import Moment
from remuda.page import library as library_module
from remuda.page.curves import HEADER, Curves, Mark, Quantity, csv_pieces, curves
from remuda.page.library import Budget, Library
from remuda.page.run_ids import RunIds
from remuda.page.stored_runs import StoredRuns
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.page.folders import (
    evaluation,
    finished_run,
    interval,
    logged,
    run_folder,
    write_progress,
    write_series,
)
from remuda.tests.patience import until


@pytest.fixture
def library(tmp_path: Path) -> Generator[Library]:
    library = Library(RunIds(tmp_path / "runs"))
    yield library
    library.close()


def shown(
    library: Library, runs: Path, y: str, x: str = "env_step", points: int = 100, seconds: float = 60.0
) -> Curves:
    stored = sorted(StoredRuns(RunIds(runs)).all(), key=lambda run: run.run)
    return curves(library, stored, [Quantity(y, x)], points=points, budget=Budget(seconds)).charts[0]


def test_a_change_of_the_task_is_a_mark(library: Library, tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs", "a")
    index = CheckpointIndex(folder.ckpt)
    assert shown(library, tmp_path / "runs", "evaluation/return_mean").runs[0].marks == []
    for record, task in zip(index.records[:2], ("walk", "climb"), strict=True):
        index.set_reward(record.train_iter, 1.0, task=task)
    first, then = index.tasks
    (run,) = shown(library, tmp_path / "runs", "evaluation/return_mean").runs
    assert run.marks == [Mark("another task", then.env_step, then.train_iter, then.wall_s)]
    assert then.train_iter > first.train_iter


def test_seeds_are_a_mean_with_a_band(library: Library, tmp_path: Path) -> None:
    for seed, returns in enumerate([(1.0, 2.0), (3.0, 6.0)]):
        finished_run(tmp_path / "runs", f"a_s{seed}", name="a", seed=seed, returns=returns)
    (group,) = shown(library, tmp_path / "runs", "evaluation/return_mean").groups
    assert group.runs == ["a_s0", "a_s1"]
    assert (group.x, group.mean, group.count) == ([0.0, 480.0], [2.0, 4.0], [2.0, 2.0])
    assert (group.low, group.high) == ([1.0, 2.0], [3.0, 6.0])


def test_a_file_that_cannot_be_read_is_said_and_the_others_are_shown(library: Library, tmp_path: Path) -> None:
    bad = run_folder(tmp_path / "runs", "a")
    bad.series.symlink_to(bad.config_json)
    finished_run(tmp_path / "runs", "b")
    found = shown(library, tmp_path / "runs", "evaluation/return_mean")
    assert [bool(run.error) for run in found.runs] == [True, False]
    assert found.runs[1].last == [9.0, 100.0, 50.0]


def test_memory_is_bounded_and_what_was_used_last_stays(tmp_path: Path) -> None:
    for name in "abcd":
        write_series(run_folder(tmp_path / "runs", name), [interval(60.0 * n) for n in range(1, 60)])
    one = Library(RunIds(tmp_path / "runs"))
    with one.series("a", Budget(9.0)) as reader:
        size = reader.kept_bytes
    one.close()
    library = Library(RunIds(tmp_path / "runs"), most_bytes=int(2.5 * size))
    for name in ("a", "b", "a", "c", "d"):
        with library.series(name, Budget(9.0)):
            pass
        assert library.kept_bytes <= 2.5 * size
    with library.series("d", lambda: False) as reader:
        assert reader.intervals.rows == 59
    library.close()


@pytest.mark.parametrize("y", ["evaluation/return_mean", "interval/return_mean"])
def test_a_long_series_is_sampled(library: Library, tmp_path: Path, y: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "FEW_BYTES", 0)
    folder = run_folder(tmp_path / "runs", "a")
    spike = 700
    values = [1e6 if n == spike else float(n) for n in range(2_000)]
    write_series(
        folder,
        [
            moment
            for n, value in enumerate(values, start=1)
            for moment in (evaluation(float(n), value), interval(float(n), past_s=1.0, return_mean=value))
        ],
    )
    with library.first():  # nothing is read on meanwhile
        (run,) = shown(library, tmp_path / "runs", y, "wall_s", seconds=0.0).runs
    assert not run.exact
    assert run.read < 1.0
    assert len(run.x) == 100
    assert (run.x[0], run.x[-1], run.last[-1]) == (1.0, 2_000.0, 1_999.0)
    assert all(last in (x - 1.0, 1e6) for x, last in zip(run.x, run.last, strict=True) if x is not None)
    until(lambda: library.whole.get("a"), "the rest of the file")
    (run,) = shown(library, tmp_path / "runs", y, "wall_s", seconds=0.0).runs
    assert (run.exact, run.read, run.rows) == (True, 1.0, 2_000)
    assert max(value for value in run.max if value is not None) == 1e6


def table(quantity: str, *folders: tuple[str, RunFolder]) -> list[list[str]]:
    text = b"".join(csv_pieces(folders, Quantity(quantity, "env_step"))).decode()
    head, *rows = csv.reader(text.splitlines(keepends=True))
    assert head == [*HEADER] == ["run", "env_step", "train_iter", "wall_s", "value"]
    return rows


def test_every_evaluation_and_interval_has_a_row(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    moments: list[Moment] = [
        evaluation(60.0, 0.1 + 0.2),
        interval(60.0),
        evaluation(120.0, None),
        evaluation(180.0, 3.0),
        logged(190.0, loss=0.25),
    ]
    write_series(folder, moments)
    none = run_folder(tmp_path / "runs", "b")
    name = 'x,"y'
    assert table("evaluation/return_mean", ("a", folder), ("b", none), (name, folder)) == [
        ["a", "480", "30", "60.0", "0.30000000000000004"],
        ["a", "1440", "90", "180.0", "3.0"],
        [name, "480", "30", "60.0", "0.30000000000000004"],
        [name, "1440", "90", "180.0", "3.0"],
    ]
    assert table("callback/loss", ("a", folder)) == [["a", "1520", "95", "190.0", "0.25"]]
    assert table("interval/policy_lag", ("a", folder)) == [["a", "480", "30", "60.0", "2"]]


def test_nothing_of_a_long_file_is_thinned(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    write_series(folder, [evaluation(float(n), float(n)) for n in range(5_000)])
    assert [float(row[-1]) for row in table("evaluation/return_mean", ("a", folder))] == [*map(float, range(5_000))]
    write_progress(folder, [(n, n / 3, 0.5 * n) for n in range(40_000)])
    rows = table("progress/LossQ", ("a", folder))
    assert rows == [["a", str(n), "", str(0.5 * n), str(n / 3)] for n in range(40_000)]
    assert len([*csv_pieces([("a", folder)], Quantity("progress/LossQ", "env_step"))]) > 3, "it comes in pieces"
