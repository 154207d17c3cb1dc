"""The envelope of a message: its number, the message it answers, and how far its sender has been acknowledged."""

from __future__ import annotations

from msgspec import Struct

from remuda.wire.messages import AnyMessage, Count


class Envelope(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One message with its numbers. The order of the fields is the layout on the wire and never changes."""

    id: Count
    """Counts up from 1 with every reliable message of this end; 0 for messages that are never sent again."""
    reply_to: Count
    """The id of the other end's message that this one answers and acknowledges; 0: none."""
    floor: Count
    """The sender's lowest id that is not acknowledged yet: answers to older messages need not be kept."""
    message: AnyMessage
