"""Frames and envelopes: everything that may be sent comes back equal; everything else is a CodecError."""

from __future__ import annotations

import math
import struct
import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from msgspec import structs

from remuda.tests.wire.builders import MESSAGE_TYPES, envelopes
from remuda.wire.codec import (
    OF_STRANGERS,
    OF_WORKERS,
    CodecError,
    Envelope,
    Frame,
    Limits,
    ProtocolMismatchError,
    check,
    decode,
    encode,
)
from remuda.wire.messages import (
    MOST_FILM_BYTES,
    PROTOCOL_VERSION,
    Ack,
    AnyMessage,
    Assign,
    Batches,
    BatchRequest,
    Beat,
    ChunkAccepted,
    ChunkId,
    ChunkMeta,
    ChunkReady,
    CollectorReport,
    Counters,
    EvaluationDone,
    EvaluationFilmed,
    Film,
    Histogram,
    IndexedChunk,
    Leave,
    MetricMean,
    PolicyRef,
    Rejected,
)

UUID = "01234567-89ab-cdef-0123-456789abcdef"
OPENING = b"R" + bytes([PROTOCOL_VERSION])


def batches(rows: Any, weights: Any) -> Batches:
    """Deliberately untyped: some tests put in what does not belong."""
    return Batches(1, 2, rows, weights, [], 0, Counters())


def request(rows: int = 3) -> BatchRequest:
    return BatchRequest(1, 2, 2, 16, 64, 7, 0, np.arange(rows), np.linspace(0, 1, rows, dtype=np.float32))


def wrap(message: AnyMessage) -> Envelope:
    return Envelope(5, 0, 4, message)


def as_bytes(frames: list[Frame]) -> list[bytes]:
    return [bytes(frame) for frame in frames]


def assert_equal(one: AnyMessage, other: AnyMessage) -> None:
    assert type(one) is type(other)
    for name in one.__struct_fields__:
        mine: Any = getattr(one, name)
        theirs: Any = getattr(other, name)
        if hasattr(mine, "tobytes"):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            assert mine.tobytes() == theirs.tobytes()
        else:
            assert mine == theirs


# --- what may be sent comes back -------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", MESSAGE_TYPES, ids=lambda kind: kind.__name__)
def test_every_message_comes_back_equal(kind: type[AnyMessage]) -> None:
    @settings(max_examples=8, deadline=None)
    @given(envelopes(kind))
    def round_trip(envelope: Envelope) -> None:
        check(envelope)
        back = decode(as_bytes(encode(envelope)))
        assert (back.id, back.reply_to, back.floor) == (envelope.id, envelope.reply_to, envelope.floor)
        assert_equal(envelope.message, back.message)

    round_trip()


def test_nan_and_infinity_travel() -> None:
    report = CollectorReport(1, 2, 0, 64, 0.5, math.nan, -math.inf)
    back = decode(encode(wrap(report))).message
    assert isinstance(back, CollectorReport)
    assert math.isnan(back.reward_mean)
    assert back.reward_std == -math.inf


def test_arrays_are_sent_without_a_copy_and_received_read_only() -> None:
    message = request(1_000)
    frames = encode(wrap(message))
    assert len(frames) == 4
    assert np.shares_memory(np.frombuffer(frames[2], np.int64), message.priority_rows)
    received = [memoryview(bytearray(frame)) for frame in frames]
    back = decode(received).message
    assert isinstance(back, BatchRequest)
    assert np.shares_memory(back.priority_rows, np.frombuffer(received[2], np.int64))
    with pytest.raises(ValueError, match="read-only"):
        back.priority_rows[0] = 1


