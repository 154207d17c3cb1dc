"""The connections between ranks: torch.distributed, with a deadline for every call."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch._C._distributed_c10d import FileStore, Store

from remuda.policy.ranks import Numbers, RankLostError, Ranks

LOOPBACK = "127.0.0.1"
LARGEST_MESSAGE_BYTES = 1 << 34
"""A message that says it is longer is none."""
_SMALLEST_WEIGHT = 1e-30


class _Work(Protocol):
    """A call under way. Torch's own annotations lack what follows."""

    def wait(self, timeout: timedelta = ...) -> bool: ...


class _Gloo(Protocol):
    """What is used of distributed.ProcessGroupGloo."""

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> _Work: ...

    def recv(self, tensors: list[torch.Tensor], sender: int, tag: int) -> _Work: ...

    def allreduce(self, tensors: list[torch.Tensor], options: object) -> _Work: ...


def meeting_place(path: Path, world_size: int) -> Store:
    """Where ranks find each other's addresses: a file that all of them see."""
    return FileStore(str(path), world_size)


class RankGroup(Ranks):
    """One rank's connections to all others: TCP, by gloo. Tensors of a GPU go through the host."""

    def __init__(self, store: Store, *, rank: int, world_size: int, start_s: float, timeout_s: float) -> None:
        """Connect; returns once all ranks have.

        Args:
            store: where the ranks find each other's addresses; the same for all.
            rank: of this process.
            world_size: how many there are.
            start_s: how long the others may take to come, in seconds.
            timeout_s: how long each may take to answer afterwards, in seconds.

        Raises:
            RankLostError: a rank did not come.
        """
        self.rank, self.world_size = rank, world_size
        self._timeout = timedelta(seconds=timeout_s)
        made_by = cast("Any", distributed.ProcessGroupGloo)
        options = made_by._Options()
        options._devices = [made_by.create_device(hostname=LOOPBACK)]
        options._timeout = timedelta(seconds=start_s)
        with _lost_if_it_fails(f"the {world_size} learner ranks did not come together within {start_s:g} s"):
            self._gloo = cast("_Gloo", made_by(store, rank, world_size, options))

    def average(self, weight: float, *tensors: torch.Tensor) -> None:
        """See Ranks."""
        parts = [tensor.detach().reshape(-1).to("cpu", tensors[0].dtype) for tensor in tensors]
        sums = torch.cat([*parts, parts[0].new_ones(1)])
        if weight:
            sums.mul_(weight)
        else:
            sums.zero_()
        self._sum(sums)
        sums[:-1].div_(sums[-1].clamp(min=_SMALLEST_WEIGHT))
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, mean in zip(tensors, torch.split(sums[:-1], sizes), strict=True):
            tensor.detach().copy_(mean.view(tensor.shape))

    def gather(self, numbers: Numbers) -> Numbers:
        """See Ranks."""
        by_rank = torch.zeros(self.world_size, len(numbers), dtype=torch.float64)
        by_rank[self.rank] = torch.from_numpy(numbers)
        self._sum(by_rank)
        gathered: Numbers = by_rank.numpy()
        return gathered

    def close(self) -> None:
        """Close the connections; no further call is possible. May be called again."""
        if hasattr(self, "_gloo"):
            del self._gloo  # its destructor does it

    def send(self, to: int, kind: int, body: bytes = b"") -> None:
        """Send a message to one rank; it must receive it. Raises RankLostError."""
        with self._lost(f"learner rank {to} took no message"):
            self._send(to, torch.tensor([kind, len(body)]))
            if body:
                self._send(to, torch.from_numpy(np.frombuffer(body, np.uint8).copy()))

    def receive(self, sender: int, *, timeout_s: float | None = None) -> tuple[int, bytes]:
        """Wait for the next message of a rank: its kind and its body. Raises RankLostError, also after `timeout_s`."""
        timeout = self._timeout if timeout_s is None else timedelta(seconds=timeout_s)
        with self._lost(f"learner rank {sender} did not answer"):
            header = torch.zeros(2, dtype=torch.int64)
            self._gloo.recv([header], sender, 0).wait(timeout)
            kind, length = (int(number) for number in header)
            if not 0 <= length <= LARGEST_MESSAGE_BYTES:
                raise RankLostError(f"learner rank {sender} sent a message of {length} bytes, which is none")
            body: NDArray[np.uint8] = np.empty(length, np.uint8)
            if length:
                self._gloo.recv([torch.from_numpy(body)], sender, 0).wait(self._timeout)
        return kind, body.tobytes()

    def _send(self, to: int, tensor: torch.Tensor) -> None:
        self._gloo.send([tensor], to, 0).wait(self._timeout)

    def _sum(self, tensor: torch.Tensor) -> None:
        with self._lost("a learner rank did not take part in an update"):
            options = distributed.AllreduceOptions()
            options.timeout = self._timeout
            self._gloo.allreduce([tensor], options).wait()

    def _lost(self, what: str) -> AbstractContextManager[None]:
        return _lost_if_it_fails(f"{what} within {self._timeout.total_seconds():g} s (limits.rank_s), or has ended")


@contextmanager
def _lost_if_it_fails(what: str) -> Generator[None]:
    """Turn an error of torch.distributed into a RankLostError that begins with `what`."""
    try:
        yield
    except RuntimeError as error:  # gloo has no other type, for a timeout and for a peer that is gone
        raise RankLostError(f"{what}: {str(error).strip().splitlines()[-1]}") from error
