"""The coordinator is killed, stands still, or never returns: its herd waits and goes on, or ends in order."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import signal
import subprocess
import time
from operator import attrgetter
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.tests.buffer.chunks import meta_of
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import (
    ENDLESS,
    IN_WORK,
    Herd,
    Journal,
    assert_exact,
    commander,
    customized,
    kill,
    signal_all,
)
from remuda.tests.faults.sizes import LONG, POINTS, REBUILT_CHUNKS, SILENCE_S, within
from remuda.tests.parallel.reading import assert_rows_are_there_once
from remuda.tests.parallel.user_folder import CONFIG, HELD, UserFolder
from remuda.tests.patience import HANG_S, until, until_ended
from remuda.tests.warm.program import REMUDA
from remuda.training.journal import RunJournal
from remuda.training.journal_entry import JournalEntry
from remuda.wire.messages import IndexedChunk
from remuda.worker.session import QUIET_S
from remuda.worker.shutdown_guard import SAME_REQUEST_S

pytestmark = pytest.mark.processes

LIMITS = None if LONG else "lost_after_s=4,stuck_after_s=6,hopeless_after_s=7"
"""The silence is longer than any of them."""
DIES = """
import importlib, os, signal

def die_at(module, name, moment, count):
    holder = importlib.import_module(module)
    *classes, last = name.split(".")
    for part in classes:
        holder = getattr(holder, part)
    real, calls = getattr(holder, last), iter(range(1, 10**9))

    def replaced(*arguments, **named):
        its_turn = next(calls) == count
        if its_turn and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if its_turn:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, last, replaced)

if point := os.environ.get("DIE_AT"):
    module, name, moment, count = point.split()
    die_at(module, name, moment, int(count))
