"""What a message travels in: its number, what it answers, and how far its sender has been answered."""

from __future__ import annotations

from msgspec import Struct

from remuda.wire.messages import AnyMessage, Count


class Envelope(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One message on its way. The order of the fields is the layout on the wire and never changes."""

    id: Count
    """Counts up from 1 with every reliable message of this end; 0 for what is never sent again."""
    reply_to: Count
    """The id of the other end's message that this one answers and so acknowledges; 0 none."""
    floor: Count
    """The sender's own lowest id not yet acknowledged: no answer to an older one need be remembered."""
    message: AnyMessage
