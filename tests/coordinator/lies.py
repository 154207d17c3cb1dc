"""Well-formed messages that lie, from anybody, made from the types of their fields and from what a world knows."""

from __future__ import annotations

import random
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np
from msgspec import NODEFAULT
from msgspec.inspect import (
    BoolType,
    CustomType,
    DictType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from remuda.buffer.chunk import chunk_name
from remuda.tests.coordinator.simulation import World
from remuda.wire.codec import CodecError, Envelope, decode, encode
from remuda.wire.messages import AnyMessage, ChunkId, ChunkMeta, Shutdown, StopExperiment, Submit

KINDS: tuple[type[AnyMessage], ...] = tuple(
    kind for kind in get_args(AnyMessage) if kind not in (Shutdown, StopExperiment, Submit)
)
"""All but those by which a client may end or begin a run."""
_NUMBERS = (0, 1, 2, 3, 5, 8, 16, 64, 100, 1_000, 2**31, 2**32, 2**52, 2**53)
_FLOATS = (0.0, -1.0, 1.0, 0.5, 1e-300, 1e15, 1e300, -1e300, float("nan"), float("inf"), -float("inf"))
_TEXTS = ("", "x", "[/red]", "\x1b[2J", "a/b", "/", "\n", "é" * 10, "x" * 900, "../../x")


class Liar:
    """Makes messages of every type. The same seed makes the same ones in the same world."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self._infos = {kind: (type_info(kind), get_type_hints(kind, include_extras=False)) for kind in KINDS}

    def envelope(self, id: int) -> Envelope | None:
        """Something that the decoder lets through; None where it does not."""
        chance = self._chance
        message = self._struct(*self._infos[chance.choice(KINDS)])
        reply_to, floor = (chance.choice((0, 0, 0, 1, 2, 2**53)), chance.choice((1, 1, id, 2**53)))
        try:
            return decode(encode(Envelope(id, reply_to, floor, message)))
        except CodecError:
            return None

    def _struct(self, info: Type, hints: dict[str, Any]) -> Any:
        assert isinstance(info, StructType)
        values: dict[str, Any] = {}
        for field in info.fields:
            if field.default is not NODEFAULT and self._chance.random() < 0.3:
                continue
            values[field.name] = self._known(field.name, field.type) or self._value(field.type, hints[field.name])
        for names in (
            ("episode_returns", "episode_lengths"),
            ("returns", "lengths"),
            ("priority_rows", "priorities"),
            ("rights", "counts"),
        ):
            if all(name in values for name in names):
                shortest = min(len(values[name]) for name in names)
                values |= {name: values[name][:shortest] for name in names}
        try:
            return info.cls(**values)
        except ValueError:
            return info.cls(
                **{name: value for name, value in values.items() if name not in ("info", "episode_info", "cut")}
            )

    def _known(self, name: str, type_: Type) -> Any:
        """What would be right, now and then: a lie is nearest to the truth where it is worst."""
        chance, world = self._chance, self._world
        if name == "lease" and chance.random() < 0.9:
            return chance.choice([*sorted({worker.lease for worker in world.workers.values()}), 0, 1, 2])
        if name == "worker" and world.workers:
            return chance.choice([*world.workers])
        if name == "experiment" and world.journal and chance.random() < 0.9:
            return chance.choice([*world.journal, "x"])
        if name == "meta":
            return self._meta()
        if name == "file" and isinstance(type_, StrType) and type_.pattern:
            return chance.choice([*sorted(world.disk)[:3], "iteration_5.pth.tar", "iteration_0.pth.tar", "x"])
        plan = {"batches": world.plan.batches_per_request, "batch_size": world.plan.rows_per_update}
        return plan.get(name) if chance.random() < 0.8 else None

    def _meta(self) -> ChunkMeta:
        chance = self._chance
        worker = chance.choice([*self._world.workers.values()])
        chunk = ChunkId(worker.uuid, worker.incarnation, chance.choice((*_NUMBERS, 10**6 + chance.randrange(10**6))))
        info = type_info(ChunkMeta)
        meta: ChunkMeta = self._struct(info, get_type_hints(ChunkMeta))
        own = chance.random() < 0.8
        return msgspec.structs.replace(meta, chunk=chunk, file=chunk_name(chunk)) if own else meta

    def _value(self, type_: Type, hint: Any = None) -> Any:
        chance = self._chance
        match type_:
            case StructType():
                return self._struct(type_, get_type_hints(type_.cls))
            case ListType():
                return [self._value(type_.item_type) for _ in range(chance.choice((0, 0, 1, 2, 4, 8)))]
            case DictType():
                return {self._value(type_.key_type): self._value(type_.value_type) for _ in range(chance.randrange(3))}
            case UnionType():
                return self._value(chance.choice(type_.types))
            case CustomType():
                scalar = get_args(get_args(hint)[1])[0]
                values = [chance.choice((-(2**62), -1, 0, 1, 5, 100, 2**62)) for _ in range(chance.choice((0, 1, 9)))]
                if np.dtype(scalar).kind == "f":
                    with np.errstate(all="ignore"):
                        return np.array([chance.choice(_FLOATS) for _ in values], np.float64).astype(scalar)
                return np.array(values, np.int64).astype(scalar)
            case _:
                return self._scalar(type_)

    def _scalar(self, type_: Type) -> Any:
        chance = self._chance
        match type_:
            case IntType():
                return chance.choice(_NUMBERS)
            case FloatType():
                return chance.choice(_FLOATS)
            case StrType():
                if type_.pattern is not None:
                    return chance.choice(("x", "a/b", "0" * 64, *self._world.workers))
                return chance.choice(_TEXTS)
            case LiteralType():
                return chance.choice(type_.values)
            case BoolType():
                return chance.random() < 0.5
            case NoneType():
                return None
            case _:
                return b""