def test_threads_do_not_mix_up_their_arrays() -> None:
    failures: list[object] = []

    def hammer(rows: int) -> None:
        for _ in range(300):
            back = decode(encode(wrap(request(rows)))).message
            if not isinstance(back, BatchRequest) or back.priority_rows.shape != (rows,):
                failures.append(back)

    threads = [threading.Thread(target=hammer, args=(rows,)) for rows in (1, 10, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# --- the layout ------------------------------------------------------------------------------------------------------
def test_golden_bytes() -> None:
    """The layout between processes. If this fails, PROTOCOL_VERSION must rise."""
    assert as_bytes(
        encode(Envelope(7, 0, 6, ChunkAccepted(ChunkId(UUID, 2, 9), 128, PolicyRef(1, 3, 40), {"eps": 0.5})))
    ) == [
        b"R\x14",
        b"\x94\x07\x00\x06\x88\xa4type\xadChunkAccepted"
        b"\xa5chunk\x83\xa6worker\xd9$" + UUID.encode() + b"\xabincarnation\x02\xa8sequence\x09"
        b"\xb0credit_env_steps\xcc\x80\xa6policy\x83\xa5epoch\x01\xa7version\x03\xaatrain_iter\x28"
        b"\xabexploration\x81\xa3eps\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00\xa8rejected\xc0\xa6others\x90"
        b"\xa4task\x82\xa6number\x00\xabkwargs_json\xa0",
    ]


def test_golden_bytes_of_an_array() -> None:
    strided = np.array([[1, 9, 2, 9]])[:, ::2]
    frames = as_bytes(encode(wrap(batches(strided, np.array([[0.5, 1.0]], np.float32)))))
    assert b"\xa4rows\x93\x00\xa3<i8\x92\x01\x02\xa7weights\x93\x01\xa3<f4\x92\x01\x02" in frames[1]
    assert frames[2] == struct.pack("<2q", 1, 2)
    assert frames[3] == struct.pack("<2f", 0.5, 1.0)


def test_golden_bytes_of_rejected_which_every_version_must_understand() -> None:
    assert as_bytes(encode(Envelope(0, 1, 1, Rejected("protocol", "no")), protocol=9)) == [
        b"R\x09",
        b"\x94\x00\x01\x01\x83\xa4type\xa8Rejected\xa4code\xa8protocol\xa6reason\xa2no",
    ]


def test_another_version_is_told_apart_even_if_its_messages_are_unknown() -> None:
    for version in (0, PROTOCOL_VERSION + 1, 255):
        with pytest.raises(ProtocolMismatchError, match=f"speaks protocol {version}, this process") as caught:
            decode([b"R" + bytes([version]), b"what is this"])
        assert caught.value.theirs == version


# --- what is refused before it is sent -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (np.array([object()]), r"dtype \|O with 1 dimensions cannot be sent"),
        (np.arange(3).astype(">i8"), "dtype >i8"),
        (np.zeros((1,) * 9, np.int64), "9 dimensions"),
        ({1, 2}.__iter__(), "set_iterator cannot be part of a message"),
    ],
)
def test_what_no_message_carries_is_refused(rows: object, reason: str) -> None:
    with pytest.raises(CodecError, match="Batches cannot be sent: .*" + reason):
        encode(wrap(batches(rows, np.ones(1, np.float32))))


def test_a_replay_of_millions_of_rows_can_be_told_to_a_learner() -> None:
    """2.5 million, in chunks of the usual size: else its coordinator could not replace a learner."""
    file = f"{UUID}_000001_000100000.safetensors"
    policy = PolicyRef(1, 20_000, 200_000)
    meta = ChunkMeta(ChunkId(UUID, 1, 100_000), file, 64, 64, 500_000, 2**32, policy, 0.125, [20.0] * 3, [20] * 3)
    chunks = [IndexedChunk(64 * number, meta) for number in range(40_000)]
    lease = Assign(1, UUID, "x", "/runs/x", "{}", 0, 0, "p", 2, replay=chunks)
    told = decode(encode(wrap(lease))).message
    assert isinstance(told, Assign)
    assert len(told.replay) == 40_000


