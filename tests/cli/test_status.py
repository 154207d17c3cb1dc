"""`remuda status` as people see it: who is alive, on what, and what runs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from remuda.cli.output import json_text
from remuda.cli.status import picture, show_live
from remuda.storage.notes import Notes, write_notes
from remuda.storage.run_folder import RunFolder
from remuda.tests.client.statuses import status
from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import CoordinatorStatus, ExperimentStatus, RefusalCounts, Status, WorkerStatus

COORDINATOR = CoordinatorStatus("cccccccc-0000-4000-8000-000000000001", "tcp://127.0.0.1:5555", 7, 63.0, 1)
WORKER = WorkerStatus(
    uuid="aaaaaaaa-0000-4000-8000-000000000001",
    incarnation=2,
    role="collector",
    host="ranch",
    pid=42,
    state="busy",
    experiment=status().id,
    beat_age_s=0.44,
    activity="collecting",
    rss_bytes=200 * 2**20,
    cpu_cores=0.981,
    work_share=0.934,
    cpus=8,
    memory_bytes=31 * 2**30,
)
FREE = replace(WORKER, uuid="bbbbbbbb-0000-4000-8000-000000000001", experiment=None, state="idle", work_share=None)


def shown(
    *workers: WorkerStatus,
    experiment: ExperimentStatus | None = None,
    width: int = 160,
    refusals: RefusalCounts | None = None,
) -> list[str]:
    coordinator = replace(COORDINATOR, refusals=refusals or RefusalCounts())
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(picture(Status(coordinator, list(workers), [experiment or status()]), width))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_whole_picture() -> None:
    assert shown(WORKER, replace(FREE, host="stable", cpus=2, memory_bytes=2**32)) == [
        "coordinator cccccccc at tcp://127.0.0.1:5555, pid 7, up 1:03",
        "",
        "experiment  name  state    env_step  /s   train_iter  /s  last    best    time",
        "eeeeeeee    mine  running  2500      250  400         50  187.25  195.50  0:12",
        "",
        "worker      role       state  experiment  doing       busy  cores  heard  memory   process",
        "aaaaaaaa.2  collector  busy   mine        collecting  93 %  0.98   0.4 s  200 MiB  42 on ranch",
        "bbbbbbbb.2  collector  idle   -           collecting  -     0.98   0.4 s  200 MiB  42 on stable",
        "workers on ranch: 1; cores 8, memory 31.0 GiB",
        "workers on stable: 1; cores 2, memory 4.0 GiB",
    ]


def test_refused_connections_are_counted_by_reason() -> None:
    assert not any(line.startswith("refused") for line in shown(WORKER))
    refusals = RefusalCounts(unknown_key=2, forbidden=1)
    assert "refused: unknown key 2, forbidden 1" in shown(WORKER, refusals=refusals)


def test_a_narrow_terminal_leaves_out_the_least_important_columns() -> None:
    lines = shown(WORKER, width=80)
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == ["experiment", "name", "state", "env_step", "train_iter", "last", "best", "time"]
    assert lines[5].split() == ["worker", "role", "state", "experiment", "doing", "busy", "process"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"state": "finished", "reason": "stop_value"}, "mine finished: stop_value"),
        ({"state": "queued", "waiting_for": "waits for 1 learner"}, "mine queued: waits for 1 learner"),
        ({"state": "stopped", "reason": "stopped"}, ""),  # no news
    ],
)
def test_why_an_experiment_is_over_or_waits(changes: dict[str, str], line: str) -> None:
    assert shown(WORKER, experiment=status(**changes))[4] == line


def test_what_others_are_called_is_neither_markup_nor_a_command_to_the_terminal() -> None:
    """A host called `node[/x]` ended everybody's status in a traceback."""
    worker = replace(WORKER, host="node[/x]", activity="\x1b[2J[red]")
    lines = shown(worker, experiment=status(name="[/b]\x1b]0;x\x07", reason="[/i]\nforged"))
    text = "\n".join(lines)
    assert "node[/x]" in text
    assert "[red]" in text
    assert "[/b]" in text
    assert "\x1b" not in text
    assert not any(line.startswith("forged") for line in lines)


def test_programs_get_the_notes_of_runs_whose_folders_are_here(tmp_path: Path) -> None:
    write_notes(RunFolder(tmp_path), Notes("slow", ["lr"]))
    here, elsewhere = replace(status(), run_dir=str(tmp_path)), replace(status(), run_dir="/no/such/folder")
    found = json.loads(json_text(Status(COORDINATOR, [], [here, elsewhere])))["experiments"]
    assert [(each["note"], each["tags"]) for each in found] == [("slow", ["lr"]), ("", [])]


def test_a_watched_status_is_asked_for_again_after_each_pause_until_ctrl_c() -> None:
    console = Console(file=io.StringIO(), width=160, highlight=False, force_terminal=True)
    asked: list[float] = []
    pauses: list[float] = []

    def ask() -> Status:
        asked.append(sum(pauses))
        return Status(COORDINATOR, [], [status(env_step=2500 + len(asked))])

    def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    show_live(ask, console, pause)
    assert asked == [0.0, 1.0, 2.0]
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert re.findall(r"running +(\d+)", printed)[:3] == ["2501", "2502", "2503"]
    assert printed.count("\x1b[1A") >= 2, "each status stands in place of the former"


def test_a_watch_waits_for_a_restarted_coordinator() -> None:
    """The command ended with the coordinator."""
    console = Console(file=io.StringIO(), width=160, highlight=False, force_terminal=True)
    answers: Iterator[Status | Exception] = iter(
        [
            Status(COORDINATOR, [], [status(env_step=2501)]),
            UnreachableError("silent"),
            ConnectionFileError("no file"),
            Status(COORDINATOR, [], [status(env_step=2502)]),
        ]
    )

    def ask() -> Status:
        answer = next(answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
        return answer

    show_live(ask, console, lambda pause_s: None)
    assert isinstance(console.file, io.StringIO)
    shown = re.findall(r"no coordinator answers: waiting for it, at most 60 s|running +\d+", console.file.getvalue())
    away = "no coordinator answers: waiting for it, at most 60 s"
    before, after = "running  2501", "running  2502"
    assert shown[:6] == [before, away, before, away, before, after]
