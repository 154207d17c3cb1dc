"""`remuda status --history`: a table over time for people, the records for programs, while the run goes on or after."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from remuda.cli.status import MOST_EVENTS, MOST_ROWS, history_table
from remuda.logbook.series import read_series
from remuda.logbook.series_file import SeriesFile, SeriesView
from remuda.storage.run_folder import RunFolder
from remuda.tests.cli.terminal import Terminal
from remuda.tests.logbook.series_examples import ROWS, collected, evaluation, joined, logged, vitals


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "mine")
    folder.log.mkdir(parents=True)
    folder.config_json.write_text("{}")
    return folder


def write(folder: RunFolder, intervals: int, events: int = 1) -> None:
    series = SeriesFile(folder.series, now_s=lambda: 1.7e9)
    view = SeriesView(series)
    for number in range(events):
        view.show(joined(number / 2))
    for number in range(1, intervals + 1):
        own = logged(60.0 * number - 20, loss=0.5)
        for report in (collected(2, 10.0 * number), ROWS, vitals(60.0 * number), evaluation(60.0 * number - 30), own):
            view.show(report)
    series.close()


def shown(folder: RunFolder) -> list[str]:
    console = Console(file=io.StringIO(), width=160, highlight=False)
    console.print(history_table(list(read_series(folder.series))))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_whole_picture(run: RunFolder) -> None:
    write(run, intervals=2)
    assert shown(run) == [
        "time  env_step  /s  train_iter  /s  return  evaluated  collector waits  learner waits",
        "1:00  480       8   30          0   10.00   9.00       50 % credit      25 % data",
        "2:00  960       8   60          0   20.00   9.00       50 % credit      25 % data",
        "",
        "    0:00  collector 6f1c9c3e-0d0a-4c5b-8a39-2f6f6f5c1e77 joins as collector 0",
        "    0:30  iteration_15.pth.tar: mean return 9.00 over 2 episodes (the best so far)",
        "    1:30  iteration_45.pth.tar: mean return 9.00 over 2 episodes (the best so far)",
    ]


def test_a_long_run_fits_on_a_page(run: RunFolder) -> None:
    write(run, intervals=3 * MOST_ROWS - 1)
    lines = shown(run)
    table = lines[1 : lines.index("")]
    assert len(table) == MOST_ROWS
    assert table[0].split()[:6] == ["3:00", "1440", "8", "90", "0", "20.00"], "rates and returns are averages"
    assert lines[lines.index("") + 1] == f"({3 * MOST_ROWS - MOST_EVENTS} events before these: --json has all)"


def test_programs_get_the_records(terminal: Terminal, run: RunFolder) -> None:
    write(run, intervals=1)
    with open(run.series, "ab") as file:
        file.write(b"\x85\xa4kind")  # a record that is being written
    records = json.loads(terminal.remuda("status", "--history", run.root, "--json").out)
    assert [record["kind"] for record in records] == ["event", "interval", "evaluation", "callback"]
    assert (records[1]["env_step"], records[1]["roles"][0]["wait_data"], records[2]["best"]) == (480, 0.25, True)


def test_what_has_begun_and_said_nothing_yet(terminal: Terminal, run: RunFolder) -> None:
    ended = terminal.remuda("status", "--history", run.root)
    assert ended.code == 2
    assert ended.err.endswith("series.msgpack does not exist (yet): the first interval of this run is not over\n")
    write(run, intervals=0)
    assert shown(run)[0] == "no interval is over yet"
    write(run, intervals=0, events=0)
    assert json.loads(terminal.remuda("status", "--history", run.root, "--json").out)[0]["event"] == "worker_joined"
