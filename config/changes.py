"""What a resumed run does differently than before: settings that have changed, and the former ones kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from remuda.config.flat import flat
from remuda.config.load import EXP_NAME
from remuda.config.plain import plain
from remuda.config.schema import ExperimentConfig
from remuda.config.secrets import holds_secrets, masked
from remuda.config.several_policies import without_repeated
from remuda.storage.atomic import write_bytes
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import json_of, read_bounded

_SHOWN = 10
"""Changes that are told one by one."""
_MOST_BYTES = 16 << 20
"""Of a config.json, which may be of another program."""
PRIVATE, SHARED = 0o600, 0o666
"""Modes of a config.json, before the umask: with a secret in it, and without."""


def changed_settings(run_dir: Path, config: ExperimentConfig) -> list[str]:
    """A line for each setting that the run's config.json has otherwise; none where there is no such file.

    Secrets are masked."""
    former = _former(run_dir)
    if not former:
        return []
    if not config.env.agents:  # nobody has looked up yet which there are
        _forget_agents(former)
    return changes(without_repeated(former), without_repeated(cast("dict[str, JsonValue]", plain(config))))


def former_settings(run_dir: Path) -> dict[str, JsonValue]:
    """What the run's config.json has, by dotted key; nothing where there is no such file."""
    return flat(_former(run_dir))


def _former(run_dir: Path) -> dict[str, JsonValue]:
    try:
        former = cast("JsonValue", json_of(_content(RunFolder(run_dir).config_json)))
    except (OSError, ValueError):
        return {}
    if not isinstance(former, dict):
        return {}
    former.pop(EXP_NAME, None)
    return former


def _forget_agents(settings: dict[str, JsonValue]) -> None:
    env = settings.get("env")
    if isinstance(env, dict):
        env["agents"] = []


def changes(former: dict[str, JsonValue], now: dict[str, JsonValue]) -> list[str]:
    """`seed is 2 and was 1`, and the like, in the order of the settings."""
    before, after = flat(former), flat(now)
    shown_before, shown_after = (flat(cast("dict[str, JsonValue]", masked(each))) for each in (former, now))
    return [
        f"{key} is {_text(shown_after, key)} and was {_text(shown_before, key)}"
        for key in (*after, *(key for key in before if key not in after))
        if before.get(key) != after.get(key)
    ]


def told(changed: list[str]) -> str:
    """All of them in one sentence, the first few by name."""
    more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return f"goes on with other settings than before: {'; '.join(changed[:_SHOWN])}{more}"


def keep_former(run_dir: Path) -> Path:
    """Keep the run's config.json, which is about to be replaced, as config_1.json, config_2.json, …; returns its place.

    Raises OSError."""
    former = RunFolder(run_dir).config_json
    number = 1
    while os.path.lexists(place := run_dir / f"config_{number}.json"):
        number += 1
    content = _content(former)
    write_bytes(place, content, durable=True, mode=config_mode(cast("JsonValue", json_of(content))))
    return place


def config_mode(settings: JsonValue) -> int:
    """Who may read a config.json with these settings."""
    return PRIVATE if holds_secrets(settings) else SHARED


def _content(path: Path) -> bytes:
    return read_bounded(path, most_bytes=_MOST_BYTES)


def _text(settings: dict[str, JsonValue], key: str) -> str:
    return json.dumps(settings[key]) if key in settings else "not set"
