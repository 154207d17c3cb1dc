"""A sweep from its first look to its end, with runs that end as the test says."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from remuda.client.sweeps.grid import read_grid
from remuda.client.sweeps.plan import PlannedRun, Task, carry_out, plan, tasks
from remuda.client.sweeps.record import RunRecord, RunState, SweepBook
from remuda.client.sweeps.views import LiveSweepView, PlainSweepView, open_view
from remuda.runner.serial import Start
from remuda.tests.client.sweeps.grids import SHORT, write_grid
from remuda.tests.runner.runs import run_tiny


def planned(tmp_path: Path, **changed: object) -> list[PlannedRun]:
    """Two variants with two seeds."""
    parameters = {"policy.n_step": [1, 3], **SHORT, **{key.replace("__", "."): value for key, value in changed.items()}}
    return plan(read_grid(write_grid(tmp_path / "user", parameters, seeds=2)), tmp_path / "sweep")


@dataclass
class Ends:
    """Runs one at a time; each takes two looks, and ends as it is told."""

    ends: list[RunState]
    stopped: bool = False
    left: list[RunRecord] = field(default_factory=list[RunRecord])

    def begin(self, tasks: Sequence[Task]) -> Iterable[RunRecord]:
        for task in tasks:
            self.left.append(task.record)
            yield task.record

    def poll(self) -> list[RunRecord]:
        if not self.left or (self.stopped and self.left[0].state == "waiting"):
            return []
        if self.left[0].state == "waiting":
            self.left[0] = replace(self.left[0], state="running")
            return [self.left[0]]
        return [replace(self.left.pop(0), state="stopped" if self.stopped else self.ends.pop(0), env_step=7)]

    def stop_runs(self, names: Collection[str]) -> None:
        raise AssertionError(f"nobody stops {names}")

    def stop(self) -> None:
        self.stopped = True


def carried_out(tmp_path: Path, executor: Ends, *, stop_after: int = 10**9) -> tuple[SweepBook, list[RunRecord]]:
    (tmp_path / "sweep").mkdir(exist_ok=True)
    book = SweepBook(tmp_path / "sweep", name="hills", mode="serial")
    _, todo = tasks(planned(tmp_path), book.runs, "serial")
    seen: list[RunRecord] = []
    looks = iter(range(10**9))
    carry_out(
        todo,
        executor,
        book,
        ending=lambda: next(looks) >= stop_after,
        on_change=seen.extend,
        sleep=lambda seconds: None,
    )
    return book, seen


def test_every_step_is_told_and_every_change_of_state_is_on_disk(tmp_path: Path) -> None:
    book, seen = carried_out(tmp_path, Ends(["finished"] * 4))
    assert [record.state for record in seen] == ["waiting"] * 4 + ["running", "finished"] * 4
    again = SweepBook(tmp_path / "sweep", name="hills", mode="serial").runs
    assert again == book.runs
    assert {record.state for record in again.values()} == {"finished"}


def test_when_asked_to_end_those_under_way_end_and_no_other_begins(tmp_path: Path) -> None:
    executor = Ends(["finished"] * 4)
    book, seen = carried_out(tmp_path, executor, stop_after=4 + 3)
    assert executor.stopped
    assert [record.state for record in seen[4:]] == ["running", "finished", "running", "stopped"]
    assert [record.state for record in book.runs.values()] == ["finished", "stopped"]


# --- the second start
def really_run(run: PlannedRun, state: RunState = "finished") -> RunRecord:
    run_tiny(run.loaded.config, Start(run.run_dir))
    (record,), _ = tasks([run], {}, "serial")
    return replace(record, state=state, env_step=60, best_return=1.0)


def test_what_is_finished_is_left_alone_and_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    first, second, third, fourth = runs = planned(tmp_path)
    done, cut, broken = really_run(first), really_run(second, "running"), really_run(third, "failed")
    records, todo = tasks(runs, {record.name: record for record in (done, cut, broken)}, "serial")
    assert [(task.run, task.on_exists) for task in todo] == [(second, "resume"), (third, "resume"), (fourth, "error")]
    assert records[0] == done
    assert [record.state for record in records[1:]] == ["waiting"] * 3
    assert records[1].env_step == 60, "what was reached stays known"


def record(number: int, state: RunState = "waiting", **changes: object) -> RunRecord:
    base = RunRecord(name=f"hills_s{number}", variant="hills", seed=number, settings={}, run_dir="", state=state)
    return replace(base, **changes)


WAITING = [record(0), record(1)]


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def plain(records: Sequence[RunRecord], clock: Clock) -> tuple[PlainSweepView, io.StringIO]:
    output = io.StringIO()
    return PlainSweepView(records, output, clock), output


def test_a_run_that_goes_on_is_told_of_every_half_minute() -> None:
    clock = Clock()
    view, output = plain(WAITING, clock)
    for clock.now_s in (100, 110, 129, 130, 131, 159, 161):
        view.update([record(0, "running", env_step=int(clock.now_s))])
    steps = [line.split("env_step ")[1].split(" ")[0] for line in output.getvalue().splitlines()]
    assert steps == ["100", "130", "161"]


def drawn(records: Sequence[RunRecord]) -> list[str]:
    console = Console(file=io.StringIO(), width=100, record=True)
    view = LiveSweepView(records, console)
    try:
        view.update(records)
        console.print(view.picture())
    finally:
        view.close()
    return [line.rstrip() for line in console.export_text().splitlines() if line.strip()]


def test_the_table_of_a_terminal() -> None:
    lines = drawn(
        [record(0, "finished", env_step=60, last_return=1.0, best_return=2.5, wall_s=61.0), record(1, "running")]
    )
    assert lines[-4].startswith("1 of 2 runs over")
    assert [line.split() for line in lines[-3:]] == [
        ["run", "state", "env_step", "last", "best", "time"],
        ["hills_s0", "finished", "60", "1.00", "2.50", "1:01"],
        ["hills_s1", "running", "0", "-", "-", "0:00"],
    ]


def test_elsewhere_than_on_a_terminal_it_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = open_view(WAITING)
    view.update([record(1, "running")])
    view.close()
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "[0/2] hills_s1: running\n")
