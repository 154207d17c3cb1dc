"""Ranks average and gather, with the same result in each, and no call waits longer than its deadline."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
import torch
from torch._C._distributed_c10d import HashStore

from remuda.learner.ranks.group import Message, RankGroup
from remuda.policy.ranks import RankLostError
from remuda.tests.ipv6 import needs_ipv6
from remuda.tests.learner.ranks.threads import in_ranks
from remuda.tests.patience import HANG_S


def test_averages_are_weighted_by_rows() -> None:
    """By hand: (3 * 1 + 1 * 5) / 4 = 2, and so on; in the shape and type that each tensor had."""

    def act(group: RankGroup) -> tuple[torch.Tensor, torch.Tensor, float]:
        number = torch.tensor([256.0 if group.rank == 0 else 2.0], dtype=torch.bfloat16)
        group.average(1, number)
        gradient = torch.tensor([[1.0, 2.0]]) if group.rank == 0 else torch.tensor([[5.0, 6.0]])
        loss = torch.tensor(float(group.rank), dtype=torch.float64)
        group.average(3 if group.rank == 0 else 1, gradient, loss)
        return gradient, loss, number.item()

    for gradient, loss, number in in_ranks(2, act):
        assert number == 129.0, "added as float32: 256 + 1 is 256 in bfloat16"
        assert gradient.tolist() == [[2.0, 3.0]]
        assert (loss.item(), loss.dtype) == (0.25, torch.float64)


def test_a_rank_without_rows_does_not_count() -> None:
    """The mean of no rows is NaN."""

    def act(group: RankGroup) -> list[float]:
        mean = torch.tensor([7.0]) if group.rank == 1 else torch.empty(0).mean().reshape(1)
        group.average(2 if group.rank == 1 else 0, mean)
        nobodys = torch.tensor([float("nan")])
        group.average(0, nobodys)
        return [mean.item(), nobodys.item()]

    assert in_ranks(3, act) == [[7.0, 0.0]] * 3


def test_numbers_are_gathered_in_order_of_ranks() -> None:
    gathered = in_ranks(3, lambda group: group.gather(np.array([group.rank, 0.1 + group.rank])).tolist())
    assert gathered == [[[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]]] * 3


CALLS: dict[str, Callable[[RankGroup], object]] = {
    "average": lambda group: group.average(1, torch.ones(3)),
    "gather": lambda group: group.gather(np.ones(3)),
}


@pytest.mark.parametrize("waits", CALLS)
def test_a_rank_that_never_answers_is_lost_after_the_deadline(waits: str) -> None:
    given_up = threading.Event()

    def act(group: RankGroup) -> str:
        if group.rank == 1:
            assert given_up.wait(HANG_S)
            return ""
        with pytest.raises(RankLostError, match=r"learner rank 1 did not answer within 2 s \(limits.rank_s\)") as error:
            CALLS[waits](group)
        given_up.set()
        return str(error.value)

    assert in_ranks(2, act, timeout_s=2.0)[0]


@pytest.mark.parametrize("waits", CALLS)
def test_the_end_of_a_rank_is_noticed_by_all_others_at_once(waits: str) -> None:
    """Rank 1 waits for rank 0, which leaves the group once rank 2 is lost."""

    def act(group: RankGroup) -> str:
        if group.rank == 2:
            return ""
        with pytest.raises(RankLostError, match="has ended, or its connection is broken") as error:
            CALLS[waits](group)
        group.close()
        return str(error.value)

    by_0, by_1, _ = in_ranks(3, act)
    assert by_0.startswith("learner rank 2 has ended")
    assert by_1.startswith("learner rank 0 has ended")


def test_ranks_whose_calls_differ_are_an_error_and_do_not_wait() -> None:
    def act(group: RankGroup) -> str:
        with pytest.raises(RankLostError, match="the ranks average 2, 3 numbers: `learn` must average") as error:
            group.average(1, torch.ones(2 + group.rank))
        return str(error.value)

    assert all(in_ranks(2, act))


@pytest.mark.parametrize("size", [0, 4_080, 4_081, 300_000])
def test_messages_of_every_size_arrive_whole_and_in_order(size: int) -> None:
    body = np.random.default_rng(0).integers(0, 256, size, np.uint8)

    def act(group: RankGroup) -> bytes:
        if group.rank == 0:
            group.send(1, Message.BATCH, body)
            group.send(1, Message.WAIT, np.empty(0, np.uint8))
            return group.expect(1, Message.RESULT).tobytes()
        kind, arrived = group.receive(0)
        assert kind == Message.BATCH
        assert len(group.expect(0, Message.WAIT)) == 0
        group.send(0, Message.RESULT, arrived)
        group.flush()
        return arrived.tobytes()

    assert in_ranks(2, act) == [body.tobytes()] * 2


@needs_ipv6
def test_ranks_connect_over_ipv6() -> None:
    store = HashStore()

    def be(rank: int) -> list[float]:
        with closing(RankGroup(store, rank, 2, timeout_s=HANG_S, address="::1")) as group:
            return group.gather(np.array([rank])).ravel().tolist()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(be, (0, 1))) == [[0.0, 1.0]] * 2


def test_a_number_beside_gpus_is_added_on_the_host() -> None:
    """Ranks that share a GPU, or have none, do not use NCCL, and say so to each other."""

    def act(group: RankGroup) -> float:
        group.use_gpus("cpu")
        mean = torch.tensor([float(group.rank)])
        group.average(1, mean)
        return mean.item()

    assert in_ranks(2, act) == [0.5, 0.5]
