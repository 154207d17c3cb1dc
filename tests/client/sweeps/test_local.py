"""A sweep in processes of this machine, for real."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from remuda.client.sweeps.grid import read_grid
from remuda.client.sweeps.local import LocalRuns, ProgressNews
from remuda.client.sweeps.plan import Task, carry_out, plan, tasks
from remuda.client.sweeps.record import RunRecord, SweepBook
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.client.sweeps.grids import SHORT, write_grid
from remuda.tests.patience import until

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("forked")]


def todo(tmp_path: Path, parameters: Mapping[str, object], *, seeds: int = 1) -> list[Task]:
    runs = plan(read_grid(write_grid(tmp_path / "user", {**SHORT, **parameters}, seeds=seeds)), tmp_path / "sweep")
    known = SweepBook(tmp_path / "sweep", name="hills", mode="serial").runs
    return tasks(runs, known, "serial")[1]


def swept(tmp_path: Path, some: list[Task], *, jobs: int = 2) -> tuple[dict[str, RunRecord], int]:
    """The last records, and how many ran at once at most."""
    at_once: list[int] = []
    latest: dict[str, RunRecord] = {}

    def note(news: Sequence[RunRecord]) -> None:
        latest.update({record.name: record for record in news})
        at_once.append(sum(record.state == "running" for record in latest.values()))

    with LocalRuns(tmp_path / "sweep", jobs=jobs) as executor:
        book = SweepBook(tmp_path / "sweep", name="hills", mode="serial")
        carry_out(some, executor, book, ending=lambda: False, on_change=note)
    return latest, max(at_once)


def test_some_at_a_time_to_their_ends(tmp_path: Path) -> None:
    some = todo(tmp_path, {"policy.n_step": [1, 3]}, seeds=2)[:3]
    latest, at_once = swept(tmp_path, some)
    assert at_once == 2
    assert [(one.name, one.state, one.reason, one.env_step) for one in latest.values()] == [
        ("hills_pol-ns1_s0", "finished", "max_env_steps", 60),
        ("hills_pol-ns1_s1", "finished", "max_env_steps", 60),
        ("hills_pol-ns3_s0", "finished", "max_env_steps", 60),
    ]
    for task in some:
        record = latest[task.run.name]
        best = CheckpointIndex(task.run.run_dir / "ckpt").best
        assert best is not None
        assert record.best_return == best.reward
        assert record.wall_s > 0
        said = tmp_path / "sweep" / "log" / f"{record.name}.txt"
        assert f"{record.variant}: finished | env_step 60" in said.read_text()
    assert not list((tmp_path / "sweep" / "log").glob("*.json"))


@pytest.fixture
def running(tmp_path: Path) -> Generator[tuple[LocalRuns, psutil.Process]]:
    (task,) = todo(tmp_path, {"stop.max_env_steps": [100_000_000]})
    with LocalRuns(tmp_path / "sweep", jobs=1) as executor:
        executor.begin([task])
        before = set(psutil.Process().children())
        executor.poll()
        (child,) = set(psutil.Process().children()) - before
        until((task.run.run_dir / "ckpt" / "ckpt_best.pth.tar").exists, "it trains")
        yield executor, child


def test_progress_is_seen_while_it_runs_and_a_kill_at_once(running: tuple[LocalRuns, psutil.Process]) -> None:
    executor, child = running
    seen: list[RunRecord] = []

    def comes(state: Callable[[RunRecord], bool]) -> bool:
        seen.extend(executor.poll())
        return any(map(state, seen))

    until(lambda: comes(lambda one: one.env_step > 100 and one.best_return is not None), "its steps and best return")
    assert {record.state for record in seen} == {"running"}
    assert [record.env_step for record in seen] == sorted(record.env_step for record in seen)
    child.kill()
    until(lambda: comes(lambda one: one.over), "the end is seen")
    assert seen[-1].state == "failed"
    assert "ended by signal 9" in (seen[-1].reason or "")


def test_each_look_at_a_run_reads_the_new_rows_of_progress_alone(tmp_path: Path) -> None:
    path = tmp_path / "progress.txt"
    path.write_text("TotalEnvInteracts\tTime\tAverageTestEpRet\n100\t1.5\t7.0\n200\t2.5\tnan\n300\t3")
    news = ProgressNews(path)
    news.look()
    assert news.numbers == {"env_step": 200, "wall_s": 2.5, "last_return": 7.0, "best_return": 7.0}
    with path.open("r+") as file:
        file.write("TotalEnvInteracts\tTime\tAverageTestEpRet\n100\t1.5\t9.0\n")
    with path.open("a") as file:
        file.write(".5\t6.0\n")
    news.look()
    assert news.numbers == {"env_step": 300, "wall_s": 3.5, "last_return": 6.0, "best_return": 7.0}
    path.rename(tmp_path / "former")
    path.write_text("TotalEnvInteracts\tTime\n50\t0.5\n")
    news.look()
    assert news.numbers == {"env_step": 50, "wall_s": 0.5}, "replaced, as by a resumed run"
