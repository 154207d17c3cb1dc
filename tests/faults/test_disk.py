"""Disks that are full, small or damaged."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import assert_exact
from remuda.tests.faults.sizes import QUOTA_S
from remuda.tests.faults.test_processes import ENDLESS
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import HANG_S, until

pytestmark = pytest.mark.processes


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 24 MiB; skips where nobody may mount one (then tests/policy, tests/learner show it by hooks)."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "remuda-test", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_holds_everything_until_there_is_room(tmp_path: Path, small_disk: Path, herds: Herds) -> None:
    """22. Nothing that was acknowledged is lost, nobody dies of it, and the run goes on by itself."""
    user, herd = UserFolder.make(tmp_path / "user", ENDLESS), herds(root=small_disk)
    herd.gather()
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    before = herd.experiment("horse").env_step
    fill(small_disk / "ballast")
    until(lambda: "is held up, and no other run is: its disk refuses" in herd.said(), "the coordinator says so")
    (small_disk / "ballast").unlink()
    herd.wait_env_step("horse", before + 5_000)
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    incarnations = len(herd.incarnations("collector"))
    assert_exact(herd, run, user, lost_at_most=100 * (incarnations - 2))


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    ballast.write(b"\0" * size)
            except OSError:
                continue


def test_data_stays_within_its_quota_and_no_file_goes_that_is_needed(tmp_path: Path, herds: Herds) -> None:
    """26. At most the quota and one chunk, always; the learner never misses a file."""
    quota = 1 << 18
    user = UserFolder.make(tmp_path / "user", {**ENDLESS, "buffer": {**CONFIG["buffer"], "quota_bytes": quota}})
    herd = herds()
    herd.gather()
    run = herd.submit(user)
    herd.wait_env_step("horse", 500)
    until(lambda: _bytes(run / "data") > quota / 2, "the quota matters")
    largest, end_s = 0, time.monotonic() + QUOTA_S
    while time.monotonic() < end_s:
        largest = max(largest, _bytes(run / "data"))
        time.sleep(0.01)
    with herd.client() as client:
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()
    chunk = max((path.stat().st_size for path in (run / "data").iterdir()), default=0)
    print(f"26: at most {largest / 2**20:.2f} MiB of a quota of {quota / 2**20:.2f} MiB, chunks of {chunk} B")
    assert quota / 2 < largest <= quota + chunk
    assert "not sampled any more" not in herd.said()
    assert_exact(herd, run, user, all_kept=False)


def _bytes(folder: Path) -> int:
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_size
        except FileNotFoundError:
            continue
    return total


@pytest.mark.parametrize("damage", ["cut short", "a bit flipped", "gone"])
def test_a_coordinator_starts_whatever_became_of_the_journals_tail(tmp_path: Path, herds: Herds, damage: str) -> None:
    """14. The write-ahead log of a killed coordinator is damaged: it starts, and takes up the run as far as it goes."""
    user, herd = UserFolder.make(tmp_path / "user"), herds()
    coordinator = herd.coordinator()
    for number in range(3):
        herd.submit(user, f"horse{number}")
    coordinator.kill()
    coordinator.wait()
    tails = [*herd.runs.rglob("*-wal")]
    assert tails
    for tail in tails:
        content = bytearray(tail.read_bytes())
        if damage == "gone":
            tail.unlink()
            continue
        if damage == "cut short":
            del content[-len(content) // 3 :]
        elif content:
            content[-len(content) // 4] ^= 1
        tail.write_bytes(content)
    herd.coordinator()
    assert len(herd.status().experiments) <= 3
    with herd.client() as client:
        client.shutdown()
    assert herd.started[-1].wait(HANG_S) == 0
