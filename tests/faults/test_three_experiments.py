"""Three experiments share a herd that is too small for them, and their coordinator is killed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import assert_exact, commander
from remuda.tests.faults.sizes import LONG_STEPS
from remuda.tests.faults.test_processes import LONG
from remuda.tests.parallel.reading import progress
from remuda.tests.parallel.user_folder import HELD, UserFolder

pytestmark = pytest.mark.processes

NAMES = ("bay", "roan", "grey")


def test_three_experiments_on_four_workers_survive_their_coordinator(tmp_path: Path, herds: Herds) -> None:
    """All three finish, with exact counters, in the order of their priorities; no worker has to restart.

    None can finish before it was looked at, since its environments wait."""
    herd = herds()
    coordinator = herd.gather()
    users = {name: UserFolder.make(tmp_path / name, {**LONG, **HELD}) for name in NAMES}
    for user in users.values():
        user.hold()
    runs = {name: herd.submit(users[name], name, priority=5 * (name == "grey")) for name in NAMES}
    herd.wait_env_step("bay", 1_000)
    assert [herd.experiment(name).state for name in NAMES] == ["running", "queued", "queued"]
    assert "1 learner (0 free)" in (herd.experiment("roan").waiting_for or ""), "it says what it waits for"
    coordinator.kill()
    coordinator.wait()
    coordinator = herd.coordinator()
    users["bay"].release()
    herd.wait_over("bay")
    herd.wait_env_step("grey", 1_000)
    assert herd.experiment("roan").state == "queued", "the higher priority goes first"
    coordinator.kill()
    coordinator.wait()
    herd.coordinator()
    users["grey"].release()
    users["roan"].release()
    for name in NAMES:
        assert herd.wait_over(name).env_step >= LONG_STEPS
    herd.shut_down()
    for name in NAMES:
        assert assert_exact(herd, runs[name], users[name], alone=False) >= LONG_STEPS
        rows = [(int(row["Epoch"]), int(row["TotalEnvInteracts"])) for row in progress(runs[name])]
        assert [epoch for epoch, _ in rows] == list(range(len(rows)))
        assert [env_step for _, env_step in rows] == sorted(env_step for _, env_step in rows)
        assert commander(runs[name])[-1].startswith("the run is over after")
    assert {one.incarnation for one in herd.incarnations()} == {1}
    assert len(herd.incarnations()) == 4
