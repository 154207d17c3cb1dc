"""The allowed messages of every right."""

from __future__ import annotations

from typing import get_args

from remuda.wire.keys.authorized import Identity, Right
from remuda.wire.messages import (
    Ack,
    AnyMessage,
    BillRequest,
    ClientMessage,
    LogRequest,
    QuotaRequest,
    Rejected,
    StatusRequest,
    WorkerMessage,
)

MAY_SAY: dict[Right, frozenset[type[AnyMessage]]] = {
    "viewer": frozenset({StatusRequest, LogRequest, BillRequest, QuotaRequest, Ack}),
    "operator": frozenset({*get_args(ClientMessage), Ack}),
    "worker": frozenset({*get_args(WorkerMessage), Ack}),
}
"""Message types by right; all other messages are refused."""


def forbidden(who: Identity, message: AnyMessage) -> Rejected:
    """Return the answer to a message that the sender's right does not allow."""
    kind = type(message)
    right = next((right for right, kinds in MAY_SAY.items() if kind in kinds), None)
    needed = "nobody may send it to a coordinator" if right is None else f"it needs a key with the right {right}"
    return Rejected(
        "forbidden", f"the key {who.name} has the right {who.right}, which does not allow {kind.__name__}: {needed}"
    )
