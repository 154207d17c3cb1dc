"""The bytes of a TensorBoard event file: framed records, each an Event message with scalars.

Remuda writes scalars only, which is five fields of one protobuf message; the usual writers import torch, which the
coordinator must not, and queue through a thread that on a full disk dies unseen and then blocks its callers.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_STEP, _SUMMARY, _VALUE, _TAG = 2, 5, 1, 1
_LOG_MESSAGE, _TEXT = 6, 2
_NO_FIELD = 15
_HEADER_BYTES, _CRC_BYTES = 12, 4
_LONGEST_LEAD_BYTES = 64
"""What may stand in a record before a note's text: its header, the time, a step, a level, lengths."""


class MalformedEventError(ValueError):
    """The bytes are no event."""


@dataclass(frozen=True)
class Frame:
    """A record as it lies in a file."""

    begin: int
    end: int
    intact: bool
    """Its checksum fits, or was not looked at."""
    step: int
    tag: str
    """Of its first scalar, else nothing."""
    note: str
    """The text of a `note_event`, else nothing."""


def version_event(wall_time_s: float) -> bytes:
    """Frame the event that must open a file."""
    return _frame(_wall_time(wall_time_s) + _field(3, b"brain.Event:2"))


def restart_event(wall_time_s: float) -> bytes:
    """Frame the event that tells a reader to forget all it has read of this folder: a session starts at step 0."""
    return _frame(_wall_time(wall_time_s) + _field(7, b"\x08\x01"))


def note_event(wall_time_s: float, text: str) -> bytes:
    """Frame an event that readers of curves pass over: a log message."""
    return _frame(_wall_time(wall_time_s) + _field(_LOG_MESSAGE, _field(_TEXT, text.encode())))


def scalar_event(wall_time_s: float, step: int, scalars: Mapping[str, float]) -> bytes:
    """Frame one event with all these scalars, finite in float32, at `step` (not negative)."""
    values = b"".join(
        _field(_VALUE, _field(_TAG, tag.encode()) + struct.pack("<Bf", 2 << 3 | _FIXED32, value))
        for tag, value in scalars.items()
    )
    return _frame(_wall_time(wall_time_s) + bytes((_STEP << 3 | _VARINT,)) + _varint(step) + _field(_SUMMARY, values))


@functools.lru_cache(maxsize=1024)
def blank_frame(frame_bytes: int) -> bytes:
    """Frame an event of this size that says nothing, to be written over another one."""
    filler = max(frame_bytes - _HEADER_BYTES - _CRC_BYTES - 5, 0)
    # A field that events do not have, its length in four bytes whatever it is.
    length = bytes((filler & 0x7F | 0x80, filler >> 7 & 0x7F | 0x80, filler >> 14 & 0x7F | 0x80, filler >> 21 & 0x7F))
    return _frame(bytes((_NO_FIELD << 3 | _BYTES,)) + length + bytes(filler))


def read_frames(data: bytes, begin: int = 0, *, checked: bool) -> Iterator[Frame]:
    """Yield the records from `begin` up to the end, or to the first that is torn off or has a damaged header.

    `checked`: whether checksums of what records hold are compared, which takes half a second per megabyte.
    """
    while begin + _HEADER_BYTES <= len(data):
        header = data[begin : begin + 8]
        body = begin + _HEADER_BYTES
        end = body + int.from_bytes(header, "little") + _CRC_BYTES
        if end > len(data) or _mask(header) != data[begin + 8 : body]:
            return
        event = data[body : end - _CRC_BYTES]
        intact = not checked or _mask(event) == data[end - _CRC_BYTES : end]
        try:
            step, tag, note = _parse(event) if intact else (0, "", "")
        except MalformedEventError:
            intact, step, tag, note = False, 0, "", ""
        yield Frame(begin, end, intact, step, tag, note)
        begin = end


def frame_around(data: bytes, position: int) -> Frame | None:
    """Find the intact record that holds this position near its beginning (as text in a note_event is)."""
    for begin in range(position - _HEADER_BYTES, max(position - _LONGEST_LEAD_BYTES, 0) - 1, -1):
        header = data[begin : begin + 8]
        if begin >= 0 and header[4:] == bytes(4) and _mask(header) == data[begin + 8 : begin + _HEADER_BYTES]:
            frame = next(read_frames(data, begin, checked=True), None)
            return frame if frame is not None and frame.intact else None
    return None


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


def _parse(event: bytes) -> tuple[int, str, str]:
    step, tag, note = 0, "", ""
    for number, content in _fields(event):
        if number == _STEP and isinstance(content, int):
            step = content
        if number == _SUMMARY and isinstance(content, bytes):
            _, value = next(_fields(content), (0, b""))
            tag = _text(value, _TAG) if isinstance(value, bytes) else ""
        if number == _LOG_MESSAGE and isinstance(content, bytes):
            note = _text(content, _TEXT)
    return step, tag, note


def _text(message: bytes, wanted: int) -> str:
    for number, content in _fields(message):
        if number == wanted and isinstance(content, bytes):
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
