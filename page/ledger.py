"""How the chunks of a run fared: counted, repeated, refused, and lost with their collectors."""

from __future__ import annotations

from msgspec import Struct

from remuda.logbook.series import Ledger
from remuda.wire.messages import LedgerCounts

MOST_LOST = 2
"""Chunks that a collector may have which it has not announced: one that it fills, and one on its way."""


class LedgerView(Struct, frozen=True, kw_only=True):
    """The counts of one run. See LedgerCounts."""

    accepted_chunks: int
    accepted_env_steps: int
    repeated_chunks: int
    refused_chunks: int
    refused_env_steps: int
    lost_collectors: int
    lost_chunks_most: int
    """At most so many were lost: those that were refused, and what collectors had that ended without handing it in."""


def ledger_view(counts: Ledger | LedgerCounts, env_step: int) -> LedgerView:
    """The view of the counts that belong to this number of environment steps."""
    return LedgerView(
        accepted_chunks=counts.accepted,
        accepted_env_steps=env_step,
        repeated_chunks=counts.repeated,
        refused_chunks=counts.refused,
        refused_env_steps=counts.refused_env_steps,
        lost_collectors=counts.lost_collectors,
        lost_chunks_most=counts.refused + MOST_LOST * counts.lost_collectors,
    )
