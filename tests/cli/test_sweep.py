"""`remuda sweep`: what it says, what it writes, how it ends, and that wrong input starts nothing."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Generator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from remuda.cli import sweep_runs
from remuda.cli.errors import RunFailedError
from remuda.cli.sweep_runs import SweepOptions, executor
from remuda.client.client import Client
from remuda.tests.cli.terminal import Terminal
from remuda.tests.client.sweeps.grids import SHORT, write_grid
from remuda.tests.keys import connection_to
from remuda.tests.parallel.command import Command
from remuda.tests.patience import until, until_ended
from remuda.tests.runner.runs import GAVE_WAY
from remuda.wire import connection_file
from remuda.wire.conversation import UnreachableError, no_answer
from remuda.wire.messages import Status

pytestmark = pytest.mark.usefixtures("forked")

ENDLESS = {"env.num_envs": [1], "stop.max_env_steps": [100_000_000]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is typed: a user's folder with a grid of two variants and two seeds."""
    monkeypatch.delenv("REMUDA_RUNS_DIR", raising=False)
    monkeypatch.delenv("REMUDA_CONNECTION_FILE", raising=False)
    monkeypatch.setenv("REMUDA_CACHE_DIR", str(tmp_path / "cache"))
    write_grid(tmp_path, {"policy.n_step": [1, 3], **SHORT}, seeds=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Answering:
    def status(self) -> None: ...


def test_a_sweep_without_its_coordinator_ends_with_the_command_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_runs, "connected", lambda connection_file, runs_dir: nullcontext(Answering()))
    options = SweepOptions(tmp_path, "herd", 1, (), tmp_path, None, False, False, False, "remuda sweep grid.yaml")
    with pytest.raises(RunFailedError, match=r"gone\n.*type: remuda sweep grid\.yaml$"), executor(options):
        raise UnreachableError("the coordinator is gone")


def listing(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts)


NAMES = ["hills_pol-ns1_s0", "hills_pol-ns1_s1", "hills_pol-ns3_s0", "hills_pol-ns3_s1"]


