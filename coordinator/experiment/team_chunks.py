"""A chunk of a run with several policies counts for all of them or for none."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.coordinator.experiment.claims import Speaker
from remuda.coordinator.experiment.experiment import Experiment
from remuda.wire.messages import ChunkReady


def shares(members: Sequence[Experiment], message: ChunkReady) -> list[tuple[Experiment, ChunkReady]]:
    """What each policy gets of a chunk. The first one's says what the others get, for the account of the collector."""
    others = [ChunkReady(message.lease, meta) for meta in message.others]
    return list(zip(members, [message, *others], strict=True))


def disbelief(members: Sequence[Experiment], message: ChunkReady, speaker: Speaker) -> str | None:
    """Why a chunk cannot be what it says; None if all of it is believed."""
    metas = [message.meta, *message.others]
    if len(metas) != len(members):
        return f"its chunk {message.meta.file} is of {len(metas)} policies, and there are {len(members)}"
    whole = (message.meta.chunk, message.meta.env_steps)
    if any((meta.chunk, meta.env_steps) != whole for meta in metas):
        return f"its chunk {message.meta.file} is not the same for all policies"
    each = (member.disbelief(own, speaker) for member, own in shares(members, message))
    return next((why for why in each if why is not None), None)


def refusal_of_late(members: Sequence[Experiment], message: ChunkReady, speaker: Speaker) -> str | None:
    """Why a chunk is refused that comes after the lease of its collector; None if it is not late, or counts."""
    lead = members[0].parts
    if lead.books.leases.find(message.lease) is not None:
        return None
    if (why := disbelief(members, message, speaker)) is not None:
        return why
    if not lead.claims.is_late_word_of(speaker, message.lease):
        return None  # each refuses it
    each = (member.parts.claims.of_chunk(own, speaker) for member, own in shares(members, message))
    return next((why for why in each if why is not None), None)


def too_large(members: Sequence[Experiment], message: ChunkReady) -> str | None:
    """Why the buffer of a policy can never hold its part; a config that asks for that is hopeless."""
    each = (member.replay.misfit(own.meta) for member, own in shares(members, message))
    return next((why for why in each if why is not None), None)