"""
"""As sitecustomize, in the coordinator alone: the process is killed before or after the n-th call of a name."""

NAMES: dict[str, tuple[int, ...]] = {
    "remuda.coordinator.disk.runs_folder RunsFolder.begin": (1,),
    "remuda.coordinator.disk.runs_folder RunsFolder.note": (1,),
    "remuda.coordinator.disk.run_folders RunFolders.recover": (1,),
    "remuda.training.journal RunJournal.read": (1,),
    "remuda.coordinator.disk.run_folder catch_up": (1,),
    "remuda.coordinator.disk.run_folder commander_logbook": (1,),
    "remuda.coordinator.state Coordinator.recover": (1,),
    "remuda.wire.connection_file write": (1,),
    "remuda.wire.door Door.answer": (1, 2),
    "remuda.training.journal RunJournal.write": (1, 2, 5, 40),
    "remuda.coordinator.state Coordinator.handle": (1, 10, 300),
    "remuda.coordinator.state Coordinator.journal_entries": (1, 2, 40),
    "remuda.wire.router RouterSocket.receive_up_to": (5, 100, 1_000),
    "remuda.wire.router RouterSocket.send": (1, 2, 5, 100),
    "remuda.coordinator.disk.run_folder RunFiles.journal": (1, 2, 40),
    "remuda.coordinator.disk.run_folder RunFiles.carry_out": (1, 10, 100),
    "remuda.coordinator.disk.run_folder delete_chunks": (1, 2, 20),
    "remuda.logbook.book Logbook.emit": (1, 3),
    "remuda.logbook.book Logbook.progress": (1, 2),
    "remuda.storage.checkpoint_index CheckpointIndex.add": (1, 2),
    "remuda.storage.checkpoint_index CheckpointIndex._write": (1, 2),
    "remuda.storage.checkpoint_index CheckpointIndex.set_reward": (1,),
}
ALL = [
    f"{name} {moment} {count}" for name, counts in NAMES.items() for count in counts for moment in ("before", "after")
]
FEW = ("CheckpointIndex.add after 1", "RunJournal.write before 5", "RouterSocket.send after 100")
"""Of the short form; the simulation kills it at any message."""


def test_each_point_is_the_name_of_something() -> None:
    assert len(ALL) >= 50
    for module, path in map(str.split, NAMES):
        assert callable(attrgetter(path)(importlib.import_module(module)))


def test_a_herd_outlives_its_coordinators(tmp_path: Path, herds: Herds) -> None:
    """13, 14, 15, 16, 25, 37. Nothing acknowledged is missing, and nobody but the coordinator ends."""
    buffer, evaluator = {**CONFIG["buffer"], "capacity": 1_000}, {**CONFIG["evaluator"], "interval_env_steps": 500}
    user = UserFolder.make(tmp_path / "user", {**ENDLESS, "buffer": buffer, "evaluator": evaluator})
    herd, dies = herds(LIMITS), customized(tmp_path / "dies", DIES)
    coordinator = herd.gather()
    nanny = herd.started[1]
    run = herd.submit(user)
    herd.wait_env_step("horse", 1_500)
    a_second_coordinator_is_refused(herd, coordinator.pid)
    for point in ALL if POINTS is None else [point for point in ALL if point.endswith(FEW)]:
        end(coordinator)
        dying = herd.launch_coordinator({**dies, "DIE_AT": point})
        until(lambda: dying.poll() is not None, f"it dies {point}\n{herd.said()}")  # noqa: B023
        assert dying.returncode == -signal.SIGKILL, f"{point}: {dying.returncode}\n{herd.said()}"
        coordinator = herd.coordinator()
        goes_on(herd)
    for token in herd.runs.glob(".seen_*"):  # of those killed as they started; the next ones sweep them after 30 days
        if not token.name.endswith(herd.status().coordinator.id):
            token.unlink()
    for how in ("stopped and woken", "killed and started again"):
        coordinator = is_silent(herd, coordinator, how)
        goes_on(herd)
    assert {one.incarnation for one in herd.incarnations()} == {1}, "no worker had to start again"

    end(coordinator)
    nanny.terminate()
    assert nanny.wait(HANG_S) == 0
    herd.coordinator()
    herd.workers()
    goes_on(herd)
    assert any("which nobody had announced" in text for text in commander(run)), "handed in while nobody was there"

    herd.wait_until(lambda client: [w.state for w in client.status().workers] == ["busy"] * 4, "everybody is at work")
    herd.kill_all()
    journal = Journal.of(run)
    half = journal.chunks[0].meta.file
    litter = run / "data" / f".{half}.1.0123abcd.tmp"
    litter.write_bytes((run / "data" / half).read_bytes()[:100])
    herd.coordinator()
    assert herd.experiment("horse").env_step >= journal.snapshot.experiment.replay.ledger.env_steps
    herd.workers()
    goes_on(herd)
    herd.stop()
    herd.shut_down()
    assert_exact(herd, run, user, all_kept=False, lost_at_most=2 * IN_WORK)
    assert_rows_are_there_once(run)


def end(coordinator: subprocess.Popen[bytes]) -> None:
    coordinator.kill()
    coordinator.wait()


def goes_on(herd: Herd) -> None:
    herd.wait_env_step("horse", herd.experiment("horse").env_step + 100)


def a_second_coordinator_is_refused(herd: Herd, first: int) -> None:
    """Within two seconds, with exit code 2, and the first notices nothing."""
    begin_s = time.monotonic()
    command = [str(REMUDA), "coordinator", "--runs-dir", str(herd.runs)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    print(f"16: refused after {time.monotonic() - begin_s:.2f} s")
    assert within(time.monotonic() - begin_s, 2.0)
    assert second.returncode == 2
    assert f"process {first} on " in second.stderr
    assert "two coordinators cannot share a runs folder" in second.stderr
    assert herd.status().coordinator.pid == first


def is_silent(herd: Herd, coordinator: subprocess.Popen[bytes], how: str) -> subprocess.Popen[bytes]:
    """Let the coordinator be silent for longer than any limit; returns the one that is there afterwards."""
    processes = {worker.pid for worker in herd.members()}
    if how == "stopped and woken":
        kill(coordinator.pid, signal.SIGSTOP)
        time.sleep(SILENCE_S)
        begun_s = time.monotonic()
        kill(coordinator.pid, signal.SIGCONT)
    else:
        end(coordinator)
        time.sleep(SILENCE_S)
        begun_s = time.monotonic()
        coordinator = herd.coordinator()
    until(lambda: {worker.pid for worker in herd.members()} == processes, "the same processes are there")
    until(lambda: all(w.beat_age_s < 2.0 for w in herd.members()), "all of them beat")
    print(f"15: {how} after {SILENCE_S:.0f} s, all were back {time.monotonic() - begun_s:.1f} s later")
    assert within(time.monotonic() - begun_s, 10.0)
    if LONG:
        assert "the coordinator has been silent for 2 min; waiting for it, at most 60 min" in herd.said()
        assert "the coordinator is back after 5 min" in herd.said()
    return coordinator


def test_workers_wait_for_their_coordinator_for_a_limited_time(tmp_path: Path, herds: Herds) -> None:
    """15, 37. They may be there first; they end at once though nobody takes their work; none stays without one."""
    herd = herds()
    first = herd.worker("collector")
    until(lambda: "which does not exist yet; waiting at most 60 min" in herd.said(), "it says so")
    coordinator = herd.coordinator()
    nannies = (first, herd.workers(collectors=0))
    herd.wait_members(3)
    assert {one.incarnation for one in herd.incarnations()} == {1}, "they have waited, and were not started again"
    herd.submit(UserFolder.make(tmp_path / "user", {**ENDLESS, "collector": {**CONFIG["collector"], "count": 1}}))
    herd.wait_env_step("horse", 300)
    kill(coordinator.pid, signal.SIGSTOP)
    time.sleep(QUIET_S + 1.0)  # until then a worker still counts on an answer
    begun_s = time.monotonic()
    for nanny in nannies:
        nanny.send_signal(signal.SIGINT)
    assert [nanny.wait(HANG_S) for nanny in nannies] == [0, 0]
    print(f"15: all had gone {time.monotonic() - begun_s:.1f} s after Ctrl-C")
    assert within(time.monotonic() - begun_s, 2.0)
    kill(coordinator.pid, signal.SIGCONT)
    until(lambda: not herd.members(), "they are forgotten")

    herd.coordinator_timeout_s = 4.0
    nanny = herd.workers(collectors=1)
    herd.wait_members(3)
    end(coordinator)
    begun_s = time.monotonic()
    assert nanny.wait(HANG_S)
    print(f"15: all had gone after {time.monotonic() - begun_s:.1f} s with a coordinator timeout of 4 s")
    assert within(time.monotonic() - begun_s, 4.0 + 5.0)
    assert "nothing was heard from the coordinator for 4" in herd.said()
    assert herd.family() == []


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.faults_long)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_second_signal_ends_everybody_at_once(tmp_path: Path, herds: Herds, number: signal.Signals) -> None:
    """37. Within five seconds, though environments hang; what was counted is on disk. Ctrl-C reaches everybody."""
    user, herd = UserFolder.make(tmp_path / "user", HELD), herds()
    user.hold()
    coordinator = herd.gather()
    nanny = herd.started[1]
    run = herd.submit(user)

    def hang() -> bool:
        collectors = [one.pid for one in herd.incarnations("collector")]
        return len(collectors) == 2 and user.held(collectors)

    until(hang, "the environments of both collectors hang")
    begin_s = time.monotonic()
    first = [each for each in herd.family() if number == signal.SIGINT or each.pid in (coordinator.pid, nanny.pid)]
    signal_all(first, number)
    time.sleep(1.2 * SAME_REQUEST_S)
    signal_all([living for living in herd.family() if living.pid != coordinator.pid], number)
    assert until_ended(coordinator, number) == 130
    until_ended(nanny, number)
    until(lambda: not herd.family(), "everybody is gone")
    assert within(time.monotonic() - begin_s, 5.0)
    assert Journal.of(run).snapshot.experiment.replay.ledger.env_steps > 0
    assert "Traceback" not in herd.said()


def test_the_index_is_rebuilt_within_seconds_whatever_its_size(tmp_path: Path, herds: Herds) -> None:
    """25. Ten thousand chunks a second; what the journal does not list is swept."""
    buffer, rows = {**CONFIG["buffer"], "capacity": 100_000}, 4
    herd = herds()
    coordinator = herd.coordinator()
    run = herd.submit(UserFolder.make(tmp_path / "user", {"buffer": buffer}))
    end(coordinator)
    begin_s = time.monotonic()
    end(herd.coordinator())
    empty_s = time.monotonic() - begin_s

    chunks = [IndexedChunk(rows * number, meta_of(number, rows)) for number in range(REBUILT_CHUNKS)]
    snapshot = Journal.of(run).snapshot
    replay = snapshot.experiment.replay
    replay = replace(replay, index=replace(replay.index, next_row=rows * REBUILT_CHUNKS))
    snapshot = replace(snapshot, experiment=replace(snapshot.experiment, replay=replay))
    with contextlib.closing(RunJournal(run / "journal.sqlite")) as journal:
        journal.write(JournalEntry(snapshot.identity.id, snapshot, added=tuple(chunks)))
    listed = [chunk.meta.file for chunk in chunks]
    for file in itertools.chain(listed, (meta_of(REBUILT_CHUNKS + 1, 1).file, f".{listed[0]}.1.0123abcd.tmp")):
        (run / "data" / file).touch()
    begin_s = time.monotonic()
    herd.coordinator()
    took_s = max(time.monotonic() - begin_s - empty_s, 0.0)
    print(f"25: {REBUILT_CHUNKS} chunks rebuilt in {took_s:.2f} s beside the {empty_s:.2f} s of an empty start")
    assert within(took_s, REBUILT_CHUNKS / 10_000)
    herd.stop()
    herd.shut_down()
    assert {path.name for path in (run / "data").iterdir()} == set(listed)
    assert [chunk.meta.file for chunk in Journal.of(run).chunks] == listed
