"""Answers to both workers and clients: a refusal, and an acknowledgement."""

from __future__ import annotations

from typing import Literal

from remuda.wire.messages.parts import LongText, Message


class Rejected(Message, frozen=True):
    """A refusal with its reason. `unknown` tells a worker to register (again); every other code is final for it."""

    code: Literal[
        "protocol",
        "forbidden",
        "superseded",
        "dismissed",
        "malformed",
        "unknown",
        "invalid",
        "exists",
        "closing",
        "busy",
    ]
    """forbidden: the key of the peer does not allow it, or is not known."""
    reason: LongText


class Ack(Message, frozen=True):
    """The message was received; there is no (immediate) answer. An Ack is never acknowledged."""
