"""Strategies that build every message from its type annotations."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec.inspect
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec.inspect import (
    BoolType,
    BytesType,
    CustomType,
    DictType,
    Field,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    TupleType,
    Type,
    UnionType,
)

from remuda.wire.codec import Envelope
from remuda.wire.messages import AnyMessage, BatchRequest, ChunkMeta, EvaluationDone, Histogram

MESSAGE_TYPES: tuple[type[AnyMessage], ...] = get_args(AnyMessage)

_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
_PATTERNS = {
    "^(user|proje": st.sampled_from(["user/alice", "project/p-1"]),
    "^[0-9a-f]{8}": st.uuids().map(str),
    "^[0-9a-f]{64": st.binary(min_size=32, max_size=32).map(bytes.hex),
    "^tcp://[0-9A": st.integers(1, 65_535).map("tcp://[::1]:{}".format),
    "^[^/]+(/[^/]": st.text("ab", min_size=1, max_size=5),
    "^[a-z][A-Za-": st.text("aZ09_", max_size=99).map("x".__add__),
    "^([a-z][a-z0": st.just("") | st.text("az0_", max_size=49).map("x".__add__),
    "^[A-Za-z0-9]": st.text("aZ09._-", max_size=199).map("x".__add__),
}
"""By how they begin: hypothesis could read the patterns itself, but a hundred times slower."""
_ALIKE: dict[type[Any], tuple[str, ...]] = {
    ChunkMeta: ("episode_returns", "episode_lengths"),
    EvaluationDone: ("returns", "lengths"),
    Histogram: ("rights", "counts"),
    BatchRequest: ("priority_rows", "priorities"),
}
"""What a message refuses to have in other numbers than each other."""


def messages(*types: type[AnyMessage]) -> st.SearchStrategy[AnyMessage]:
    """Instances of `types` (of every message when none is given) that their types allow."""
    return st.sampled_from(types or MESSAGE_TYPES).flatmap(_struct_of)


def envelopes(*types: type[AnyMessage]) -> st.SearchStrategy[Envelope]:
    number = st.integers(0, 2**53)
    return st.builds(Envelope, id=number, reply_to=number, floor=number, message=messages(*types))


def _struct_of(type_: type[Any]) -> st.SearchStrategy[Any]:
    info = msgspec.inspect.type_info(type_)
    assert isinstance(info, StructType)
    return _values(info)


def _field(field: Field, hint: Any) -> st.SearchStrategy[Any]:
    if not isinstance(field.type, CustomType):
        return _values(field.type)
    scalar = get_args(get_args(hint)[1])[0]  # inspect forgets it
    return hnp.arrays(np.dtype(scalar), hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5))


def _values(type_: Type) -> st.SearchStrategy[Any]:
    match type_:
        case StructType():
            hints = get_type_hints(type_.cls)
            fields = {field.name: _field(field, hints[field.name]) for field in type_.fields}
            return st.fixed_dictionaries(fields).map(lambda values: type_.cls(**_alike(type_.cls, values)))
        case ListType():
            return st.lists(_values(type_.item_type), max_size=2)
        case DictType():
            return st.dictionaries(_values(type_.key_type), _values(type_.value_type), max_size=2)
        case TupleType():
            return st.tuples(*(_values(part) for part in type_.item_types))
        case UnionType():
            return st.one_of([_values(part) for part in type_.types])
        case _:
            return _scalars(type_)


def _alike(type_: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Cut the fields that have to be as long as each other."""
    names = _ALIKE.get(type_, ())
    flat = {name: values[name] if isinstance(values[name], list) else values[name].ravel() for name in names}
    shortest = min(map(len, flat.values()), default=0)
    infos = {name: values[name] for name in ("episode_info", "info") if name in values and names}
    cut = {name: {key: value[:shortest] for key, value in info.items()} for name, info in infos.items()}
    if "cut" in values:  # how many of these episodes were
        values = values | {"cut": min(values["cut"], shortest)}
    return values | cut | {name: value[:shortest] for name, value in flat.items()}


def _scalars(type_: Type) -> st.SearchStrategy[Any]:
    match type_:
        case IntType():
            return st.integers(-(2**31) if type_.ge is None else type_.ge, 2**53 if type_.le is None else type_.le)
        case FloatType():
            if type_.ge is not None:
                return st.floats(type_.ge, type_.le, allow_nan=False)
            return st.floats(allow_nan=False)  # nan is not equal to itself; a test of its own sends one
        case StrType():
            return _TEXT if type_.pattern is None else _PATTERNS[type_.pattern[:12]]
        case BytesType():
            return st.binary(max_size=20)
        case LiteralType():
            return st.sampled_from(type_.values)
        case BoolType():
            return st.booleans()
        case NoneType():
            return st.none()
        case _:
            raise NotImplementedError(f"a message has a field of a type that no test can build yet: {type_}")
