"""14. The coordinator's process ends at every named point of its work, one after the other, during one run."""

from __future__ import annotations

import importlib
import signal
from operator import attrgetter
from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd, assert_exact, beside
from remuda.tests.faults.sizes import POINTS
from remuda.tests.faults.test_processes import ENDLESS
from remuda.tests.parallel.reading import progress
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import until

pytestmark = pytest.mark.processes

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
    "remuda.coordinator.disk.run_folders catch_up": (1,),
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


@pytest.mark.parametrize("name", NAMES)
def test_each_is_the_name_of_something(name: str) -> None:
    module, path = name.split()
    assert callable(attrgetter(path)(importlib.import_module(module)))


def test_it_may_end_at_every_named_point(tmp_path: Path, herds: Herds) -> None:
    """It always starts again, nothing acknowledged is missing, and nobody else ends for it."""
    assert len(ALL) >= 50
    points = ALL if POINTS is None else ALL[3 :: len(ALL) // POINTS]
    (tmp_path / "dies").mkdir()
    (tmp_path / "dies" / "sitecustomize.py").write_text(DIES)
    user = UserFolder.make(
        tmp_path / "user",
        {
            **ENDLESS,
            "buffer": {**CONFIG["buffer"], "capacity": 1_000},
            "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 500},
        },
    )
    herd = herds()
    coordinator = herd.gather()
    run = herd.submit(user)
    herd.wait_env_step("horse", 1_500)
    for point in points:
        coordinator.kill()
        coordinator.wait()
        _dies_at(herd, point, tmp_path / "dies")
        coordinator = herd.coordinator()
        _goes_on(herd)
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    print(f"14: died at {len(points)} points")
    assert_exact(herd, run, user, all_kept=False)
    rows = [(int(row["Epoch"]), int(row["TotalEnvInteracts"])) for row in progress(run)]
    assert [epoch for epoch, _ in rows] == list(range(len(rows)))
    assert [env_step for _, env_step in rows] == sorted(env_step for _, env_step in rows)
    assert {one.incarnation for one in herd.incarnations()} == {1}


def _dies_at(herd: Herd, point: str, place: Path) -> None:
    """Start one that dies there by itself."""
    coordinator = herd.launch_coordinator({"PYTHONPATH": beside(place), "DIE_AT": point})
    until(lambda: coordinator.poll() is not None, f"it dies {point}\n{herd.said()}")
    assert coordinator.returncode == -signal.SIGKILL, f"{point}: {coordinator.returncode}\n{herd.said()}"


def _goes_on(herd: Herd) -> None:
    herd.wait_env_step("horse", herd.experiment("horse").env_step + 100)
