"""Meeting of the ranks of a lease, through a store of torch.distributed."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import msgspec
from torch._C._distributed_c10d import PrefixStore, Store

from remuda.config.schema import ExperimentConfig
from remuda.policy.ranks import RankLostError

_LOOK_S = 0.05
_LEAVE = timedelta(seconds=10)
_SEAL_BYTES = 32


class WaitingRank(msgspec.Struct, frozen=True):
    """A process that waits for a lease as this rank."""

    rank: int
    host: str
    pid: int
    nonce: str
    """Random text, new for each lease. The signature of a lease's start covers this text, so a replayed start is
    refused."""

    def __str__(self) -> str:
        """For people."""
        return f"learner rank {self.rank} (pid {self.pid} on {self.host})"


class _Beginning(msgspec.Struct, frozen=True):
    """Rank 0's message to a waiting rank."""

    lease: str
    config_json: str


class Lease:
    """A lease, and the ranks' messages about the lease itself."""

    def __init__(self, config: ExperimentConfig, store: Store, name: str = "") -> None:
        """Open the lease's part of the meeting's store. A new lease gets a new name."""
        self.config = config
        self.name = name or uuid4().hex
        self.store = PrefixStore(self.name, store)

    def ready(self, rank: int) -> None:
        """Report that this rank has its algorithm."""
        self.store.set(f"ready {rank}", "")

    def is_ready(self, rank: int) -> bool:
        """Return True if the rank has its algorithm."""
        return self.store.check([f"ready {rank}"])

    def fail(self, rank: int, error: Exception) -> None:
        """Report the error that stops this rank, before its connections break."""
        text = f"learner rank {rank} (pid {os.getpid()}) ended by an error: {type(error).__name__}: {error}"
        self.store.set(f"failed {rank}", text)

    def failure(self) -> str:
        """Return the error that another rank reported; empty if no rank has reported an error."""
        keys = [f"failed {rank}" for rank in range(1, self.config.learner.ranks)]
        return next((self.store.get(key).decode(errors="replace") for key in keys if self.store.check([key])), "")

    def end(self) -> None:
        """Report the end of the lease, before connections break."""
        with contextlib.suppress(RuntimeError):  # the store may be gone as well
            self.store.set("over", "")

    @property
    def is_over(self) -> bool:
        """True if rank 0 has ended the lease."""
        return self.store.check(["over"])


@dataclass(frozen=True)
class Meeting:
    """The meeting point of all ranks of a learner."""

    store: Store
    address: str = "127.0.0.1"
    """This host's address for connections from other ranks."""
    secret: bytes = b""
    """Key shared by all ranks: without the key, no process can name code for the ranks. Empty if only this user reaches
    the store."""

    # --- rank 0 ---

    def gather(self, world_size: int, within_s: float) -> str:
        """Wait until all ranks are present; return their description for the log. Raises RankLostError."""
        deadline_s = time.monotonic() + within_s
        while missing := [rank for rank in range(1, world_size) if self._here(rank) is None]:
            if time.monotonic() > deadline_s:
                raise RankLostError(f"learner rank {_listed(missing)} did not come within {within_s:g} s")
            time.sleep(_LOOK_S)
        return ", ".join(str(self._here(rank)) for rank in range(1, world_size))

    def begin(self, lease: Lease, ended: Callable[[], str]) -> list[WaitingRank]:
        """Start a lease in the other ranks; return the ranks once all have their algorithms. `ended` describes ended
        processes. Raises RankLostError."""
        started: dict[int, WaitingRank] = {}
        waiting = list(range(1, lease.config.learner.ranks))
        limit_s = lease.config.limits.prepare_s
        deadline_s = time.monotonic() + limit_s
        while waiting := [rank for rank in waiting if not lease.is_ready(rank)]:
            for rank in waiting:
                here = self._here(rank)
                if here is not None and started.get(rank) != here:
                    self._start(here, _Beginning(lease.name, lease.config.model_dump_json()))
                    started[rank] = here
            if text := lease.failure() or ended():
                raise RankLostError(text)
            if time.monotonic() > deadline_s:
                raise RankLostError(
                    f"learner rank {_listed(waiting)} was not ready within {limit_s:g} s (limits.prepare_s)"
                )
            time.sleep(_LOOK_S)
        return [started[rank] for rank in sorted(started)]

    def dismiss(self, world_size: int) -> None:
        """Announce that no further lease will come. The store must stay until all ranks have read the announcement."""
        self.store.set("leave", "")
        with contextlib.suppress(RuntimeError):  # one has not, in time
            self.store.wait([f"left {rank}" for rank in range(1, world_size)], _LEAVE)

    # --- the others ---

    def next_lease(self, rank: int) -> Lease | None:
        """Wait for the next lease while the store exists; None after the last lease.

        Raises RankLostError if rank 0 has another key.
        """
        here = WaitingRank(rank, socket.gethostname(), os.getpid(), uuid4().hex)
        self.store.set(f"here {rank}", msgspec.json.encode(here).decode())
        key = f"begin {here.nonce}"
        while not self.store.check([key]):
            if self.store.check(["leave"]):
                self.store.set(f"left {rank}", "")
                return None
            time.sleep(_LOOK_S)
        content = self.store.get(key)
        seal, body = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(here, body)):
            raise RankLostError("learner rank 0 has another key: all ranks need the same connection file")
        beginning = msgspec.json.decode(body, type=_Beginning)
        return Lease(ExperimentConfig.model_validate_json(beginning.config_json), self.store, beginning.lease)

    # --- inside ---

    def _here(self, rank: int) -> WaitingRank | None:
        key = f"here {rank}"
        return msgspec.json.decode(self.store.get(key), type=WaitingRank) if self.store.check([key]) else None

    def _start(self, here: WaitingRank, beginning: _Beginning) -> None:
        body = msgspec.json.encode(beginning)
        self.store.set(f"begin {here.nonce}", self._seal(here, body) + body)  # type: ignore[arg-type]

    def _seal(self, here: WaitingRank, body: bytes) -> bytes:
        return hmac.digest(self.secret, here.nonce.encode() + body, hashlib.sha256)


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))
