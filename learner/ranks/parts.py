"""A batch split between ranks, and what they learned from it put together again."""

# torch's annotations are partial: pyright does not know what these calls return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from safetensors.numpy import load, save

from remuda.policy.base import Arrays, LearnResult
from remuda.policy.ranks import RankLostError

_PRIORITIES, _UPDATES, _METRIC = "priorities", "updates", "metric "


def split(batch: Arrays, ranks: int) -> list[dict[str, np.ndarray]]:
    """Consecutive rows for each rank, in order; the numbers of rows differ by at most one."""
    rows = len(next(iter(batch.values())))
    ends = [rows * rank // ranks for rank in range(ranks + 1)]
    return [{name: column[begin:end] for name, column in batch.items()} for begin, end in pairwise(ends)]


def packed(columns: Arrays) -> bytes:
    """Columns as one message."""
    return save({name: np.ascontiguousarray(column) for name, column in columns.items()})


def unpacked(message: bytes) -> dict[str, np.ndarray]:
    """The columns in a message."""
    return load(message)


def told(result: LearnResult) -> dict[str, np.ndarray]:
    """What rank 0 needs of another rank's result. Metrics that are single numbers are the same in all ranks."""
    columns = {_UPDATES: np.array([result.updates], np.int64)}
    if result.priorities is not None:
        columns[_PRIORITIES] = result.priorities.detach().cpu().numpy()
    for name, values in result.metrics.items():
        if isinstance(values, torch.Tensor) and values.dim():
            columns[_METRIC + name] = values.detach().reshape(-1).cpu().numpy()
    return columns


def together(own: LearnResult, others: Sequence[Arrays]) -> LearnResult:
    """The result of the whole batch: that of rank 0, and what the other ranks told, in their order.

    Raises RankLostError if one of them did another number of updates: then their weights are different.
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
