"""Settings by their dotted keys."""

from __future__ import annotations

from pydantic import JsonValue

from remuda.config.errors import flat


def test_sections_become_parts_of_keys_and_empty_ones_are_values() -> None:
    settings: dict[str, JsonValue] = {
        "seed": 3,
        "env": {"id": "x", "kwargs": {}, "wrappers": [{"a": 1}]},
        "policy": {"deep": {"er": None}},
    }
    assert flat(settings) == {
        "seed": 3, "env.id": "x", "env.kwargs": {}, "env.wrappers": [{"a": 1}], "policy.deep.er": None,
    }  # fmt: skip
    assert flat({}) == {}
