"""Workers that hold leases, for tests that care for nothing but the lease."""

from __future__ import annotations

from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import Role


def holder(lease: int, role: Role = "collector", worker: str = "a", incarnation: int = 1) -> LeaseHolder:
    return LeaseHolder(lease, worker, incarnation, role, "here", 42)
