"""What is to be seen of a sweep while it goes on: lines for logs and pipes, a table for terminals."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from rich.console import Console

from remuda.client.sweeps.record import RunRecord, RunState
from remuda.client.sweeps.views import LIVE_RUNS, LiveSweepView, PlainSweepView, open_view, plain_line


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


def test_a_line() -> None:
    done = record(0, "finished", reason="stop_value", env_step=1_200, last_return=9.5, best_return=12.25, wall_s=75.0)
    assert plain_line(done, 1, 2) == (
        "[1/2] hills_s0: finished (stop_value) | env_step 1200 | return last 9.50 best 12.25 | 1:15"
    )
    assert plain_line(record(0, "queued", reason="waits for 1 learner (0 free)"), 0, 2) == (
        "[0/2] hills_s0: queued (waits for 1 learner (0 free))"
    )


def test_a_line_for_each_change_of_state_and_none_for_no_news() -> None:
    view, output = plain(WAITING, Clock())
    view.update(WAITING)
    assert output.getvalue() == ""
    view.update([record(0, "running")])
    view.update([])
    view.update([record(0, "finished"), record(1, "running")])
    view.update([record(1, "failed", reason="the floor gave way")])
    view.close()
    assert output.getvalue().splitlines() == [
        "[0/2] hills_s0: running",
        "[1/2] hills_s0: finished",
        "[1/2] hills_s1: running",
        "[2/2] hills_s1: failed (the floor gave way)",
    ]


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


def test_of_many_runs_those_under_way_are_shown_and_the_newest_ends() -> None:
    many = [record(number, "finished") for number in range(50)]
    many += [record(number, "running") for number in range(50, 54)] + [record(number) for number in range(54, 99)]
    shown = [line.split()[0] for line in drawn(many)[-LIVE_RUNS:]]
    assert shown == [f"hills_s{number}" for number in range(42, 54)]


def test_elsewhere_than_on_a_terminal_it_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = open_view(WAITING)
    view.update([record(1, "running")])
    view.close()
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "[0/2] hills_s1: running\n")
