"""Configs as text and in run folders, loadable again; changes since a former run; sources of settings."""

from __future__ import annotations

import json
import os
import pprint
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast, get_args

from pydantic import JsonValue

from remuda.config.current import with_auto
from remuda.config.defaults import without_repeated
from remuda.config.errors import Loc, dotted, flat
from remuda.config.explain import keys_of, section_at
from remuda.config.load import EXP_NAME, LoadedConfig, Origin, load_config
from remuda.config.manifest import write_manifest
from remuda.config.plain import json_text, masked, plain
from remuda.config.readers import VARIABLE, read_python
from remuda.config.schema import ExperimentConfig
from remuda.config.section import descriptions
from remuda.storage.atomic import write_bytes, write_text
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import json_of, read_bounded

_WIDTH = 120


def write_configs(run_dir: Path, config: ExperimentConfig, provenance: Mapping[str, Origin]) -> str | None:
    """Write config.json, total_config.py and formatted_total_config.py, each completely or not at all, and this start
    into manifest.json. Raises OSError.

    Only config.json contains secrets, and is then readable by the user alone. A former config.json with different
    settings is kept as config_<n>.json; in this case returns a warning for the log with the differences.
    """
    run = RunFolder(run_dir)
    changed = changed_settings(run_dir, config)
    warning = f"{changes_sentence(changed)} (the former ones are in {keep_former(run_dir).name})" if changed else None
    write_text(run.total_config, total_config_text(config), durable=True)
    write_text(run.formatted_total_config, formatted_total_config_text(config, provenance), durable=True)
    write_manifest(run_dir, config)
    mode = config_mode(_settings(config))
    write_text(run.config_json, config_json_text(config), durable=True, mode=mode)  # last: it makes the folder a run
    return warning


def write_custom_configs(run_dir: Path, settings: Mapping[str, JsonValue]) -> None:
    """Write the same files for arbitrary settings, of a custom loop. Raises OSError."""
    run = RunFolder(run_dir)
    literal = f"{VARIABLE} = {pprint.pformat(masked(dict(settings)), width=_WIDTH, sort_dicts=False)}\n"
    write_text(run.total_config, literal, durable=True)
    write_text(run.formatted_total_config, f"# Every setting of this run.\n{literal}", durable=True)
    text, mode = json_text({EXP_NAME: settings.get("name"), **settings}), config_mode(dict(settings))
    write_text(run.config_json, text, durable=True, mode=mode)


def config_json_text(config: ExperimentConfig, *, for_people: bool = False, auto: Collection[str] = ()) -> str:
    """Return every setting as JSON, sorted and indented; of several policies only the differences from `policy`,
    `learner` and `buffer`. Never fails, even for a config without validation. `for_people` masks secrets, like all
    further texts here. `auto` are settings (dotted keys) to be measured.

    The name appears a second time as `exp_name`, by which Spinning Up's plotting groups and labels runs.
    """
    settings = _shown(config) if for_people else _settings(config)
    return json_text({**with_auto(settings, auto), EXP_NAME: settings.get("name")})


def total_config_text(config: ExperimentConfig) -> str:
    """Return every setting as one Python literal."""
    return f"{VARIABLE} = {pprint.pformat(_shown(config), width=_WIDTH, sort_dicts=False)}\n"


def formatted_total_config_text(config: ExperimentConfig, provenance: Mapping[str, Origin] | None = None) -> str:
    """Return the same literal with explanations above the settings and their origins (set or default) behind."""
    lines = ["# Every setting of this run. Edit it and run it again: remuda train formatted_total_config.py"]
    lines += [f"{VARIABLE} = {{", *_section_lines(_shown(config), (), provenance or {}), "}"]
    return "\n".join(lines) + "\n"


def yaml_text(
    config: ExperimentConfig, provenance: Mapping[str, Origin] | None = None, *, auto: Collection[str] = ()
) -> str:
    """Return every setting as YAML, with the origins of settings other than defaults; `auto` as above."""
    return "\n".join(_yaml_lines(with_auto(_shown(config), auto), (), provenance or {})) + "\n"


def _settings(config: ExperimentConfig) -> dict[str, JsonValue]:
    return without_repeated(cast(dict[str, JsonValue], plain(config)))


def _shown(config: ExperimentConfig) -> dict[str, JsonValue]:
    return cast(dict[str, JsonValue], masked(_settings(config)))


