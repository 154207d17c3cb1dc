"""Communication between the ranks of a learner: a process group of torch.distributed."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import time
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch._C._distributed_c10d import PrefixStore, Store

from remuda.policy.ranks import Numbers, RankLostError, Ranks

_SMALLEST_WEIGHT = 1e-30
_HEAD = 2
"""Numbers before a message body: kind and size in bytes."""
_FRAME_BYTES = 1 << 12
"""Size of a message's first piece; most messages fit in one piece."""
_BODY_BYTES = _FRAME_BYTES - 8 * _HEAD
LARGEST_MESSAGE_BYTES = 1 << 34

Body = NDArray[np.uint8]


class Message(IntEnum):
    """Kinds of messages between rank 0 and another rank."""

    STATE = 0
    """From rank 0: the initial state of all ranks."""
    BATCH = 1
    """From rank 0: a part of a batch."""
    RESULT = 2
    """Reply of a rank: results of learning from its part of the batch."""
    ADJUST = 3
    """From rank 0: new values of settings, valid from the next batch on."""
    WAIT = 4
    """From rank 0: sign of life while no batch is ready."""


class RankGoneError(RankLostError):
    """The connection to a rank is broken."""


class RankGroup(Ranks):
    """One rank's end of the process group: gloo on the host, NCCL if every rank has a GPU of its own.

    Every sum is computed once and sent to all ranks, so all ranks hold the same bits. Not thread-safe.
    """

    def __init__(
        self, store: Store, rank: int, world_size: int, *, timeout_s: float, address: str = "127.0.0.1"
    ) -> None:
        """Connect to all other ranks, which reach this rank at `address`. `timeout_s` is the longest silence of another
        rank, unless a call sets another limit (`limits.rank_s`). Raises RankLostError."""
        self.rank, self.world_size = rank, world_size
        self.names = [f"learner rank {other}" for other in range(world_size)]
        """Names of the ranks in messages."""
        self.spent_s = 0.0
        """Seconds spent in `average` and `gather`, mostly waiting for the other ranks."""
        self._store = store
        self._timeout_s = timeout_s
        self._sizes: set[int] = set()
        self._sending: list[tuple[int, dist.Work, torch.Tensor]] = []
        self._nccl: dist.ProcessGroup | None = None
        self._gloo: dist.ProcessGroup | None = None
        with self._answers(None, timeout_s):
            self._gloo = _gloo(store, rank, world_size, timeout_s, address)

    def use_gpus(self, device: str) -> None:
        """Sum on the GPUs from now on, if every rank has a GPU of its own. All ranks must call this method. Raises
        RankLostError."""
        gpu = torch.device(device)
        able = gpu.type == "cuda" and dist.is_nccl_available()
        mine = zlib.crc32(str(torch.cuda.get_device_properties(gpu).uuid).encode()) if able else 0
        everybodys = self.gather(np.array([mine], np.float64))
        if not everybodys.all() or len(np.unique(everybodys)) < self.world_size:
            return
        torch.cuda.set_device(gpu)
        self._nccl = _nccl(PrefixStore("nccl", self._store), self.rank, self.world_size, 4 * self._timeout_s)

    @property
    def on_gpus(self) -> bool:
        """True if sums are computed on the GPUs while the host continues."""
        return self._nccl is not None

    def average(self, weight: float, *tensors: torch.Tensor) -> None:
        """See Ranks."""
        begun_s = time.perf_counter()
        sums = _weighted(weight, tensors, torch.device("cpu") if self._nccl is None else tensors[0].device)
        self._agree(sums.numel())
        self._sum(sums)
        sums[:-1].div_(sums[-1].clamp(min=_SMALLEST_WEIGHT))
        start = 0
        for tensor in tensors:
            tensor.detach().copy_(sums[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()
        self.spent_s += time.perf_counter() - begun_s

    def gather(self, numbers: Numbers) -> Numbers:
        """See Ranks."""
        begun_s = time.perf_counter()
        by_rank: Numbers = np.zeros((self.world_size, len(numbers)))
        by_rank[self.rank] = numbers
        self._sum(torch.from_numpy(by_rank))
        self.spent_s += time.perf_counter() - begun_s
        return by_rank

    def send(self, rank: int, kind: Message, body: Body) -> None:
        """Begin to send a message to another rank. Raises RankLostError."""
        frame = np.zeros(_FRAME_BYTES, np.uint8)
        frame[: 8 * _HEAD].view(np.int64)[:] = kind, len(body)
        frame[8 * _HEAD : 8 * _HEAD + min(len(body), _BODY_BYTES)] = body[:_BODY_BYTES]
        for piece in (frame, body[_BODY_BYTES:]):
            if len(piece):
                self._post(rank, torch.from_numpy(piece))

    def flush(self) -> None:
        """Wait until all is sent. Raises RankLostError."""
        while self._sending:
            rank, work, _ = self._sending[0]
            with self._answers(rank, self._timeout_s):
                work.wait(timedelta(seconds=self._timeout_s))
            self._sending.pop(0)

    def receive(self, rank: int, timeout_s: float | None = None) -> tuple[Message, Body]:
        """Wait for the next message of a rank; return its kind and body. Raises RankLostError."""
        self.flush()
        frame = np.empty(_FRAME_BYTES, np.uint8)
        self._receive_into(rank, torch.from_numpy(frame), timeout_s)
        kind, size = map(int, frame[: 8 * _HEAD].view(np.int64))
        if kind not in _KINDS or not 0 <= size <= LARGEST_MESSAGE_BYTES:
            raise RankLostError(f"{self.names[rank]} sent an unknown message: kind {kind}, {size} bytes")
        if size <= _BODY_BYTES:
            return _KINDS[kind], frame[8 * _HEAD : 8 * _HEAD + size]
        body = np.empty(size, np.uint8)
        body[:_BODY_BYTES] = frame[8 * _HEAD :]
        self._receive_into(rank, torch.from_numpy(body[_BODY_BYTES:]))
        return _KINDS[kind], body

    def expect(self, rank: int, expected: Message) -> Body:
        """Return the body of the next message of a rank, which must have this kind. Raises RankLostError."""
        kind, body = self.receive(rank)
        if kind != expected:
            raise RankLostError(
                f"{self.names[rank]} sent {kind.name} where {expected.name} was expected: `learn` must make the same "
                "calls in all ranks"
            )
        return body

    def close(self) -> None:
        """Break all connections; may be called again."""
        if self._nccl is not None:
            self._nccl.abort()  # unfinished work with a lost rank would block the GPU
        self._sending.clear()
        self._nccl = self._gloo = None

    # --- inside ---

    @property
    def _host(self) -> dist.ProcessGroup:
        if self._gloo is None:
            raise RankLostError("the connections to the other ranks are closed")
        return self._gloo

    def _sum(self, numbers: torch.Tensor) -> None:
        """Replace these numbers by their sum over all ranks. Every rank passes a contiguous tensor of the same size.

        On the host, rank 0 adds in rank order: fewer messages than gloo's own allreduce.
        """
        if numbers.device.type == "cuda" and self._nccl is not None:
            self._nccl.allreduce([numbers]).wait()
        elif self.rank:
            self._post(0, numbers)
            self._receive_into(0, numbers)
        else:
            theirs = torch.empty_like(numbers)
            for rank in range(1, self.world_size):
                self._receive_into(rank, theirs)
                numbers += theirs
            for rank in range(1, self.world_size):
                self._post(rank, numbers)
            self.flush()

    def _agree(self, size: int) -> None:
        """Compare the size of a new kind of sum with the other ranks, because gloo does not. Raises RankLostError."""
        if size in self._sizes:
            return
        sizes = self.gather(np.array([size], np.float64)).ravel()
        if len(set(sizes)) > 1:
            raise RankLostError(
                f"the ranks average {', '.join(f'{of - 1:g}' for of in sizes)} numbers: `learn` must average tensors "
                "of the same shapes in all ranks"
            )
        self._sizes.add(size)

    def _post(self, rank: int, tensor: torch.Tensor) -> None:
        """Start to send a tensor. The tensor must not change before `flush`."""
        with self._answers(rank, self._timeout_s):
            self._sending.append((rank, self._host.send([tensor], rank, 0), tensor))

    def _receive_into(self, rank: int, tensor: torch.Tensor, timeout_s: float | None = None) -> None:
        wait_s = timeout_s or self._timeout_s
        with self._answers(rank, wait_s):
            self._host.recv([tensor], rank, 0).wait(timedelta(seconds=wait_s))

    @contextmanager
    def _answers(self, rank: int | None, timeout_s: float) -> Generator[None]:
        """Turn an error of torch into the loss of this rank; None means any other rank."""
        try:
            yield
        except RuntimeError as error:
            who = "another learner rank" if rank is None else self.names[rank]
            if "imed out" in str(error):
                raise RankLostError(f"{who} did not answer within {timeout_s:g} s (limits.rank_s)") from error
            raise RankGoneError(f"{who} has ended, or its connection is broken") from error


_KINDS = {int(kind): kind for kind in Message}


def _gloo(store: Store, rank: int, size: int, timeout_s: float, address: str) -> dist.ProcessGroup:
    options = cast("Any", dist.ProcessGroupGloo)._Options()  # the stubs name this class Options
    options._timeout = timedelta(seconds=timeout_s)
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    options._threads = 1
    return cast("dist.ProcessGroup", dist.ProcessGroupGloo(store, rank, size, options))


def _nccl(store: Store, rank: int, size: int, timeout_s: float) -> dist.ProcessGroup:
    """Create the NCCL group. `timeout_s` exceeds gloo's timeout, which detects a lost rank first: NCCL's own timeout
    would end the process."""
    options = dist.ProcessGroupNCCL.Options()
    cast("Any", options)._timeout = timedelta(seconds=timeout_s)
    return cast("dist.ProcessGroup", dist.ProcessGroupNCCL(store, rank, size, options))


def _weighted(weight: float, tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Return all numbers of the tensors times the weight, followed by the weight, as one vector."""
    sizes = [tensor.numel() for tensor in tensors]
    dtype = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    vector = torch.empty(sum(sizes) + 1, dtype=dtype, device=device)
    start = 0
    for tensor, size in zip(tensors, sizes, strict=True):
        vector[start : start + size].copy_(tensor.detach().reshape(-1))
        start += size
    if weight:
        vector[-1] = 1.0
        vector.mul_(weight)
    else:
        vector.zero_()
    return vector
