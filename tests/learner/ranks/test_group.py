"""Ranks average and gather, with the same result in each, and no call waits longer than its deadline."""

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


def test_types_that_add_badly_are_added_as_float32() -> None:
    """256 + 1 is 256 in bfloat16, whose mean of 256 and 2 would be 128."""

    def act(group: RankGroup) -> float:
        number = torch.tensor([256.0 if group.rank == 0 else 2.0], dtype=torch.bfloat16)
        group.average(1, number)
        return number.item()

    assert in_ranks(2, act) == [129.0, 129.0]


def test_a_rank_without_rows_does_not_count() -> None:
    """The mean of no rows is NaN."""

    def act(group: RankGroup) -> list[float]:
        mean = torch.tensor([7.0]) if group.rank == 1 else torch.empty(0).mean().reshape(1)
        group.average(2 if group.rank == 1 else 0, mean)
        nobodys = torch.tensor([float("nan")])
        group.average(0, nobodys)
        return [mean.item(), nobodys.item()]

    assert in_ranks(3, act) == [[7.0, 0.0]] * 3


def test_sums_are_the_same_to_the_last_bit() -> None:
    """Float sums depend on their order, so only one rank adds."""

    def act(group: RankGroup) -> bytes:
        gradient = torch.from_numpy(np.random.default_rng(group.rank).standard_normal(1_001).astype(np.float32))
        group.average(1 + group.rank, gradient)
        return gradient.numpy().tobytes()

    assert len(set(in_ranks(4, act))) == 1


def test_numbers_are_gathered_in_order_of_ranks() -> None:
    gathered = in_ranks(3, lambda group: group.gather(np.array([group.rank, 0.1 + group.rank])).tolist())
    assert gathered == [[[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]]] * 3


def test_one_rank_changes_nothing() -> None:
    gradient = torch.tensor([1.0, float("nan")])
    ONE_RANK.average(0, gradient)
    assert gradient[0] == 1.0
    assert ONE_RANK.gather(np.array([1.0, 2.0])).tolist() == [[1.0, 2.0]]


CALLS: dict[str, Callable[[RankGroup], object]] = {
    "average": lambda group: group.average(1, torch.ones(3)),
    "gather": lambda group: group.gather(np.ones(3)),
}


@pytest.mark.parametrize("waits", CALLS)
def test_a_rank_that_never_answers_is_lost_after_the_deadline(waits: str) -> None:
    def act(group: RankGroup) -> str:
        if group.rank == 1:
            return ""
        with pytest.raises(
            RankLostError, match=r"learner rank 1 did not answer within 0.2 s \(limits.rank_s\)"
        ) as error:
            CALLS[waits](group)
        return str(error.value)

    assert in_ranks(2, act, timeout_s=0.2)[0]


def test_ranks_whose_calls_differ_are_an_error_and_do_not_wait() -> None:
    def act(group: RankGroup) -> str:
        if group.rank == 1:
            group.average(1, torch.ones(3))  # rank 0 is told of more numbers than it has
            return ""
        with pytest.raises(RankLostError, match="sent 16 bytes of numbers, and 12 were expected") as error:
            group.average(1, torch.ones(2))
        return str(error.value)

    with pytest.raises(RankLostError, match="did not answer"):
        assert in_ranks(2, act, others_s=0.5)[0]
