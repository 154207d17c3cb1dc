"""Ranks average and gather, send and receive, and no call waits longer than its deadline."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from remuda.learner.ranks.group import RankGroup
from remuda.policy.ranks import ONE_RANK, RankLostError
from remuda.tests.learner.ranks.threads import in_ranks


def test_averages_are_weighted_by_rows() -> None:
    """By hand: (3 * 1 + 1 * 5) / 4 = 2, and so on; in the shape and type that each tensor had."""

    def act(group: RankGroup) -> tuple[torch.Tensor, torch.Tensor]:
        gradient = torch.tensor([[1.0, 2.0]]) if group.rank == 0 else torch.tensor([[5.0, 6.0]])
        loss = torch.tensor(float(group.rank), dtype=torch.float64)
        group.average(3 if group.rank == 0 else 1, gradient, loss)
        return gradient, loss

    for gradient, loss in in_ranks(2, act):
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


def test_one_rank_changes_nothing() -> None:
    gradient = torch.tensor([1.0, float("nan")])
    ONE_RANK.average(0, gradient)
    assert gradient[0] == 1.0
    assert ONE_RANK.gather(np.array([1.0, 2.0])).tolist() == [[1.0, 2.0]]


def test_messages_arrive_whole_and_in_order() -> None:
    body = np.random.default_rng(0).bytes(1_000_003)

    def act(group: RankGroup) -> object:
        if group.rank == 0:
            group.send(1, 3, body)
            group.send(1, 4)
            return group.receive(1)
        received = group.receive(0), group.receive(0)
        group.send(0, 5, b"done")
        return received

    assert in_ranks(2, act) == [(5, b"done"), ((3, body), (4, b""))]


CALLS: dict[str, Callable[[RankGroup], object]] = {
    "average": lambda group: group.average(1, torch.ones(3)),
    "gather": lambda group: group.gather(np.ones(3)),
    "receive": lambda group: group.receive(1),
}


@pytest.mark.parametrize("waits", CALLS)
def test_a_rank_that_never_answers_is_lost_after_the_deadline(waits: str) -> None:
    def act(group: RankGroup) -> str:
        if group.rank == 1:
            return ""  # its connections stay open as long as the other's thread has not ended
        with pytest.raises(RankLostError, match=r"within 0.2 s \(limits.rank_s\), or has ended") as error:
            CALLS[waits](group)
        return str(error.value)

    kept: list[RankGroup] = []

    def keeping(group: RankGroup) -> str:
        kept.append(group)
        return act(group)

    assert in_ranks(2, keeping, timeout_s=0.2)[0]
