"""Writing a config so that it can be read, edited and run again: each text loads to an equal config."""

from __future__ import annotations

import json
import pprint
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from remuda.config.auto import with_auto
from remuda.config.changes import changed_settings, config_mode, keep_former, told
from remuda.config.descriptions import descriptions
from remuda.config.document import Loc, dotted
from remuda.config.load import EXP_NAME, Origin
from remuda.config.plain import json_text, plain
from remuda.config.python_source import VARIABLE
from remuda.config.schema import ExperimentConfig
from remuda.config.secrets import masked
from remuda.config.several_policies import without_repeated
from remuda.config.suggest import section_at
from remuda.storage.atomic import write_text
from remuda.storage.run_folder import RunFolder

_WIDTH = 120


def write_configs(run_dir: Path, config: ExperimentConfig, provenance: Mapping[str, Origin]) -> str | None:
    """Write config.json, total_config.py and formatted_total_config.py, each whole or not at all. Raises OSError.

    Secrets are in config.json alone, which is then the user's own to read. Where there was one with other settings, it
    is kept as config_<n>.json; returns a warning for the log that says what differs.
    """
    run = RunFolder(run_dir)
    changed = changed_settings(run_dir, config)
    warning = f"{told(changed)} (the former ones are in {keep_former(run_dir).name})" if changed else None
    write_text(run.total_config, total_config_text(config), durable=True)
    write_text(run.formatted_total_config, formatted_total_config_text(config, provenance), durable=True)
    mode = config_mode(_settings(config))
    write_text(run.config_json, config_json_text(config), durable=True, mode=mode)  # last: it makes the folder a run
    return warning


def write_custom_configs(run_dir: Path, settings: Mapping[str, JsonValue]) -> None:
    """Write the same files for settings of any kind, which are no experiment's. Raises OSError."""
    run = RunFolder(run_dir)
    literal = f"{VARIABLE} = {pprint.pformat(masked(dict(settings)), width=_WIDTH, sort_dicts=False)}\n"
    write_text(run.total_config, literal, durable=True)
    write_text(run.formatted_total_config, f"# Every setting of this run.\n{literal}", durable=True)
    text, mode = json_text({EXP_NAME: settings.get("name"), **settings}), config_mode(dict(settings))
    write_text(run.config_json, text, durable=True, mode=mode)


def config_json_text(config: ExperimentConfig, *, for_people: bool = False, auto: Collection[str] = ()) -> str:
    """Every setting, sorted and indented; of each of several policies what differs from `policy`, `learner` and
    `buffer`. Never fails, even for a config that was made without validation. `for_people` secrets are masked, as in
    all other texts here. `auto` are settings (dotted keys) that are to be measured.

    The name stands there a second time as `exp_name`, under which Spinning Up's plotting groups and labels runs.
    """
    settings = _shown(config) if for_people else _settings(config)
    return json_text({**with_auto(settings, auto), EXP_NAME: settings.get("name")})


def total_config_text(config: ExperimentConfig) -> str:
    """Every setting as one Python literal."""
    return f"{VARIABLE} = {pprint.pformat(_shown(config), width=_WIDTH, sort_dicts=False)}\n"


def formatted_total_config_text(config: ExperimentConfig, provenance: Mapping[str, Origin] | None = None) -> str:
    """The same literal with what each setting means above it and, behind it, whether it was set or is the default."""
    lines = ["# Every setting of this run. Edit it and run it again: remuda train formatted_total_config.py"]
    lines += [f"{VARIABLE} = {{", *_section_lines(_shown(config), (), provenance or {}), "}"]
    return "\n".join(lines) + "\n"


def yaml_text(
    config: ExperimentConfig, provenance: Mapping[str, Origin] | None = None, *, auto: Collection[str] = ()
) -> str:
    """Every setting as YAML, with the origin of those that are no defaults behind them; `auto` as above."""
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