def test_a_dry_run_names_the_runs_and_writes_nothing(terminal: Terminal, folder: Path) -> None:
    before = listing(folder)
    ended = terminal.remuda("sweep", "grid.yaml", "--dry-run")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == NAMES
    assert ended.err == (
        "4 runs of 2 variants; 0 finished, 0 to continue, 4 to begin, on this machine; "
        f"folder {folder / 'runs' / 'hills'}\n"
    )
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("grid", "arguments", "said"),
    [
        ({"learner.bath_size": [1]}, (), "grid.yaml:4: learner.bath_size: no such setting; did you mean"),
        ({"env.make": ["walk:fly"]}, (), "has no function 'fly'"),
        ({"env.kwargs": [{}, {"wings": 2}]}, (), "cannot be built"),
        ({}, ("--on", "herd"), "connection.json"),
        ({}, ("--on", "herd", "--jobs", "2"), "--jobs needs --on local"),
        ({}, ("--sweep-dir", "a", "--datestamp"), "give only one of --sweep-dir"),
        ({}, ("--runs-dir", "s3://bucket/herd"), "start one with `remuda coordinator --runs-dir s3://bucket/herd`"),
        ({}, ("--on", "local", "--runs-dir", "s3://bucket/herd"), "only a coordinator there can run a sweep"),
        ({}, ("--on", "herd", "--runs-dir", "s3://bucket/herd"), "s3/bucket/herd/connection.json"),
        ({}, ("--sweep-dir", "s3://bucket/herd/x"), "--sweep-dir s3://bucket/herd/x is not inside --runs-dir runs"),
    ],
)
def test_wrong_input_is_one_message_and_starts_nothing(
    terminal: Terminal, folder: Path, grid: Mapping[str, object], arguments: tuple[str, ...], said: str
) -> None:
    write_grid(folder, grid)
    before = listing(folder)
    ended = terminal.remuda("sweep", "grid.yaml", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert listing(folder) == before


def test_a_run_folder_is_no_place_for_a_sweep(terminal: Terminal, folder: Path) -> None:
    (folder / "runs" / "hills").mkdir(parents=True)
    (folder / "runs" / "hills" / "config.json").write_text("{}")
    before = listing(folder)
    ended = terminal.remuda("sweep", "grid.yaml", "--on", "local")
    assert (ended.code, ended.out) == (2, "")
    assert "is a run folder: give the grid another name" in ended.err
    assert listing(folder) == before


@pytest.mark.processes
def test_from_start_to_end_and_once_more(terminal: Terminal, folder: Path) -> None:
    write_grid(folder, {"policy.n_step": {"values": [1], "in_name": True}, **SHORT}, seeds=2)
    names = NAMES[:2]
    ended = terminal.remuda("sweep", "grid.yaml", "--jobs", "2")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split() == ["run", "state", "reason", "env_step", "last", "best", "seconds"]
    assert [line.split()[:4] for line in lines[2:4]] == [[name, "finished", "max_env_steps", "60"] for name in names]
    assert lines[5].split() == ["variant", "finished", "last", "best"]
    assert lines[7].split()[:2] == ["hills_pol-ns1", "2/2"]
    assert lines[-1] == "  remuda plot runs/hills -o hills.png"
    assert "[2/2] " in ended.err
    for name in names:
        assert f"{name}: finished (max_env_steps) | env_step 60 | return last -" in ended.err
    stored = json.loads((folder / "runs" / "hills" / "sweep.json").read_text())
    assert [run["state"] for run in stored["runs"]] == ["finished"] * 2

    again = terminal.remuda("sweep", "grid.yaml", "--json")
    assert again.code == 0
    assert again.err.startswith("2 runs of 1 variant; 2 finished, 0 to continue, 0 to begin")
    told = json.loads(again.out)
    assert told["folder"] == str(folder / "runs" / "hills")
    assert told["runs"] == stored["runs"]
    assert [(one["variant"], one["seeds"], one["finished"]) for one in told["variants"]] == [("hills_pol-ns1", 2, 2)]

    plotted = terminal.remuda("plot", "runs/hills")
    assert plotted.err == "AverageTestEpRet over TotalEnvInteracts: hills_pol-ns1 (2)\n"

    write_grid(folder, {"policy.n_step": {"values": [1], "in_name": True}, "learner.batch_size": [4], **SHORT}, seeds=2)
    changed = terminal.remuda("sweep", "grid.yaml")
    assert changed.code == 2
    assert "hills_pol-ns1_s0 was started with other settings (learner.batch_size)" in changed.err


@pytest.mark.processes
def test_a_failed_run_is_named_at_the_end_and_tried_again(terminal: Terminal, folder: Path) -> None:
    grid = {
        "env.kwargs": {"values": [{"fails_at": 30}, {"fails_at": None}], "shorthand": "f"},
        "env.restarts_per_hour": [0],
        **SHORT,
    }
    write_grid(folder, grid)
    ended = terminal.remuda("sweep", "grid.yaml", "--jobs", "2", "--sweep-dir", "mine")
    assert ended.code == 1
    assert re.search(rf"1 of 2 runs failed:\n  hills_ffails_at-30_s3: {GAVE_WAY}\n\Z", ended.err)
    assert "hills_ffails_at-none_s3" in ended.out
    again = terminal.remuda("sweep", "grid.yaml", "--sweep-dir", "mine", "--dry-run")
    assert again.err.startswith("2 runs of 2 variants; 1 finished, 1 to continue, 0 to begin")


def test_a_sweep_goes_on_where_it_was_begun(terminal: Terminal, folder: Path) -> None:
    runs = folder / "runs"
    (runs / "hills").mkdir(parents=True)
    (runs / "connection.json").write_text("{}")
    assert "on the herd;" in terminal.remuda("sweep", "grid.yaml", "--dry-run").err
    assert "on this machine;" in terminal.remuda("sweep", "grid.yaml", "--dry-run", "--jobs", "2").err
    begun: dict[str, object] = {"format": 1, "name": "hills", "mode": "serial", "runs": []}
    (runs / "hills" / "sweep.json").write_text(json.dumps(begun))
    assert "on this machine;" in terminal.remuda("sweep", "grid.yaml", "--dry-run").err
    refused = terminal.remuda("sweep", "grid.yaml", "--dry-run", "--on", "herd")
    assert refused.code == 2
    assert "this sweep was started on this machine: --on local" in refused.err
    (runs / "hills" / "sweep.json").write_text("{")
    assert "sweep.json is damaged" in terminal.remuda("sweep", "grid.yaml").err


def test_a_lost_coordinator_leaves_no_sweep(terminal: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it could not be run here any more."""

    def silence(client: Client) -> Status:
        raise no_answer(gone, 10.0)

    monkeypatch.setattr(Client, "status", silence)
    (folder / "runs").mkdir()
    gone = connection_to("tcp://127.0.0.1:9")
    connection_file.write(folder / "runs" / "connection.json", gone)
    before = listing(folder)
    ended = terminal.remuda("sweep", "grid.yaml")
    assert ended.code == 1
    assert "the coordinator at tcp://127.0.0.1:9 (process 1 on here) did not answer within 10 s" in ended.err
    assert ended.err.endswith("; --on local runs the sweep without a coordinator\n")
    assert listing(folder) == before


# --- endings
def family(folder: Path) -> list[psutil.Process]:
    """The runs that live."""
    return [process for process in psutil.process_iter() if _is_run(process, str(folder / "runs"))]


def _is_run(process: psutil.Process, runs: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(part.startswith(runs) for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def started(folder: Path, tmp_path: Path) -> Generator[Command]:
    """A sweep whose first run trains."""
    write_grid(folder, ENDLESS, seeds=2)
    command = Command(tmp_path / "scratch", folder, "sweep", "grid.yaml", "--on", "local", "--datestamp")
    until(
        lambda: any(folder.glob("runs/*/*/*/ckpt/ckpt_best.pth.tar")) or command.process.poll() is not None,
        "the first run trains",
    )
    assert command.process.poll() is None, command.ended()
    yield command
    for process in family(folder):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    command.end()


@pytest.mark.processes
def test_interrupted_it_saves_tells_and_goes_on_later(started: Command, terminal: Terminal, folder: Path) -> None:
    (own,) = (folder / "runs").iterdir()
    second = terminal.remuda("sweep", "grid.yaml", "--sweep-dir", own)
    assert second.code == 2
    assert "another sweep is under way" in second.err
    started.process.send_signal(signal.SIGINT)
    ended = started.ended()
    assert ended.code == 0, ended.err
    assert "hills_s0  stopped" in ended.out
    assert "hills_s1  waiting" in ended.out
    advice = re.search(r"\n  remuda (sweep grid.yaml --on local --sweep-dir \S+_hills)\n", ended.out)
    assert advice is not None, "a date stamp would begin another sweep"
    assert family(folder) == []
    said = terminal.remuda(*advice[1].split(), "--dry-run").err
    assert said.startswith("2 runs of 1 variant; 0 finished, 1 to continue, 1 to begin")


@pytest.mark.processes
def test_a_second_signal_ends_it_at_once(started: Command, folder: Path) -> None:
    (child,) = family(folder)
    child.suspend()  # so that it does not end at the first
    assert until_ended(started.process, signal.SIGINT) == 130
    until(lambda: not family(folder), "its run is gone")


SEARCH = """
search:
  trials: 2
  at_once: 1
  space: {policy.n_step: {low: 1, high: 3}}
"""


@pytest.fixture
def search_folder(folder: Path) -> Path:
    """As `folder`, with a search in place of the grid's two values."""
    path = write_grid(folder, SHORT)
    path.write_text(path.read_text() + SEARCH)
    return folder


@pytest.mark.processes
def test_a_search_runs_its_trials_and_says_what_was_best(terminal: Terminal, search_folder: Path) -> None:
    ended = terminal.remuda("sweep", "grid.yaml", "--on", "local", "--set", "evaluator.episodes=1")
    assert ended.code == 0, ended.err
    assert "a search of 2 trials, 1 at once, for one setting" in ended.err
    assert re.search(r"^t00[01] +complete", ended.out, re.MULTILINE)
    assert re.search(r"remuda train tiny\.yaml .*--set evaluator\.episodes=1 .*--set policy\.n_step=[123]", ended.out)
    sweep = search_folder / "runs" / "hills"
    assert sorted(path.name for path in sweep.glob("hills_t*")) == ["hills_t000", "hills_t001"]
    assert (sweep / "study.log").is_file()
    assert (sweep / "study.png").is_file()
    again = terminal.remuda("sweep", "grid.yaml", "--json", "--set", "evaluator.episodes=1")
    assert again.code == 0, again.err
    told = json.loads(again.out)
    assert [trial["state"] for trial in told["trials"]] == ["complete", "complete"]
    assert {run["env_step"] for run in told["runs"]} == {60}


def test_a_searchs_dry_run_and_wrong_settings_write_nothing(terminal: Terminal, search_folder: Path) -> None:
    before = listing(search_folder)
    dry = terminal.remuda("sweep", "grid.yaml", "--dry-run")
    assert (dry.code, dry.out) == (0, "policy.n_step: {low: 1, high: 3}\n")
    assert listing(search_folder) == before
    wrong = search_folder / "wrong.yaml"
    wrong.write_text((search_folder / "grid.yaml").read_text().replace("low: 1", "low: -1"))
    ended = terminal.remuda("sweep", "wrong.yaml")
    assert ended.code == 2
    assert re.search(r"wrong\.yaml:\d+: policy\.n_step: should be greater than 0, not -1", ended.err)
    wrong.unlink()
    assert listing(search_folder) == before


@pytest.mark.processes
def test_a_killed_population_continues_its_lineage(terminal: Terminal, folder: Path, tmp_path: Path) -> None:
    path = write_grid(folder, {"stop.max_env_steps": [450], "env.num_envs": [1], "checkpoint.keep": [0]})
    path.write_text(
        f"{path.read_text()}search: {{pbt: {{population: 2, interval_env_steps: 150, copies: weights_and_replay,\n"
        "  space: {learner.learning_rate: {low: 1.0e-4, high: 1.0e-1, log: true}}}}\n"
    )
    command = Command(tmp_path / "scratch", folder, "sweep", "grid.yaml", "--on", "local", "--jobs", "2")
    journal = folder / "runs" / "hills" / "sweep.json"

    def intervals() -> list[Any]:
        return json.loads(journal.read_text())["lineage"]["intervals"] if journal.exists() else []

    until(lambda: len(intervals()) == 2 and len(family(folder)) > 0, "the second interval trains")
    family(folder)[0].kill()
    command.process.kill()
    command.ended()
    decided = intervals()
    ended = terminal.remuda("sweep", "grid.yaml")
    assert ended.code == 0, ended.err
    assert [one["origins"] for one in intervals()[:2]] == [one["origins"] for one in decided]
    assert len(intervals()) == 3
    for interval in intervals()[1:]:
        for origin in interval["origins"]:
            own, parents = (
                torch.load(
                    journal.parent / run.rpartition("_g")[0] / run / "ckpt" / origin["checkpoint"]["file"],
                    weights_only=True,
                )["model"]
                for run in (origin["run"], origin["parent"])
            )  # a run killed before its first update saves the same weights again, in other bytes
            assert own.keys() == parents.keys()
            assert all(torch.equal(own[name], parents[name]) for name in own)
    new = next(journal.parent.glob("*/*_g1"))
    said = "".join(path.read_text() for path in new.glob("log/*/*.txt"))
    assert "replay is back" in said
    assert "├─" in ended.out or "└─" in ended.out
    told = json.loads(terminal.remuda("sweep", "grid.yaml", "--json").out)
    assert told["lineage"] == intervals()
