"""Steps of a collector as they are kept for the whole run, so that every episode can be played again.

Kept are actions and rewards, ends, and 32 bits of each observation: what a deterministic environment repeats from its
first seed. The seed follows from the run's seed, and the index and generation of the collector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from remuda.collector.trace import Bools
from remuda.environments.lanes import Lanes
from remuda.environments.spaces import Array, column_layout
from remuda.storage.record_file import AppendedFile, packed, read_records

FORMAT = 1
SUFFIX = ".steps.msgpack"
REAL, OVER, TERMINATED, RESET = 1, 2, 4, 8
"""Bits of `Steps.flags`: a counted step, not a reset; the end of the lane's episode; by termination; a reset of all
copies, with their seeds at the begin of a part."""

FLUSH_S = 0.25
"""Seconds after which steps are written; a killed collector loses at most these."""
_MOST_RAW_BYTES = 256 << 10
"""Of a block. Blocks are far smaller than the longest record."""
_MOST_CHUNKS = 2_048
"""In a block."""
_MOST_STACKED = 16
"""A first axis of images up to this length counts frames."""
_KNOWN = {
    name: np.dtype(name) for name in ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<i8", "<u8", "<f4", "<f8", "|b1")
}
_SMALLER = {
    np.dtype(np.float64): (np.dtype("|i1"), np.dtype("<f4")),
    np.dtype(np.int64): (np.dtype("|i1"), np.dtype("<i2"), np.dtype("<i4")),
    np.dtype(np.int32): (np.dtype("|i1"), np.dtype("<i2")),
}
"""Dtypes to try, in this order."""


@dataclass(frozen=True)
class Steps:
    """Consecutive slots of time of a policy; all arrays are [slots, lanes, …]."""

    actions: Array
    reward: NDArray[np.float64]
    """Unclipped; 0 without a step."""
    seen: NDArray[np.uint32]
    """Of the observation after the step, see `fingerprints`."""
    flags: NDArray[np.uint8]

    @classmethod
    def joined(cls, parts: Sequence[Steps]) -> Steps:
        """Return the parts, one after another."""
        names = ("actions", "reward", "seen", "flags")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def part(self, begin: int, end: int) -> Steps:
        """Return the slots from `begin` up to `end`."""
        return Steps(self.actions[begin:end], self.reward[begin:end], self.seen[begin:end], self.flags[begin:end])


class Slots(NamedTuple):
    """The slots of a chunk, of a policy, as collected: arrays [slots, lanes, …] of their own. Steps are made of many
    chunks at once, since numpy's calls take longer than the steps of a chunk."""

    actions: Array
    reward: NDArray[np.float64]
    observations: Array
    """After the steps, see `newest_images`."""
    real: Bools
    over: Bools
    terminated: Bools
    by_reset: Bools
    """[slots]: resets of all copies."""

    def part(self, begin: int, end: int) -> Slots:
        """Return the slots from `begin` up to `end`."""
        arrays: list[Any] = [array[begin:end] for array in self]
        return Slots(*arrays)

    def steps(self) -> Steps:
        """Return what is kept."""
        flags = flags_of(self.real, self.over, self.terminated)
        flags[self.by_reset] = RESET
        return Steps(self.actions, self.reward, fingerprints(self.observations), flags)


def newest_images(observations: Array) -> Array:
    """Return a view of observations [slots, lanes, …]: of a stack of images only the newest, since each older image was
    the newest before."""
    stacked = observations.ndim > 4 and observations.dtype == np.uint8 and observations.shape[2] <= _MOST_STACKED
    newest: Array = observations[:, :, -1] if stacked else observations
    return newest


def fingerprints(observations: Array) -> NDArray[np.uint32]:
    """Return 32 bits of each observation of [slots, lanes, …]."""
    slots, lanes = observations.shape[:2]
    rows = np.ascontiguousarray(observations).reshape(slots * lanes, -1).view(np.uint8)
    size = 8 if rows.shape[1] % 8 == 0 else 4 if rows.shape[1] % 4 == 0 else 1
    words = rows.view({8: np.uint64, 4: np.uint32, 1: np.uint8}[size])
    total = np.einsum("rw,w->r", words, _multipliers(words.shape[1]), dtype=np.uint64)
    mixed: NDArray[np.uint32] = (total ^ (total >> np.uint64(32))).astype(np.uint32)
    return mixed.reshape(slots, lanes)


_known_multipliers: dict[int, NDArray[np.uint64]] = {}


def _multipliers(count: int) -> NDArray[np.uint64]:
    """Return odd numbers: no change of a single word leaves the sum of products unchanged."""
    if count not in _known_multipliers:
        drawn = np.random.default_rng(count).integers(0, 2**63, count, np.uint64)
        _known_multipliers[count] = drawn * np.uint64(2) + np.uint64(1)
    return _known_multipliers[count]