def test_too_large_is_refused_on_both_sides() -> None:
    long, wide = wrap(Leave("x" * 900)), wrap(request(1_000))
    long_frames, wide_frames = encode(long), encode(wide)
    limits = Limits(header_bytes=500, array_bytes=5_000, arrays=2)
    for use in (lambda: encode(long, limits=limits), lambda: decode(long_frames, limits)):
        with pytest.raises(CodecError, match=r"the header has 9\d\d bytes; the most is 500"):
            use()
    for use in (lambda: encode(wide, limits=limits), lambda: decode(wide_frames, limits)):
        with pytest.raises(CodecError, match="array 0 has 8000 bytes; the most is 5000"):
            use()
    exact = Limits(header_bytes=len(wide_frames[1]), array_bytes=8_000, arrays=2)
    assert decode(encode(wide, limits=exact), exact).id == wide.id
    check(wide, OF_WORKERS)
    with pytest.raises(CodecError, match="2 arrays in one message; the most is 0"):
        check(wide, OF_STRANGERS)


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (Leave("x" * 1_001), r"\$\[3\].reason"),
        (Beat(2**53 + 1, "idle"), r"\$\[3\].progress"),
        (batches(np.zeros(2), np.zeros(2, np.float32)), r"dtype <f8 where <i8 belongs - at `\$\[3\].rows"),
    ],
)
def test_check_finds_what_the_other_end_would_refuse(message: AnyMessage, path: str) -> None:
    with pytest.raises(CodecError, match=path):
        check(wrap(message))


# --- what is refused on receipt --------------------------------------------------------------------------------------
def header(rows: object, weights: object = (1, "<f4", (1,))) -> bytes:
    message = {"lease": 1, "request": 2, "rows": rows, "weights": weights}
    rest: dict[str, object] = {"new_chunks": [], "first_live_row": 0, "counters": {}}
    return msgspec.msgpack.encode([5, 0, 4, {"type": "Batches", **message, **rest}])


EIGHT = bytes(8)
FOUR = bytes(4)


@pytest.mark.parametrize(
    ("rows", "arrays", "reason"),
    [
        (
            (0, "<i8", (2,)),
            [EIGHT, FOUR],
            r"shape \(2,\) of <i8 does not fit the 8 bytes of array frame 0 - at `\$\[3\].rows",
        ),
        ((0, "<i8", (-1,)), [EIGHT, FOUR], r"Expected `int` >= 0 - at `\$\[2\]\[0\]` - at `\$\[3\].rows`"),
        ((0, "<i8", (2**40, 0)), [b"", FOUR], "Expected `int` <= 268435456"),
        ((0, "<f8", (1,)), [EIGHT, FOUR], "dtype <f8 where <i8 belongs"),
        ((0, "V" * 1_000, (1,)), [EIGHT, FOUR], "array of dtype VVVVVVVVVVVVVVVV where"),
        ((2, "<i8", (1,)), [EIGHT, FOUR], "array frame 2 is missing or used twice"),
        ((1, "<i8", (1,)), [EIGHT, EIGHT], "array frame 1 is missing or used twice"),
        ((0, "<i8", (1,)), [EIGHT, FOUR, FOUR, FOUR], r"no field refers to array frames \[2, 3\]"),
        ((0, "<i8", (1,)), [EIGHT, FOUR] + [b""] * 20, "22 arrays in one message; the most is 16"),
        (None, [EIGHT, FOUR], r"not a reference to an array: Expected `array`, got `null` - at `\$\[3\].rows`"),
    ],
)
def test_lying_array_references_are_refused(rows: object, arrays: list[bytes], reason: str) -> None:
    with pytest.raises(CodecError, match=reason):
        decode([OPENING, header(rows), *arrays])


