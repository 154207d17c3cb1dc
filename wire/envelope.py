"""What a message travels in: its number, what it answers, and how far its sender has been answered."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from remuda.wire.messages import AnyMessage

MAX_NUMBER = 2**53
Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]


class Envelope(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One message on its way. The order of the fields is the layout on the wire and stays for ever."""

    id: Number
    """Counts up from 1 with every reliable message of this end; 0 for what is never sent again."""
    reply_to: Number
    """The id of the other end's message that this one answers and so acknowledges; 0 none."""
    floor: Number
    """The sender's own lowest id not yet acknowledged: no answer to an older one need be remembered."""
    message: AnyMessage
