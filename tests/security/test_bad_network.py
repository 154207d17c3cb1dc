"""33. Late, broken and silent connections, and a network that is gone for a while: then everything is as before."""

from __future__ import annotations

import time
from contextlib import ExitStack
from uuid import uuid4

import pytest

from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.network import Unreliable
from remuda.tests.faults.test_registration import register
from remuda.tests.patience import HANG_S, until
from remuda.tests.security.sizes import PARTITION_S, within
from remuda.wire.connection_file import read
from remuda.worker.link import Link

pytestmark = pytest.mark.processes

WORKERS = 4
BEAT_INTERVAL_S = 1.0
LOST_AFTER_S = 2.0


def test_workers_are_back_soon_after_it_has_healed(herds: Herds) -> None:
    with Unreliable(seed=33, latest_s=0.2, mean_s=1_000.0, partition_s=0.0) as network, ExitStack() as closing:
        herd = herds(f"lost_after_s={LOST_AFTER_S:g},beat_interval_s={BEAT_INTERVAL_S:g}", network=network)
        herd.coordinator()
        links = [Link(read(herd.workers_file), register(str(uuid4()))) for _ in range(WORKERS)]
        for link in links:
            closing.callback(link.close, "it was a test", HANG_S)
            link.start(HANG_S)
        herd.wait_members(WORKERS)
        network.break_some()
        with network.gone():
            until(lambda: not herd.members(), "all are lost")
            time.sleep(PARTITION_S)  # it is gone for so long: nothing is waited for
        begin_s = time.monotonic()
        until(lambda: len(herd.members()) == WORKERS, "all are back")
        took_s = time.monotonic() - begin_s
        print(f"33: all back {took_s:.2f} s after {PARTITION_S:g} s without a network")
        assert within(took_s, 2 * BEAT_INTERVAL_S)
        assert {worker.incarnation for worker in herd.members()} == {1}
        closing.close()
        herd.shut_down()
