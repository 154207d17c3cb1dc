"""Runs side by side: all settings, or the differing settings beside the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from msgspec import Struct
from pydantic import JsonValue

from remuda.client.plots.curves import differing
from remuda.client.sweeps.results import VariantSummary, summary
from remuda.config.dump import recorded, sources, yaml_text
from remuda.config.errors import ConfigError, flat
from remuda.page.stored_runs import RunRow
from remuda.storage.run_folder import RunFolder

MOST_SETTINGS_RUNS = 100
"""Most runs whose settings are shown side by side."""
MOST_RUNS = 1_000
MOST_COLUMNS = 100
"""Of settings."""
RESULTS = ("state", "best_return", "last_return")
"""Result columns before the settings; other results follow after the settings."""
_MORE = ("env_step", "train_iter", "episode", "wall_s", "samples_per_insert")
_NEVER = frozenset({"name", "source_dir", "seed"})
"""Settings without effect on learning, or with a separate column."""
ColumnKind = Literal["name", "setting", "result"]


class Setting(Struct, frozen=True, kw_only=True):
    """A setting; lists have an element per run."""

    key: str
    values: list[object]
    """Values as JSON; None for a missing setting, see `missing`."""
    missing: list[bool]
    differs: bool
    source: list[str | None]
    """file, command line or default; None if not recorded."""


class Settings(Struct, frozen=True):
    """The whole view."""

    runs: list[str]
    settings: list[Setting]
    texts: list[str]
    """Config as YAML, for a single run with a loadable config."""


def side_by_side(
    runs: Sequence[str],
    settings: Sequence[Mapping[str, JsonValue]],
    origins: Sequence[Mapping[str, str]],
    texts: Sequence[str] = (),
) -> Settings:
    """Return every setting of any run, in order of first appearance. All arguments are in the order of the runs."""
    flats = [flat(each) for each in settings]
    keys, differ = list(dict.fromkeys(key for each in flats for key in each)), set(differing(flats))
    found = [
        Setting(
            key=key,
            values=[each.get(key) for each in flats],
            missing=[key not in each for each in flats],
            differs=key in differ,
            source=[each.get(key) for each in origins],
        )
        for key in keys
    ]
    return Settings(list(runs), found, list(texts))


def origins_and_text(folder: RunFolder) -> tuple[dict[str, str], str | None]:
    """Return the origin of each setting, and the config as YAML; empty and None for a config that this version cannot
    load. Runs no code named by the config."""
    try:
        loaded = recorded(folder.root)
    except (ConfigError, OSError, ValueError):
        return {}, None
    origins = {key: str(cast("str", each["source"])) for key, each in sources(loaded).items()}
    return origins, yaml_text(loaded.config, loaded.provenance)


class Column(Struct, frozen=True):
    """A column."""

    name: str
    kind: ColumnKind


class Comparison(Struct, frozen=True):
    """The whole view."""

    columns: list[Column]
    rows: list[list[object]]
    variants: list[VariantSummary]
    """By group; a mean without values becomes null in JSON."""


def compared(rows: Sequence[RunRow], settings: Mapping[str, Mapping[str, JsonValue]]) -> Comparison:
    """Return the table of these runs; `settings` by run id."""
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
    return [key for key in differing(known) if key not in _NEVER][:MOST_COLUMNS] if known else []


def _variants(rows: Sequence[RunRow]) -> list[VariantSummary]:
    """Summarize the runs of each group."""
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [summary(name, members, {}) for name, members in groups.items()]
