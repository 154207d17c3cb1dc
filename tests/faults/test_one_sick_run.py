"""One run's disk, or the coordinator's own output, that takes nothing: no other run and no client waits for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.config.load import load_config
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import ENV, assert_exact
from remuda.tests.faults.test_disk import fill
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.program import REMUDA

pytestmark = pytest.mark.processes


@pytest.fixture
def tight(tmp_path: Path) -> Generator[Path]:
    """A file system of 16 MiB inside a runs folder; skips where nobody may mount one (test_bulkheads and
    test_disk_lanes in tests/coordinator/disk show the same without)."""
    place = tmp_path / "herd0" / "runs" / "tight"
    place.mkdir(parents=True)
    mount: list[str | Path] = ["mount", "-t", "tmpfs", "-o", "size=16m", "remuda-test", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_run_on_a_full_disk_holds_up_no_other(tmp_path: Path, tight: Path, herds: Herds) -> None:
    users, herd = [UserFolder.make(tmp_path / name) for name in ("sick", "well")], herds()
    former = herd.coordinator()
    with herd.client() as client:
        config = load_config(users[0].config, overrides=["name=sick"]).config
        sick = Path(client.submit(config, run_dir="tight/sick").run_dir)
    fill(tight / "ballast")
    herd.workers(collectors=4, evaluators=2, learners=2)
    until(lambda: "held up: its disk refuses" in (herd.experiment("sick").waiting_for or ""), "the status says so")
    well = herd.submit(users[1], "well")
    herd.wait_over("well")
    status = herd.experiment("sick")
    assert status.state in ("starting", "running")
    assert status.waiting_for is not None
    assert "No space left" in status.waiting_for or "full" in status.waiting_for
    until(lambda: not (well / ".owner").exists(), "the files of the other run are closed")
    former.kill()
    former.wait()
    herd.coordinator()
    until(lambda: "held up: its disk refuses" in (herd.experiment("sick").waiting_for or ""), "the next one knows it")
    until(lambda: all(worker.beat_age_s < 5.0 for worker in herd.status().workers), "all workers are back")
    assert "is lost" not in herd.said()
    (tight / "ballast").unlink()
    herd.wait_over("sick")
    herd.shut_down()
    for run, user in zip((sick, well), users, strict=True):
        assert_exact(herd, run, user, alone=False)  # the sick run may be given collectors of the other one


@pytest.mark.parametrize("output", ["a full disk", "a reader that is gone"])
def test_a_coordinator_whose_own_output_nobody_takes_serves_on(tmp_path: Path, herds: Herds, output: str) -> None:
    herd = herds()
    herd.runs.mkdir()
    if output == "a full disk":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, stderr = os.pipe()
        os.close(reading)
    own: list[str | Path] = ["--runs-dir", herd.runs, "--connection-file", herd.connection_file]
    process = subprocess.Popen([REMUDA, "coordinator", *own], stderr=stderr, stdin=subprocess.DEVNULL, env=ENV)
    os.close(stderr)
    herd.started.append(process)
    until(herd.connection_file.exists, "it listens")
    user = UserFolder.make(tmp_path / "user")
    for name in ("one", "two"):
        herd.submit(user, name)  # each says a line
    assert [each.state for each in herd.status().experiments] == ["queued", "queued"]
    with herd.client() as client:
        client.shutdown()
    assert process.wait(HANG_S) == 0
