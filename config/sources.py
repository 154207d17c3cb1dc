"""Where each setting came from: as a config would be used now, or as a run folder has recorded it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast, get_args

from pydantic import JsonValue

from remuda.config.auto import with_auto
from remuda.config.document import dotted
from remuda.config.load import LoadedConfig, Origin, load_config
from remuda.config.plain import plain
from remuda.config.python_source import read_python
from remuda.config.secrets import masked
from remuda.config.suggest import keys_of
from remuda.storage.run_folder import RunFolder

_WIDTH = max(map(len, get_args(Origin)))


def recorded(run_dir: Path) -> LoadedConfig:
    """The config of a run, with the origins that stand behind its settings in formatted_total_config.py.

    Raises ConfigError where that is missing or is no config.
    """
    loaded = load_config(RunFolder(run_dir).formatted_total_config, masks=True, import_algorithm=False)
    text = loaded.path.read_text("utf-8")
    lines = text.splitlines()
    written = {dotted(loc): lines[line - 1] for loc, line in read_python(text).lines.items()}
    origins: dict[str, Origin] = {key: _behind(written.get(key, "")) for key in loaded.provenance}
    return LoadedConfig(loaded.config, loaded.path, origins)


def sources_text(loaded: LoadedConfig) -> str:
    """A line per setting: where it came from, its name and its value as JSON."""
    return "".join(
        f"{source['source']:<{_WIDTH}}  {key} = {json.dumps(source['value'])}\n"
        for key, source in sources(loaded).items()
    )


def sources(loaded: LoadedConfig) -> dict[str, dict[str, JsonValue]]:
    """Value and source of every setting, by dotted key."""
    settings = with_auto(cast("dict[str, JsonValue]", masked(plain(loaded.config))), loaded.auto)
    found: dict[str, dict[str, JsonValue]] = {}
    for key, loc in keys_of(loaded.config).items():
        value: JsonValue = settings
        for part in loc:
            assert isinstance(value, dict), "sections of a config are mappings"
            value = value[str(part)]
        found[key] = {"value": value, "source": loaded.provenance.get(key, "default")}
    return found


def _behind(line: str) -> Origin:
    """A setting's line ends with a comma, or behind that with a comment that is its origin."""
    origins: tuple[Origin, ...] = get_args(Origin)
    for origin in origins:
        if line.endswith(f",  # {origin}"):
            return origin
    return "default"
