"""Settings by their dotted keys."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue


def flat(settings: Mapping[str, JsonValue], prefix: str = "") -> dict[str, JsonValue]:
    """The settings by dotted key; an empty section is a value."""
    found: dict[str, JsonValue] = {}
    for key, value in settings.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict) and value:
            found |= flat(value, name)
        else:
            found[name] = value
    return found
