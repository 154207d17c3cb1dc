"""How ranks come together for a lease: over a store of torch.distributed that all of them reach."""

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


class Here(msgspec.Struct, frozen=True):
    """A process that waits for a lease as this rank."""

    rank: int
    host: str
    pid: int
    nonce: str
    """Another one for each lease: a beginning is sealed for it, so none can be repeated."""

    def __str__(self) -> str:
        """For people."""
        return f"learner rank {self.rank} (pid {self.pid} on {self.host})"


class _Beginning(msgspec.Struct, frozen=True):
    """The message of rank 0 to a rank that waits."""

    lease: str
    config_json: str


class Lease:
    """A lease, and what ranks tell each other about it besides what they compute together."""

    def __init__(self, config: ExperimentConfig, store: Store, name: str = "") -> None:
        """`store` is that of the meeting; a new lease gets a new name."""
        self.config = config
        self.name = name or uuid4().hex
        self.store = PrefixStore(self.name, store)

    def ready(self, rank: int) -> None:
        """Say that this rank has its algorithm."""
        self.store.set(f"ready {rank}", "")

    def is_ready(self, rank: int) -> bool:
        """Whether that rank has said so."""
        return self.store.check([f"ready {rank}"])

    def fail(self, rank: int, error: Exception) -> None:
        """Say why this rank cannot go on, before its connections break."""
        text = f"learner rank {rank} (pid {os.getpid()}) ended by an error: {type(error).__name__}: {error}"
        self.store.set(f"failed {rank}", text)

    def failure(self) -> str:
        """Why another rank cannot go on; empty if none has said so."""
        keys = [f"failed {rank}" for rank in range(1, self.config.learner.ranks)]
        return next((self.store.get(key).decode(errors="replace") for key in keys if self.store.check([key])), "")

    def end(self) -> None:
        """Say that the lease is over, before connections break."""
        with contextlib.suppress(RuntimeError):  # the store may be gone as well
            self.store.set("over", "")

    @property
    def is_over(self) -> bool:
        """Whether rank 0 has ended it."""
        return self.store.check(["over"])


@dataclass(frozen=True)
class Meeting:
    """A place that all ranks of a learner reach."""

    store: Store
    address: str = "127.0.0.1"
    """The address of this host at which other ranks connect to this one."""
    secret: bytes = b""
    """The key that all ranks have: who does not have it cannot name code for them. Empty where nobody else reaches the
    store."""

    # --- rank 0 ---

    def gather(self, world_size: int, within_s: float) -> str:
        """Wait until all ranks are there; returns who they are, for people. Raises RankLostError."""
        deadline_s = time.monotonic() + within_s
        while missing := [rank for rank in range(1, world_size) if self._here(rank) is None]:
            if time.monotonic() > deadline_s:
                raise RankLostError(f"learner rank {_listed(missing)} did not come within {within_s:g} s")
            time.sleep(_LOOK_S)
        return ", ".join(str(self._here(rank)) for rank in range(1, world_size))

    def begin(self, lease: Lease, ended: Callable[[], str]) -> list[Here]:
        """Let the other ranks begin a lease; returns them once all have their algorithms. `ended` says which have
        ended. Raises RankLostError."""
        told: dict[int, Here] = {}
        waiting = list(range(1, lease.config.learner.ranks))
        limit_s = lease.config.limits.prepare_s
        deadline_s = time.monotonic() + limit_s
        while waiting := [rank for rank in waiting if not lease.is_ready(rank)]:
            for rank in waiting:
                here = self._here(rank)
                if here is not None and told.get(rank) != here:
                    self._tell(here, _Beginning(lease.name, lease.config.model_dump_json()))
                    told[rank] = here
            if text := lease.failure() or ended():
                raise RankLostError(text)
            if time.monotonic() > deadline_s:
                raise RankLostError(
                    f"learner rank {_listed(waiting)} was not ready within {limit_s:g} s (limits.prepare_s)"
                )
            time.sleep(_LOOK_S)
        return [told[rank] for rank in sorted(told)]

    def dismiss(self, world_size: int) -> None:
        """Tell the other ranks that no lease will come any more; the store must stay until they have heard it."""
        self.store.set("leave", "")
        with contextlib.suppress(RuntimeError):  # one has not, in time
            self.store.wait([f"left {rank}" for rank in range(1, world_size)], _LEAVE)

    # --- the others ---

    def next_lease(self, rank: int) -> Lease | None:
        """Wait for the next lease, as long as there is a store; None: none will come any more.

        Raises RankLostError if rank 0 has another key."""
        here = Here(rank, socket.gethostname(), os.getpid(), uuid4().hex)
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

    def _here(self, rank: int) -> Here | None:
        key = f"here {rank}"
        return msgspec.json.decode(self.store.get(key), type=Here) if self.store.check([key]) else None

    def _tell(self, here: Here, beginning: _Beginning) -> None:
        body = msgspec.json.encode(beginning)
        self.store.set(f"begin {here.nonce}", self._seal(here, body) + body)  # type: ignore[arg-type]

    def _seal(self, here: Here, body: bytes) -> bytes:
        return hmac.digest(self.secret, here.nonce.encode() + body, hashlib.sha256)


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))