def flags_of(real: Bools, over: Bools, terminated: Bools) -> NDArray[np.uint8]:
    """Return the flags of slots that are no reset of all copies."""
    flags: NDArray[np.uint8] = real.view(np.uint8) * np.uint8(REAL)
    flags |= over.view(np.uint8) * np.uint8(OVER)
    flags |= (over & terminated).view(np.uint8) * np.uint8(TERMINATED)
    return flags


class StepsWriter:
    """Appends the steps of a collector to a file of its own, in blocks. After an error of the disk nothing more is
    kept: a gap would make all later steps useless."""

    def __init__(
        self,
        folder: Path,
        *,
        index: int,
        generation: int,
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`warn` receives a text for the log."""
        self._path = folder / f"collector_{index}_{generation}{SUFFIX}"
        self._about = {"kind": "begin", "format": FORMAT, "index": index, "generation": generation}
        self._warn, self._clock, self._flushed_s = warn, clock, clock()
        self._file: AppendedFile | None = None
        self._failed = False
        self._header: bytes | None = None
        self._chunks: list[tuple[int, int, int]] = []
        self._waiting: list[Sequence[Slots]] = []
        self._bytes = 0

    def begin(self, lanes: Mapping[str, Lanes], seen: Sequence[str], *, task: int, kwargs_json: str) -> None:
        """Begin a part: new copies at a task. `lanes` are by policy, with the dtypes of their observations `seen`."""
        self.flush()
        policies = [
            {
                "name": name,
                "agents": list(one.group.agents),
                "lanes": len(one),
                "seen": dtype,
                "action": [list(shape), column.str],
            }
            for (name, one), dtype in zip(lanes.items(), seen, strict=True)
            for shape, column in [column_layout(one.group.action, what="action", keeps_float64=True)]
        ]
        self._header = packed({**self._about, "task": task, "kwargs": kwargs_json, "policies": policies})

    def add(self, worker: str, incarnation: int, sequence: int, version: int, slots: Sequence[Slots]) -> None:
        """Keep a chunk: the slots of each policy, and the version of the first. Written by the next `flush`, or once
        enough waits or FLUSH_S are over."""
        if self._failed:
            return
        self._about["worker"], self._about["incarnation"] = worker, incarnation
        count, size = len(slots[0].real), sum(array.nbytes for one in slots for array in one)
        pieces = min(-(-size // _MOST_RAW_BYTES), count)
        for piece in range(pieces):
            begin, end = piece * count // pieces, (piece + 1) * count // pieces
            part = slots if pieces == 1 else [one.part(begin, end) for one in slots]
            self._chunks.append((sequence, end - begin, version))
            self._waiting.append(part)
            self._bytes += size // pieces
            if self._bytes >= _MOST_RAW_BYTES or len(self._chunks) >= _MOST_CHUNKS:
                self.flush()
        if self._clock() - self._flushed_s > FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if not self._chunks or self._failed:
            return
        self._flushed_s = self._clock()
        columns: list[list[str | bytes]] = []
        for parts in zip(*self._waiting, strict=True):
            kept = Slots(*map(np.concatenate, zip(*parts, strict=True))).steps()
            columns.append([*_stored(kept.actions), *_stored(kept.reward), kept.seen.tobytes(), kept.flags.tobytes()])
        owner = {name: self._about[name] for name in ("worker", "incarnation")}
        block = packed({"kind": "steps", **owner, "chunks": self._chunks, "columns": columns})
        header, self._header = self._header or b"", None
        self._chunks, self._waiting, self._bytes = [], [], 0
        try:
            self._opened().append(header + block)
        except OSError as error:
            self._failed = True
            self._warn(f"{self._path} cannot be written ({error}): later episodes cannot be played again")

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()

    def _opened(self) -> AppendedFile:
        if self._file is None:
            self._path.parent.mkdir(exist_ok=True)
            self._path.unlink(missing_ok=True)  # of a life that no checkpoint knows
            self._file = AppendedFile(self._path)
        return self._file


def _stored(values: Array) -> tuple[str, bytes]:
    """Return the name of the smallest dtype that keeps every bit, and the bytes. Compressing a chunk takes longer than
    writing it."""
    with np.errstate(all="ignore"):  # a number that does not fit is another number afterwards
        for dtype in _SMALLER.get(values.dtype, ()):
            short = values.astype(dtype)
            if short.astype(values.dtype).tobytes() == values.tobytes():
                return dtype.str, short.tobytes()
    return values.dtype.str, values.tobytes()


# --- reading --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PolicyPart:
    """The lanes of a policy in a part."""

    name: str
    agents: tuple[str, ...]
    seen_dtype: np.dtype[Any]
    """Of the observations whose fingerprints are kept."""
    steps: Steps


@dataclass(frozen=True)
class Part:
    """All steps of a collector in the same copies, from their first reset."""

    index: int
    generation: int
    task: int
    kwargs_json: str
    """Arguments of the task, see remuda.config.current.on_task."""
    policies: Sequence[PolicyPart]
    chunks: Sequence[tuple[str, int, int, int, int]]
    """Worker, incarnation, number, slots, and version of the first policy, of each chunk in order."""

    @property
    def num_envs(self) -> int:
        """Number of copies."""
        first = self.policies[0]
        lanes: int = first.steps.flags.shape[1]
        return lanes // len(first.agents)

    @property
    def slots(self) -> int:
        """Slots of time."""
        return len(self.policies[0].steps.flags)

    def chunk_of(self, slot: int) -> tuple[str, int, int, int, int]:
        """Return the entry of `chunks` with this slot."""
        return self.chunks[int(np.searchsorted(self._chunk_ends, slot, side="right"))]

    @cached_property
    def _chunk_ends(self) -> NDArray[np.int64]:
        return np.cumsum([slots for *_, slots, _ in self.chunks])


def by_copy(part: Part) -> tuple[Bools, Bools]:
    """Return bool [slots, copies]: all agents are over; the slot is a reset."""
    flags = [one.steps.flags.reshape(part.slots, part.num_envs, -1) for one in part.policies]
    every = np.concatenate(flags, axis=2)
    over: Bools = ((every & OVER) != 0).all(axis=2)
    began: Bools = ((every & REAL) == 0).all(axis=2)
    return over, began


def steps_taken(part: Part) -> NDArray[np.int64]:
    """Return the number of environment steps in every slot."""
    taken: NDArray[np.int64] = (~by_copy(part)[1]).sum(axis=1)
    return taken


def differing_slots(one: Steps, other: Steps) -> Bools:
    """Return bool [slots, lanes]: some bit differs."""
    differs: Bools = (one.flags != other.flags) | (one.seen != other.seen)
    differs |= one.reward.view(np.uint64) != other.reward.view(np.uint64)
    acted = one.actions != other.actions
    differs |= acted.reshape(*differs.shape, -1).any(axis=2)
    return differs


class StepsError(Exception):
    """A file of steps is damaged; the text names the file."""


def read_steps(path: Path) -> list[Part]:
    """Return the parts of a file, as far as written. Raises StepsError, and OSError."""
    parts: list[Part] = []
    header: Mapping[str, Any] | None = None
    blocks: list[Mapping[str, Any]] = []
    try:
        for record in read_records(path):
            value = cast("Mapping[str, Any]", record.value)
            if value["kind"] == "begin":
                parts += _part(header, blocks)
                header, blocks = value, []
            elif value["kind"] == "steps":
                blocks.append(value)
        return [*parts, *_part(header, blocks)]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StepsError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _part(header: Mapping[str, Any] | None, blocks: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    if header is None or not blocks:
        return
    if header["format"] != FORMAT:
        raise ValueError(f"format {header['format']} is not known")
    chunks = [
        (str(block["worker"]), int(block["incarnation"]), int(sequence), int(slots), int(version))
        for block in blocks
        for sequence, slots, version in block["chunks"]
    ]
    policies = [
        PolicyPart(
            str(about["name"]),
            tuple(map(str, about["agents"])),
            _KNOWN[about["seen"]],
            Steps.joined([_steps(block, at, about) for block in blocks]),
        )
        for at, about in enumerate(header["policies"])
    ]
    copies = {len(one.steps.flags[0]) / len(one.agents) for one in policies}
    if len(copies) != 1 or not copies.pop().is_integer():
        raise ValueError("the numbers of lanes and agents do not fit")
    index, generation, task = (int(header[name]) for name in ("index", "generation", "task"))
    yield Part(index, generation, task, str(header["kwargs"]), policies, chunks)


def _steps(block: Mapping[str, Any], at: int, about: Mapping[str, Any]) -> Steps:
    slots, lanes = sum(int(chunk[1]) for chunk in block["chunks"]), int(about["lanes"])
    shape, dtype = tuple(int(side) for side in about["action"][0]), _KNOWN[about["action"][1]]
    acted, actions, paid, reward, seen, flags = block["columns"][at]
    return Steps(
        _read(actions, _KNOWN[acted], (slots, lanes, *shape)).astype(dtype),
        _read(reward, _KNOWN[paid], (slots, lanes)).astype(np.float64),
        _read(seen, np.dtype(np.uint32), (slots, lanes)),
        _read(flags, np.dtype(np.uint8), (slots, lanes)),
    )


def _read(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    return np.frombuffer(data, dtype).reshape(shape)
