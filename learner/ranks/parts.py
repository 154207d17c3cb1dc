"""A batch split between ranks, and what they learned from it put together again."""

# torch's annotations are partial: pyright does not know what these calls return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np
import torch
from msgspec import Meta

from remuda.learner.ranks.line import Body, Part
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.ranks import RankLostError

_PRIORITIES, _UPDATES, _METRIC = "priorities", "updates", "metric "
_ALIGNED_BYTES = 64
_KEPT_LAYOUTS = 256
"""Batches of one run have few different layouts."""

_Type = Annotated[str, Meta(pattern=r"^[<|][biuf][0-9]{1,2}\Z")]
_Size = Annotated[int, Meta(ge=0, le=1 << 40)]
_Shape = Annotated[tuple[_Size, ...], Meta(min_length=1, max_length=16)]
Layout = tuple[tuple[str, _Type, _Shape], ...]
"""Name, type and shape of each column, in the order in which they follow each other."""


def split(batch: Arrays, ranks: int, *, first: int | None = None) -> list[dict[str, np.ndarray]]:
    """Consecutive rows for each rank, in order; the numbers of rows differ by at most one. With `first`, rank 0 has so
    many, and the others share the rest."""
    rows = len(next(iter(batch.values())))
    if first is None:
        ends = [rows * rank // ranks for rank in range(ranks + 1)]
    else:
        ends = [0, *(first + (rows - first) * rank // (ranks - 1) for rank in range(ranks))]
    return [{name: column[begin:end] for name, column in batch.items()} for begin, end in pairwise(ends)]


def packed(columns: Arrays) -> list[Part]:
    """Columns as the parts of one message; they are not copied where they are contiguous."""
    ordered = sorted(columns.items(), key=_item_bytes)
    layout = tuple((name, column.dtype.str, column.shape) for name, column in ordered)
    parts: list[Part] = [_described(layout)]
    parts += [np.ascontiguousarray(column).data.cast("B") for _, column in ordered if column.nbytes]
    return parts


def unpacked(message: Body) -> dict[str, np.ndarray]:
    """The columns in a message: views of it. Raises RankLostError."""
    size = int.from_bytes(message[:8].tobytes(), "little")
    columns: dict[str, np.ndarray] = {}
    start = 8 + size
    for name, dtype, shape in _layout(message[8:start].tobytes()):
        end = start + dtype.itemsize * math.prod(shape)
        if end > len(message):
            raise RankLostError("a learner rank sent columns that are not whole")
        columns[name] = message[start:end].view(dtype).reshape(shape)
        start = end
    return columns


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


def _item_bytes(column: tuple[str, np.ndarray]) -> int:
    """Columns of larger numbers come first, so that all begin where their numbers may."""
    return -column[1].itemsize


@lru_cache(_KEPT_LAYOUTS)
def _described(layout: Layout) -> bytes:
    """A layout as bytes, after their number (8 bytes)."""
    text = msgspec.json.encode(layout)
    size = -(-(8 + len(text)) // _ALIGNED_BYTES) * _ALIGNED_BYTES - 8
    return size.to_bytes(8, "little") + text.ljust(size)


@lru_cache(_KEPT_LAYOUTS)
def _layout(text: bytes) -> list[tuple[str, np.dtype[np.generic], tuple[int, ...]]]:
    """Raises RankLostError."""
    try:
        found = [(name, np.dtype(dtype), shape) for name, dtype, shape in msgspec.json.decode(text, type=Layout)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise RankLostError(f"a learner rank sent columns that cannot be read: {error}") from error
    return found


def _joined(own: float | torch.Tensor, others: Sequence[np.ndarray]) -> float | torch.Tensor:
    return _tensors(own.reshape(-1), others) if isinstance(own, torch.Tensor) and others else own


def _tensors(own: torch.Tensor, others: Sequence[np.ndarray]) -> torch.Tensor:
    return torch.cat([own, *(torch.from_numpy(other).to(own.device) for other in others)])
