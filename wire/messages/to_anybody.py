"""Answers that anybody may get: a refusal, or that a message was received."""

from __future__ import annotations

from typing import Literal

from remuda.wire.messages.parts import LongText, Message


class Rejected(Message, frozen=True):
    """No, and why. `unknown` to a worker means that it must register (again); every other code is final for it."""

    code: Literal["protocol", "superseded", "dismissed", "malformed", "unknown", "invalid", "exists", "closing", "busy"]
    reason: LongText


class Ack(Message, frozen=True):
    """Received; there is no (immediate) answer. Never itself acknowledged."""
