"""28. Announcements of chunks that lie about themselves: refused with the place, or counted as what they say."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.tests.buffer.chunks import WORKER, meta_of
from remuda.tests.coordinator.test_lies import Besieged
from remuda.tests.security.sizes import EXAMPLES
from remuda.wire.channel import Channel
from remuda.wire.codec import CodecError, Envelope, decode, encode
from remuda.wire.messages import ChunkReady

HUGE = (2**53, 2**53 + 1, 2**63, 2**64 - 1, -1, -(2**63))
WRONG: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(HUGE),
    st.sampled_from((float("nan"), float("inf"), -float("inf"), 1e308, -1.0)),
    st.sampled_from(("", "x", "../x", "/etc/passwd", "a\nb", "\x1b[2J", "x" * 200_000, "é" * 999, WORKER)),
    st.sampled_from((None, True, b"", b"\0" * 99, [], {}, [[]], {"a": [1]})),
    st.lists(st.floats(), max_size=3),
    st.lists(st.integers(-1, 2**53), max_size=3),
)
META = msgspec.structs.replace(meta_of(0, 5), episode_returns=[1.0], episode_lengths=[5], episode_info={"x": [2.0]})


def fields_of(value: Any, place: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every field of a chunk's description, those inside of others included."""
    if not isinstance(value, dict):
        return [place]
    return [place] * bool(place) + [found for key, each in value.items() for found in fields_of(each, (*place, key))]


PLACES = fields_of(msgspec.to_builtins(META))


def announced(changes: dict[tuple[str, ...], Any]) -> bytes:
    """The header of an announcement with other values in these places."""
    header = msgspec.msgpack.decode(encode(Envelope(1, 0, 1, ChunkReady(1, META)))[1])
    for place, value in changes.items():
        inside = header[3]["meta"]
        for key in place[:-1]:
            inside = inside.get(key, {}) if isinstance(inside, dict) else {}
        if isinstance(inside, dict):
            inside[place[-1]] = copy.deepcopy(value)  # the same value in two places could hold itself
    return msgspec.msgpack.encode(header)


OPENING = bytes(encode(Envelope(1, 0, 1, ChunkReady(1, META)))[0])


@settings(max_examples=max(EXAMPLES // 2, 150), deadline=None, suppress_health_check=[*HealthCheck])
@given(st.dictionaries(st.sampled_from(PLACES), WRONG, min_size=1, max_size=3))
def test_a_wrong_value_is_refused_with_its_place(changes: dict[tuple[str, ...], Any]) -> None:
    why = "$[3].meta"
    try:
        decode([OPENING, announced(changes)])
    except CodecError as error:
        why = str(error)
    assert "$[3].meta" in why or "episodes" in why
    assert len(why) < 2_000


@pytest.fixture(scope="module")
def besieged() -> Besieged:
    return Besieged(1)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[*HealthCheck])
@given(
    changes=st.dictionaries(st.sampled_from(PLACES), WRONG, max_size=3),
    sequence=st.sampled_from((0, 1, 2, 7, 10**6, 2**53)),
    own=st.booleans(),
)
def test_what_is_well_formed_is_counted_once_or_not_at_all(
    besieged: Besieged, changes: dict[tuple[str, ...], Any], sequence: int, own: bool
) -> None:
    """Also with gaps in its numbers, and under a lease that is somebody else's."""
    world = besieged
    liar = world.liars[0]
    if not any(each.uuid == liar.uuid for each in world.coordinator.registry):
        liar = world.liars[0] = world.restart(liar)
        world.step()
    ids: dict[tuple[str, ...], Any] = {
        ("chunk", "worker"): liar.uuid,
        ("chunk", "incarnation"): liar.incarnation,
        ("chunk", "sequence"): sequence,
    }
    before = world.experiment().env_step
    try:
        envelope = decode([OPENING, announced({**(ids if own else {}), **changes})])
    except CodecError:
        return
    message = envelope.message
    assert isinstance(message, ChunkReady)
    message = msgspec.structs.replace(message, lease=liar.lease if own else 1)
    for _ in range(2):  # the second time it changes nothing
        world.hear(liar.peer, Channel().post(message, world.now_s))
        after = world.experiment()
        assert after.state == "running"
        assert after.env_step in (before, before + message.meta.env_steps)
    world.step()
