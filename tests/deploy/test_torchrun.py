"""What a process that torchrun has started does before there is a lease."""

from __future__ import annotations

import psutil
import pytest
from torch._C._distributed_c10d import HashStore

from remuda.deploy.rank_place import VARIABLES, RankPlace, RankPlaceError, rank_place
from remuda.deploy.torchrun import RanksGoneError, TooFewRanksError, group_secret, own_address, recruits
from remuda.learner.ranks.meeting import Meeting
from remuda.policy.ranks import RankLostError
from remuda.tests.ipv6 import needs_ipv6
from remuda.tests.worker.leases import small_config
from remuda.wire.keys.pair import new_pair
from remuda.worker.serve import leaves_doubt


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_ranks_of_one_host_listen_where_only_it_reaches_them(host: str) -> None:
    assert own_address(RankPlace(1, 2, 1, host, 29500, ""), "") == host


def test_ranks_listen_at_the_interface_that_is_asked_for() -> None:
    place = RankPlace(1, 2, 1, "192.0.2.7", 29500, "")
    loopback = next(name for name, each in psutil.net_if_addrs().items() if each[0].address == "127.0.0.1")
    assert own_address(place, loopback) == "127.0.0.1"
    with pytest.raises(RankLostError, match=r"no network interface 'wg77' with an address \(GLOO_SOCKET_IFNAME\)"):
        own_address(place, "wg77")


def test_all_ranks_of_a_group_have_a_key_that_follows_from_the_workers() -> None:
    worker = new_pair("worker")
    assert group_secret(worker, "group") == group_secret(worker, "group")
    assert group_secret(worker, "another group") != group_secret(worker, "group")
    assert group_secret(new_pair("worker"), "group") != group_secret(worker, "group")


def test_more_ranks_than_were_started_are_refused() -> None:
    config = small_config(learner={"batch_size": 8, "ranks": 3})
    with pytest.raises(TooFewRanksError, match=r"learner.ranks is 3, and this learner was started with 2 ranks"):
        recruits(Meeting(HashStore()), 2)(config)


def test_only_torchrun_starts_a_lost_rank_again() -> None:
    """So this process ends, and is started again with all others."""
    config = small_config(learner={"batch_size": 8, "ranks": 2})
    lost = recruits(Meeting(HashStore()), 2)(config).lost("learner rank 1 has ended")
    assert isinstance(lost, RanksGoneError)
    assert leaves_doubt(lost)


# --- its place, by the environment variables of torchrun ---

TORCHRUNS = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "one",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "horses",
}


def test_a_rank_knows_its_place() -> None:
    assert rank_place(TORCHRUNS) == RankPlace(3, 4, 1, "one", 29500, "horses")


@pytest.mark.parametrize("name", VARIABLES)
def test_without_one_of_the_variables_nobody_is_a_rank(name: str) -> None:
    assert rank_place({**TORCHRUNS, name: ""}) is None
    assert rank_place({key: value for key, value in TORCHRUNS.items() if key != name}) is None


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(RankPlaceError, match="WORLD_SIZE is 'two', and no number"):
        rank_place({**TORCHRUNS, "WORLD_SIZE": "two"})
    with pytest.raises(RankPlaceError, match="RANK is 4, and WORLD_SIZE 4"):
        rank_place({**TORCHRUNS, "RANK": "4"})
