"""Two users share a herd: one run gives way to the other, everything is killed, and the bill is exact."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from remuda.tests.cli.terminal import Terminal
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, Journal, assert_exact_run, commander
from remuda.tests.faults.test_resumed import SETTINGS, assert_shown_once
from remuda.tests.parallel.reading import index, wait_for_learner
from remuda.tests.parallel.user_folder import UserFolder

pytestmark = pytest.mark.processes

WATTS = 4.0


def test_a_run_gives_way_everything_is_killed_and_the_bill_is_exact(
    tmp_path: Path, herds: Herds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A preempted run hands in, waits over the death of everybody, and continues without a row or point twice. Before,
    a collector, a learner and the coordinator are killed."""
    user, herd, bob = UserFolder.make(tmp_path / "user", SETTINGS), herds(), tmp_path / "bob.json"
    herd.options = ("--limit", "lost_after_s=5", "--allow-code", str(user.root))
    terminal = Terminal(monkeypatch, capsys)

    def remuda(*typed: object) -> str:
        ended = terminal.remuda(*typed, "--runs-dir", herd.runs)
        assert ended.code == 0, ended.err
        return ended.out

    coordinator = herd.launch_coordinator()
    remuda("keys", "invite", "bob", bob, "--right", "operator")  # waits for the coordinator
    herd.workers()
    herd.wait_members(4)
    sweep = herd.submit(user, "sweep", 0, "project=vision", "preemptible=true")
    herd.wait_env_step("sweep", 500)
    herd.kill_worker("collector", "sweep")
    herd.kill_worker("learner", "sweep")
    urgent = herd.submit(user, "urgent", 5, by=bob)
    herd.wait_env_step("urgent", 300)
    herd.kill_coordinator(coordinator)
    handed_in = hands_in_and_waits(herd, sweep)
    herd.kill_all()
    herd.gather()
    assert "preempted by urgent" in (herd.experiment("sweep").waiting_for or "")

    remuda("quota", "set", "user/bob", "--env-steps", "100")
    later = herd.submit(user, "later", 0, by=bob)
    herd.wait_until(lambda client: "user/bob has used" in (client.experiment("later").waiting_for or ""), "bob waits")
    wait_for_learner(urgent)
    herd.stop("urgent")
    herd.wait_env_step("sweep", handed_in + 300)
    wait_for_learner(sweep)  # the end of urgent may have taken the evaluator, and so all workers, once more
    herd.stop("sweep")
    assert herd.experiment("later").state == "queued"
    remuda("quota", "clear", "user/bob")
    herd.wait_env_step("later", 300)
    herd.stop("later")
    unknown = terminal.remuda("quota", "clear", "user/bob", "--runs-dir", herd.runs)
    assert (unknown.code, unknown.err.count("user/bob has no quota")) == (2, 1)

    bills = {by: remuda("report", "--by", by, "--csv", "--watts", WATTS, 0) for by in ("run", "user", "project", "day")}
    herd.shut_down()
    assert_bills(bills, {"sweep": sweep, "urgent": urgent, "later": later})
    for run in (sweep, urgent):
        assert_exact_run(run, alone=False)
        assert_shown_once(run)


def hands_in_and_waits(herd: Herd, run: Path) -> int:
    """All updates are saved before the run waits; returns env_step."""
    assert commander(run, "hands in and gives all workers back: urgent")
    waiting = herd.experiment("sweep")
    assert "preempted by urgent" in (waiting.waiting_for or "")
    assert waiting.train_iter == index(run)["last"]
    return waiting.env_step


def assert_bills(bills: dict[str, str], runs: dict[str, Path]) -> None:
    """Each run is charged with what its journal has, and all views have the same sums."""
    lines = {by: [*csv.DictReader(io.StringIO(printed))] for by, printed in bills.items()}
    charged = {line["name"]: (line["user"], line["project"]) for line in lines["run"]}
    assert charged == {"later": ("bob", ""), "sweep": ("operator", "vision"), "urgent": ("bob", "")}
    for line in lines["run"]:
        run = runs[line["name"]]
        journaled = Journal.of(run).snapshot.experiment
        ledger, meter, computed = journaled.replay.ledger, journaled.meter, journaled.flow.computed_iters
        charged_for = [int(line[column]) for column in ("env_steps", "updates", "payload_bytes")]
        assert charged_for == [ledger.env_steps, computed, ledger.payload_bytes]
        assert computed >= index(run)["last"]
        assert [us(line[column]) for column in ("worker_s", "cpu_s")] == [meter.worker_us, meter.cpu_us]
        assert meter.worker_us > meter.cpu_us > 0
        assert float(line["kwh_estimated"]) == pytest.approx(WATTS * float(line["cpu_s"]) / 3.6e6)
    for column in ("worker_s", "cpu_s", "env_steps", "updates", "payload_bytes"):
        sums = [sum(us(line[column]) for line in found) for found in lines.values()]
        assert len(set(sums)) == 1, (column, sums)


def us(seconds: str | float) -> int:
    return round(1e6 * float(seconds))