def _section_lines(settings: dict[str, JsonValue], loc: Loc, provenance: Mapping[str, Origin]) -> list[str]:
    kind = settings.get("type")
    section = section_at(loc, kind if isinstance(kind, str) else None)
    assert section is not None
    indent, explained = "    " * (len(loc) + 1), descriptions(section)
    lines: list[str] = []
    for name, value in settings.items():
        here = (*loc, name)
        meaning = explained.get(name, "")  # a custom algorithm's class may not be here to be asked
        lines += textwrap.wrap(meaning, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        if section_at(here) and isinstance(value, dict):
            lines += [f"{indent}{name!r}: {{", *_section_lines(value, here, provenance), f"{indent}}},"]
        else:
            lines.append(f"{indent}{name!r}: {value!r},{_origin(here, provenance)}")
    return lines


def _yaml_lines(settings: dict[str, JsonValue], loc: Loc, provenance: Mapping[str, Origin]) -> list[str]:
    lines: list[str] = []
    for name, value in settings.items():
        here = (*loc, name)
        if section_at(here) and isinstance(value, dict):
            lines += [f"{'  ' * len(loc)}{name}:", *_yaml_lines(value, here, provenance)]
        else:  # what JSON writes, YAML reads
            lines.append(f"{'  ' * len(loc)}{name}: {json.dumps(value)}{_origin(here, provenance)}")
    return lines


def _origin(loc: Loc, provenance: Mapping[str, Origin]) -> str:
    origin = provenance.get(dotted(loc), "default")
    return "" if origin == "default" else f"  # {origin}"


_MOST_LISTED = 10
"""Limit for changes listed by name."""
_MOST_CONFIG_BYTES = 16 << 20
"""Limit for reading config.json, which may come from another program."""
PRIVATE, SHARED = 0o600, 0o666
"""Modes of a config.json, before the umask: with and without a secret."""


def changed_settings(run_dir: Path, config: ExperimentConfig) -> list[str]:
    """Return a line per setting that differs from the run's config.json; empty without such a file.

    Masks secrets.
    """
    former = former_settings(run_dir)
    if not former:
        return []
    if not config.env.agents:  # nobody has looked up yet which there are
        _forget_agents(former)
    return changes(without_repeated(former), without_repeated(cast("dict[str, JsonValue]", plain(config))))


def former_settings(run_dir: Path) -> dict[str, JsonValue]:
    """Return the settings in the run's config.json; empty without such a file."""
    try:
        former = cast("JsonValue", json_of(_content_of(RunFolder(run_dir).config_json)))
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
        f"{key} is {_json_of(shown_after, key)} and was {_json_of(shown_before, key)}"
        for key in (*after, *(key for key in before if key not in after))
        if before.get(key) != after.get(key)
    ]


def changes_sentence(changed: list[str]) -> str:
    """Summarise changes in one sentence, with the first few by name."""
    more = f"; and {len(changed) - _MOST_LISTED} more" if len(changed) > _MOST_LISTED else ""
    return f"continues with changed settings: {'; '.join(changed[:_MOST_LISTED])}{more}"


def keep_former(run_dir: Path) -> Path:
    """Rename the run's config.json, before its replacement, to config_1.json, config_2.json, …; return the new path.

    Raises OSError.
    """
    former = RunFolder(run_dir).config_json
    number = 1
    while os.path.lexists(place := run_dir / f"config_{number}.json"):
        number += 1
    content = _content_of(former)
    write_bytes(place, content, durable=True, mode=config_mode(cast("JsonValue", json_of(content))))
    return place


def config_mode(settings: JsonValue) -> int:
    """Return the file mode of a config.json with these settings."""
    return PRIVATE if masked(settings) != settings else SHARED


def _content_of(path: Path) -> bytes:
    return read_bounded(path, most_bytes=_MOST_CONFIG_BYTES)


def _json_of(settings: dict[str, JsonValue], key: str) -> str:
    return json.dumps(settings[key]) if key in settings else "not set"


_ORIGIN_WIDTH = max(map(len, get_args(Origin)))


def recorded(run_dir: Path) -> LoadedConfig:
    """Return the config of a run, with the origins recorded in formatted_total_config.py.

    Raises ConfigError if the file is missing or invalid.
    """
    loaded = load_config(RunFolder(run_dir).formatted_total_config, masks=True, import_algorithm=False)
    text = loaded.path.read_text("utf-8")
    lines = text.splitlines()
    written = {dotted(loc): lines[line - 1] for loc, line in read_python(text).lines.items()}
    origins: dict[str, Origin] = {key: _behind(written.get(key, "")) for key in loaded.provenance}
    return LoadedConfig(loaded.config, loaded.path, origins)


def sources_text(loaded: LoadedConfig) -> str:
    """Return a line per setting: origin, name and JSON value."""
    return "".join(
        f"{source['source']:<{_ORIGIN_WIDTH}}  {key} = {json.dumps(source['value'])}\n"
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
    """Return the origin of a setting from its line: the comment behind the comma, if present."""
    origins: tuple[Origin, ...] = get_args(Origin)
    for origin in origins:
        if line.endswith(f",  # {origin}"):
            return origin
    return "default"
