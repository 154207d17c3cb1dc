"""Settings as plain JSON: any value converted, and secrets masked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import cast

from pydantic import BaseModel, JsonValue

from remuda.config.section import schedules_of

MAX_DEPTH = 32
MAX_VALUES = 50_000
"""Limit for values in a record: larger objects are truncated."""
MAX_TEXT = 2_000
"""Limit for the characters of an object's text."""
_MAX_ARRAY = 1_000
"""Limit for the numbers of an array; larger arrays are described by shape and dtype."""
_MAX_BITS = 4_096
"""Python refuses to write much larger integers in decimal."""


def json_text(value: object) -> str:
    """Write anything down as strict JSON, sorted and indented; never fails. See `plain`."""
    return json.dumps(plain(value), indent=4, sort_keys=True, allow_nan=False) + "\n"


def plain(value: object) -> JsonValue:
    """Convert any value for JSON; never fails, and always ends.

    JSON values stay unchanged. Mappings, lists, tuples and sets (in the order of their text) are converted recursively;
    numpy's numbers and small arrays become numbers. An object with a `__name__` (a class, a function, but no lambda)
    becomes that name; an object with attributes becomes `{str(object): attributes}`; everything else, including NaN,
    infinity and recursive values, becomes text.
    """
    return _Converter().of(value)


class _Converter:
    """State of one conversion: the number of values left, and the enclosing values."""

    def __init__(self) -> None:
        self._left = MAX_VALUES
        self._around: list[int] = []
        """Identities of the collections and objects around the current value."""

    def of(self, value: object) -> JsonValue:
        self._left -= 1
        if value is None or isinstance(value, bool | str) or (isinstance(value, float) and math.isfinite(value)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= _MAX_BITS else hex(value)
        if self._left < 0 or len(self._around) >= MAX_DEPTH or id(value) in self._around:
            return f"<{type(value).__name__}>"  # without the content, which may be endless
        self._around.append(id(value))
        try:
            return self._followed(value)
        except Exception:  # somebody else's __iter__, __getattr__ or __str__; the promise is never to fail
            return _text(value)
        finally:
            self._around.pop()

    def _followed(self, value: object) -> JsonValue:
        if isinstance(value, list | tuple):
            return [self.of(item) for item in cast("Collection[object]", value)]
        if isinstance(value, set | frozenset):
            return [self.of(item) for item in sorted(cast("Collection[object]", value), key=_text)]
        if isinstance(value, BaseModel):
            named = {name: getattr(value, name) for name in type(value).model_fields} | (value.model_extra or {})
            planned = schedules_of(value)
            return {name: self.of(planned.get(name, one)) for name, one in named.items()}
        if isinstance(value, Mapping):
            mapping = cast("Mapping[object, object]", value)
            return {_text(key): self.of(item) for key, item in mapping.items()}
        if isinstance(value, float | Enum):  # not a finite number; an Enum's attributes say less than its name
            return _text(value)
        if not isinstance(value, type) and hasattr(value, "tolist") and hasattr(value, "dtype"):
            return self._array(value)
        return self._object(value)

    def _array(self, value: object) -> JsonValue:
        """A number or an array of numpy's, or a tensor."""
        shape: tuple[int, ...] = tuple(getattr(value, "shape", ()))
        if math.prod(shape) > _MAX_ARRAY:
            return f"{getattr(value, 'dtype', None)} array of shape {shape}"
        listed: object = getattr(value, "tolist")()  # noqa: B009  (nothing is known of its type)
        return _text(listed) if id(listed) == id(value) else self.of(listed)

    def _object(self, value: object) -> JsonValue:
        name = getattr(value, "__name__", None)
        if isinstance(name, str) and name != "<lambda>":
            return name
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict) and attributes:
            return {_text(value): self.of(cast("dict[object, object]", attributes))}
        return _text(value)


def _text(value: object) -> str:
    try:
        text = str(value)
    except Exception:  # somebody else's __str__
        text = object.__repr__(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


MASK = "<secret, not written here>"

_WORDS = {
    *("token", "password", "passwd", "pwd", "passphrase", "secret", "secrets", "credential", "credentials"),
    *("apikey", "auth", "authorization"),
}
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")


def looks_secret(key: str) -> bool:
    """True for names such as `token`, `db_password`, `apiKey`, `SIGNING_KEY`; not for `tokenizer`, `max_tokens`,
    `keys`."""
    words = [word.lower() for word in _WORD.findall(key)]
    return any(word in _WORDS for word in words) or words[-1:] == ["key"]


def masked(value: JsonValue) -> JsonValue:
    """Mask values at any depth whose key looks like the name of a secret."""
    return _masked(value, hidden=False)


def masks_in(value: object, where: str = "") -> list[str]:
    """Return the dotted keys of masked values: such a copy cannot run."""
    if value == MASK:
        return [where]
    if isinstance(value, Mapping):
        inside = cast("Mapping[object, object]", value).items()
        return [found for key, one in inside for found in masks_in(one, f"{where}.{key}" if where else f"{key}")]
    if isinstance(value, Sequence) and not isinstance(value, str):
        sequence = cast("Sequence[object]", value)
        return [found for number, one in enumerate(sequence) for found in masks_in(one, f"{where}[{number}]")]
    return []


def _masked(value: JsonValue, *, hidden: bool) -> JsonValue:
    if isinstance(value, dict):
        return {key: _masked(one, hidden=hidden or looks_secret(key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked(one, hidden=hidden) for one in value]
    return MASK if hidden and value not in (None, "") and not isinstance(value, bool) else value
