"""Splits a batch among ranks, and joins the results."""

# torch's annotations are partial: pyright does not know what these calls return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from remuda.learner.ranks.group import Body
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.ranks import RankLostError
from remuda.storage.tensor_file import TensorFileError, encode_header, in_file_order, memory_of, views

_PRIORITIES, _UPDATES, _METRIC = "priorities", "updates", "metric "


def split(batch: Arrays, ranks: int, *, first: int | None = None) -> list[dict[str, np.ndarray]]:
    """Split a batch into consecutive rows for each rank, in order; sizes differ by at most one row.

    `first` gives rank 0 this number of rows, and the other ranks share the rest.
    """
    rows = len(next(iter(batch.values())))
    if first is None:
        ends = [rows * rank // ranks for rank in range(ranks + 1)]
    else:
        ends = [0, *(first + (rows - first) * rank // (ranks - 1) for rank in range(ranks))]
    return [{name: column[begin:end] for name, column in batch.items()} for begin, end in pairwise(ends)]


def packed(columns: Arrays) -> Body:
    """Columns as the body of a message."""
    stored = in_file_order(columns)
    header = np.frombuffer(encode_header(stored, {}), np.uint8)
    return np.concatenate([header, *map(np.asarray, memory_of(stored))])


def unpacked(body: Body) -> dict[str, np.ndarray]:
    """Return the columns of a message body, as views of the body. Raises RankLostError."""
    start = 8 + int.from_bytes(body[:8].tobytes(), "little")
    try:
        return views(body[8:start].tobytes(), body[start:])
    except TensorFileError as error:
        raise RankLostError(f"a learner rank sent columns that cannot be read: {error}") from error


def result_columns(result: LearnResult) -> dict[str, np.ndarray]:
    """Return the part of a rank's result that rank 0 needs. Scalar metrics are equal in all ranks and left out."""
    columns = {_UPDATES: np.array([result.updates], np.int64)}
    if result.priorities is not None:
        columns[_PRIORITIES] = result.priorities.detach().cpu().numpy()
    for name, values in result.metrics.items():
        if isinstance(values, torch.Tensor) and values.dim():
            columns[_METRIC + name] = values.detach().reshape(-1).cpu().numpy()
    return columns


def joined_result(own: LearnResult, others: Sequence[Arrays]) -> LearnResult:
    """Join rank 0's result with the other ranks' results, in rank order.

    Raises RankLostError after different numbers of updates, since the weights then differ.
    """
    for rank, other in enumerate(others, start=1):
        if int(other[_UPDATES][0]) != own.updates:
            raise RankLostError(
                f"learner rank {rank} made {int(other[_UPDATES][0])} gradient updates of a batch, and rank 0 "
                f"{own.updates}: `learn` must decide the same in all ranks"
            )
    metrics: Mapping[str, float | torch.Tensor] = {
        name: _joined(values, [other[_METRIC + name] for other in others if _METRIC + name in other])
        for name, values in own.metrics.items()
    }
    priorities = own.priorities
    if priorities is not None:
        priorities = _tensors(priorities, [other[_PRIORITIES] for other in others])
    return replace(own, metrics=metrics, priorities=priorities)


def _joined(own: float | torch.Tensor, others: Sequence[np.ndarray]) -> float | torch.Tensor:
    return _tensors(own.reshape(-1), others) if isinstance(own, torch.Tensor) and others else own


def _tensors(own: torch.Tensor, others: Sequence[np.ndarray]) -> torch.Tensor:
    return torch.cat([own, *(torch.from_numpy(other).to(own.device) for other in others)])
