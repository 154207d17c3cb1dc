"""Turning any value into what JSON can hold, whatever it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from pydantic import BaseModel, JsonValue

_MAX_DEPTH = 32


def plain(value: object) -> JsonValue:
    """Return `value` for JSON; never fails.

    What JSON holds stays as it is. Mappings, lists, tuples and sets are followed. Something with a `__name__` (a
    class, a function, but no lambda) becomes that name; an object with attributes `{str(object): attributes}`; all
    else, NaN and infinity included, its text.
    """
    return _plain(value, depth=0)


def _plain(value: object, *, depth: int) -> JsonValue:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth >= _MAX_DEPTH:  # an object that holds itself
        return _text(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = cast(list[object], value)
        return [_plain(item, depth=depth + 1) for item in items]
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name), depth=depth + 1) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        mapping = cast(Mapping[object, object], value)
        return {_text(key): _plain(item, depth=depth + 1) for key, item in mapping.items()}
    return _object(value, depth=depth)


def _object(value: object, *, depth: int) -> JsonValue:
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and name != "<lambda>":
        return name
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and attributes:
        return {_text(value): _plain(cast(dict[object, object], attributes), depth=depth + 1)}
    return _text(value)


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # somebody else's __str__; the promise is never to fail
        return object.__repr__(value)