GOOD = as_bytes(encode(wrap(Ack())))[1]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "at least 2 frames, not 0"),
        ([b"GET / HTTP/1.1\r\n", GOOD], "frame 0 is b'GET'"),
        ([OPENING + b"\x00", GOOD], "does not speak"),
        ([OPENING, GOOD + b"\x00"], "malformed message: .*trailing"),
        ([OPENING, b"\xdd\xff\xff\xff\xff"], "malformed message"),
        ([OPENING, b"\x91" * 100_000], "malformed message"),
        ([OPENING, b"\x94\x00\x00\x00" + b"\x81\xa1a" * 100_000], "malformed message"),
        ([OPENING, msgspec.msgpack.encode([1, 0, 1, {"type": "Explode"}])], "Invalid value 'Explode' - at `"),
        ([OPENING, msgspec.msgpack.encode([1, 0, 1, {"type": "Ack", "x": 1}])], "unknown field `x`"),
        ([OPENING, msgspec.msgpack.encode([-1, 0, 1, {"type": "Ack"}])], r">= 0 - at `\$\[0\]"),
    ],
)
def test_garbage_is_refused(frames: list[bytes], reason: str) -> None:
    with pytest.raises(CodecError, match=reason):
        decode(frames)


def tampered(message: AnyMessage, change: Any) -> list[Frame]:
    """The message's frames, its fields gone through `change`, which no honest peer does."""
    frames = encode(wrap(message))
    header = msgspec.msgpack.decode(frames[1])
    change(header[-1], frames)
    return [frames[0], msgspec.msgpack.encode(header), *frames[2:]]


def test_a_chunk_has_a_length_for_each_return() -> None:
    meta = ChunkMeta(ChunkId(UUID, 1, 0), "x.chunk", 8, 8, 99, 0, PolicyRef(), 0.1, [1.0, 2.0], [3, 5])

    def forget_a_length(fields: Any, frames: list[Frame]) -> None:
        fields["meta"]["episode_lengths"].pop()

    with pytest.raises(CodecError, match="2 returns of 1 episodes"):
        decode(tampered(ChunkReady(1, meta), forget_a_length))
    with pytest.raises(ValueError, match="1 returns of 2 episodes"):
        structs.replace(meta, episode_returns=[1.0])


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ({"speed": {"mean": float("nan"), "steps": 1}}, "mean"),
        ({"speed": {"mean": 1e301, "steps": 1}}, "mean"),
        ({"speed": {"mean": 1.0, "steps": 0}}, "steps"),
        ({"[/red]": {"mean": 1.0, "steps": 1}}, "matching regex"),
        ({f"x{number}": {"mean": 1.0, "steps": 1} for number in range(51)}, "length <= 50"),
    ],
)
def test_means_over_collected_steps_are_few_finite_numbers_under_short_names(metrics: Any, problem: str) -> None:
    meta = ChunkMeta(ChunkId(UUID, 1, 0), "x.chunk", 8, 8, 99, 0, PolicyRef(), 0.1, metrics={"a": MetricMean(1.0, 8)})

    def replace_them(fields: Any, frames: list[Frame]) -> None:
        assert fields["meta"]["metrics"] == {"a": {"mean": 1.0, "steps": 8}}
        fields["meta"]["metrics"] = metrics

    with pytest.raises(CodecError, match=problem):
        decode(tampered(ChunkReady(1, meta), replace_them))

    def report_them(fields: Any, frames: list[Frame]) -> None:
        fields["metrics"] = {name: metric["mean"] for name, metric in metrics.items()}

    if problem != "steps":
        with pytest.raises(CodecError):
            decode(tampered(CollectorReport(1, 0, 0, 8, 0.1, 0.0, 0.0), report_them))


def test_a_histogram_has_a_count_for_each_bucket_and_a_film_is_not_too_large() -> None:
    def forget_a_count(fields: Any, frames: list[Frame]) -> None:
        fields["actions"]["action"]["counts"].pop()

    actions = {"action": Histogram(0.0, [1.0, 2.0], [3, 5])}
    with pytest.raises(CodecError, match="2 right edges of 1 buckets"):
        decode(tampered(EvaluationDone(1, 1, 0, [1.0], [3], 0.5, actions=actions), forget_a_count))
    largest = wrap(EvaluationFilmed(1, 20, 200, Film(bytes(MOST_FILM_BYTES), 10, 10)))
    assert decode(encode(largest)) == largest
    with pytest.raises(CodecError, match="film"):
        decode(encode(wrap(EvaluationFilmed(1, 20, 200, Film(bytes(MOST_FILM_BYTES + 1), 10, 10)))))
