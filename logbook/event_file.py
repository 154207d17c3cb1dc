"""The bytes of a TensorBoard event file: framed records, each an Event message with scalars.

Remuda writes scalars only, which is five fields of one protobuf message; the usual writers import torch, which the
coordinator must not, and queue through a thread that on a full disk dies unseen and then blocks its callers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_STEP, _SUMMARY, _VALUE, _TAG = 2, 5, 1, 1
_HEADER_BYTES, _CRC_BYTES = 12, 4


class MalformedEventError(ValueError):
    """The bytes are no event."""


@dataclass(frozen=True)
class StoredEvent:
    """A record read back: its step, its scalars' tags, and its bytes as they were."""

    step: int
    tags: tuple[str, ...]
    frame: bytes


def version_event(wall_time_s: float) -> bytes:
    """Frame the event that must open a file."""
    return _frame(_wall_time(wall_time_s) + _field(3, b"brain.Event:2"))


def restart_event(wall_time_s: float) -> bytes:
    """Frame the event that tells a reader to forget all it has read of this folder: a session starts at step 0."""
    return _frame(_wall_time(wall_time_s) + _field(7, b"\x08\x01"))


def scalar_event(wall_time_s: float, step: int, scalars: Mapping[str, float]) -> bytes:
    """Frame one event with all these scalars, finite in float32, at `step` (not negative)."""
    values = b"".join(
        _field(_VALUE, _field(_TAG, tag.encode()) + struct.pack("<Bf", 2 << 3 | _FIXED32, value))
        for tag, value in scalars.items()
    )
    return _frame(_wall_time(wall_time_s) + bytes((_STEP << 3 | _VARINT,)) + _varint(step) + _field(_SUMMARY, values))


def read_events(data: bytes) -> Iterator[StoredEvent]:
    """Yield the events of a file up to its end or to the first record that is torn or damaged."""
    position = 0
    while position + _HEADER_BYTES <= len(data):
        header = data[position : position + 8]
        body = position + _HEADER_BYTES
        end = body + int.from_bytes(header, "little")
        if _mask(header) != data[position + 8 : body] or _mask(data[body:end]) != data[end : end + _CRC_BYTES]:
            return
        try:
            step, tags = _parse(data[body:end])
        except MalformedEventError:
            return
        yield StoredEvent(step, tags, data[position : end + _CRC_BYTES])
        position = end + _CRC_BYTES


def _wall_time(seconds: float) -> bytes:
    return struct.pack("<Bd", 1 << 3 | _FIXED64, seconds)


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | _BYTES,)) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _frame(event: bytes) -> bytes:
    header = struct.pack("<Q", len(event))
    return header + _mask(header) + event + _mask(event)


def _parse(event: bytes) -> tuple[int, tuple[str, ...]]:
    step, tags = 0, list[str]()
    for number, content in _fields(event):
        if number == _STEP and isinstance(content, int):
            step = content
        if number == _SUMMARY and isinstance(content, bytes):
            tags += [_tag(value) for _, value in _fields(content) if isinstance(value, bytes)]
    return step, tuple(tags)


def _tag(value: bytes) -> str:
    for number, content in _fields(value):
        if number == _TAG and isinstance(content, bytes):
            return content.decode(errors="replace")
    return ""


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _read_varint(message, position)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, position = _read_varint(message, position)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise MalformedEventError(f"wire type {kind}")
        if position + size > len(message):
            raise MalformedEventError("a field ends after its message")
        yield key >> 3, message[position : position + size]
        position += size


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedEventError("a number without end")


def _crc32c_table() -> tuple[int, ...]:
    table: list[int] = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC32C = _crc32c_table()


def _mask(data: bytes) -> bytes:
    """CRC-32C (Castagnoli), rotated and offset as record files have it, so that a checksum of checksums differs."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
