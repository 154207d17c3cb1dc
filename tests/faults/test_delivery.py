"""27. What is announced again and again, in any order and across restarts of the coordinator, counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import assert_exact
from remuda.tests.faults.network import Repeating
from remuda.tests.faults.test_processes import ENDLESS
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import until

pytestmark = pytest.mark.processes


def test_each_chunk_is_delivered_up_to_five_times_and_counts_once(tmp_path: Path, herds: Herds) -> None:
    """Copies come before and after the original, and after a coordinator that had accepted it was killed.

    The run goes on until it is stopped: it cannot be over while announcements are still waited for."""
    user = UserFolder.make(tmp_path / "user", {**ENDLESS, "env": {}})
    with Repeating(seed=27, delay_s=0.1) as network:
        herd = herds(network=network)
        coordinator = herd.gather()
        run = herd.submit(user)
        for env_step in (300, 600):
            herd.wait_env_step("horse", env_step)
            until(lambda: network.waiting > 3, "announcements are on their way")
            coordinator.kill()
            coordinator.wait()
            coordinator = herd.coordinator()
        herd.wait_env_step("horse", 1_200)
        with herd.client() as client:
            client.stop("horse")
        herd.wait_over("horse", "stopped")
        herd.shut_down()
    print(f"27: {network.announced} announcements were delivered {network.delivered} times")
    assert network.delivered > 2 * network.announced > 50
    assert assert_exact(herd, run, user) >= 1_200
    assert {one.incarnation for one in herd.incarnations()} == {1}
