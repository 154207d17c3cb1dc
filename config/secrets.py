"""Which settings look like secrets, and what stands in their place in copies that are made for people."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import JsonValue

MASK = "<secret, not written here>"

_WORDS = {
    *("token", "password", "passwd", "pwd", "passphrase", "secret", "secrets", "credential", "credentials"),
    *("apikey", "auth", "authorization"),
}
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")


def looks_secret(key: str) -> bool:
    """By its name: `token`, `db_password`, `apiKey`, `SIGNING_KEY`; not `tokenizer`, `max_tokens`, `keys`."""
    words = [word.lower() for word in _WORD.findall(key)]
    return any(word in _WORDS for word in words) or words[-1:] == ["key"]


def masked(value: JsonValue) -> JsonValue:
    """The same settings with a mask for each value, at whatever depth, whose key looks like that of a secret."""
    return _masked(value, hidden=False)


def holds_secrets(value: JsonValue) -> bool:
    """Whether `masked` would change anything."""
    return masked(value) != value


def masks_in(value: object, where: str = "") -> list[str]:
    """The dotted keys under which a mask stands: such a copy cannot be run as it is."""
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
