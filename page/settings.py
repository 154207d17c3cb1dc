"""The settings of one or several runs side by side, and what differs; secrets are masked before anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct
from pydantic import JsonValue

from remuda.config.dump import yaml_text
from remuda.config.errors import ConfigError
from remuda.config.flat import flat
from remuda.config.sources import recorded, sources
from remuda.storage.run_folder import RunFolder

MOST_RUNS = 100


class Setting(Struct, frozen=True, kw_only=True):
    """One setting; lists have an element per run."""

    key: str
    values: list[object]
    """As JSON; None where a run does not have it, see `missing`."""
    missing: list[bool]
    differs: bool
    source: list[str | None]
    """file, command line or default; None if the run does not record it."""


class Settings(Struct, frozen=True):
    """The whole view."""

    runs: list[str]
    settings: list[Setting]
    texts: list[str]
    """The config as YAML, if one run is shown and its config can be loaded."""


def side_by_side(
    runs: Sequence[str],
    settings: Sequence[Mapping[str, JsonValue]],
    origins: Sequence[Mapping[str, str]],
    texts: Sequence[str] = (),
) -> Settings:
    """Every setting that any of them has, in the order of the first that has it; all arguments in the order of the
    runs."""
    flats = [flat(each) for each in settings]
    keys = list(dict.fromkeys(key for each in flats for key in each))
    found = [
        Setting(
            key=key,
            values=[each.get(key) for each in flats],
            missing=[key not in each for each in flats],
            differs=differs(key, flats),
            source=[each.get(key) for each in origins],
        )
        for key in keys
    ]
    return Settings(list(runs), found, list(texts))


def differs(key: str, flats: Sequence[Mapping[str, JsonValue]]) -> bool:
    """Whether two of these runs have different values of the setting, or only one of them has it."""
    first = flats[0]
    return any((key in each) != (key in first) or each.get(key) != first.get(key) for each in flats[1:])


def origins_and_text(folder: RunFolder) -> tuple[dict[str, str], str | None]:
    """Where each setting of a run came from, and the config as YAML; empty and None for a config that this version
    cannot load. Runs no code that the config names."""
    try:
        loaded = recorded(folder.root)
    except (ConfigError, OSError, ValueError):
        return {}, None
    origins = {key: str(cast("str", each["source"])) for key, each in sources(loaded).items()}
    return origins, yaml_text(loaded.config, loaded.provenance)
