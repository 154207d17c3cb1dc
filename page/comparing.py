"""Runs side by side: all their settings, or the settings in which they differ beside their results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import numpy as np
from msgspec import Struct
from pydantic import JsonValue

from remuda.config.document import flat
from remuda.config.dump import recorded, sources, yaml_text
from remuda.config.errors import ConfigError
from remuda.page.run_rows import RunRow
from remuda.storage.run_folder import RunFolder

MOST_SETTINGS_RUNS = 100
"""Runs whose settings are shown side by side."""
MOST_RUNS = 1_000
MOST_COLUMNS = 100
"""Of settings."""
RESULTS = ("state", "best_return", "last_return")
"""They stand before the settings that differ; the others behind them."""
_MORE = ("env_step", "train_iter", "episode", "wall_s", "samples_per_insert")
_NEVER = frozenset({"name", "source_dir", "seed"})
"""Settings that say nothing about how a run learns, or have a column anyway."""
ColumnKind = Literal["name", "setting", "result"]


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


class Column(Struct, frozen=True):
    """One column."""

    name: str
    kind: ColumnKind


class VariantRow(Struct, frozen=True, kw_only=True):
    """The runs of one group over their seeds; mean and population standard deviation, null where none has a value."""

    variant: str
    group: str
    runs: int
    finished: int
    best_mean: float | None
    best_std: float | None
    last_mean: float | None
    last_std: float | None


class Comparison(Struct, frozen=True):
    """The whole view."""

    columns: list[Column]
    rows: list[list[object]]
    variants: list[VariantRow]


def compared(rows: Sequence[RunRow], settings: Mapping[str, Mapping[str, JsonValue]]) -> Comparison:
    """The table of these runs; `settings` are those of each run by its id."""
    flats = [flat(settings.get(row.run or "", {})) for row in rows]
    keys = _differing(flats)
    columns = [
        Column("run", "name"),
        *(Column(name, "result") for name in RESULTS),
        Column("seed", "setting"),
        *(Column(key, "setting") for key in keys),
        *(Column(name, "result") for name in _MORE),
        Column("group", "name"),
    ]
    cells: list[list[object]] = [
        [
            row.run,
            *(getattr(row, name) for name in RESULTS),
            row.seed,
            *(each.get(key) for key in keys),
            *(getattr(row, name) for name in _MORE),
            row.group,
        ]
        for row, each in zip(rows, flats, strict=True)
    ]
    return Comparison(columns, cells, _variants(rows))


def _differing(flats: Sequence[Mapping[str, JsonValue]]) -> list[str]:
    known = [each for each in flats if each]
    if len(known) < 2:
        return []
    keys = dict.fromkeys(key for each in known for key in each if key not in _NEVER)
    return [key for key in keys if differs(key, known)][:MOST_COLUMNS]


def _variants(rows: Sequence[RunRow]) -> list[VariantRow]:
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [_variant(name, members) for name, members in groups.items()]


def _variant(name: str, members: Sequence[RunRow]) -> VariantRow:
    best_mean, best_std = _mean_std([row.best_return for row in members])
    last_mean, last_std = _mean_std([row.last_return for row in members])
    return VariantRow(
        variant=name,
        group=name,
        runs=len(members),
        finished=sum(row.state == "finished" for row in members),
        best_mean=best_mean,
        best_std=best_std,
        last_mean=last_mean,
        last_std=last_std,
    )


def _mean_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return (float(np.mean(known)), float(np.std(known))) if known else (None, None)
