"""The schema for people and for editors: docs/configuration.md and the JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.errors import Loc, dotted
from remuda.config.explain import all_keys, kinds_at, section_at
from remuda.config.schema import ExperimentConfig
from remuda.config.section import LARGEST_COUNT, LARGEST_FLOAT, SCHEDULE, Section, descriptions

_Schema = dict[str, Any]
"""A piece of JSON Schema."""

NAME = "NAME"
"""Placeholder for a name chosen by the user."""
_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}

_OPENING = """\
<!-- Written by `remuda config schema --markdown`; edit the files of config/ instead. -->
# Configuration

One config describes one experiment, for serial and parallel mode alike. Only `name` and one of `env.id` and `env.make`
are required. `remuda config check FILE` names the mistakes in a file, and settings without effect beside the others;
`remuda config show FILE` prints every setting with its source. `--set learner.batch_size=128` on the command line beats
the file (its value is YAML), the file beats the default of the [algorithm](#defaults-by-algorithm), and that beats the
default in the tables below. A run folder keeps the source of each setting (`file`, `command line`, `measured`,
`algorithm`, `default`) in `formatted_total_config.py` and for `remuda config show RUN_DIR --sources`. A resumed run
keeps the defaults with which it began.

A file is YAML 1.2 (`1e-3` is a number, `no` and `on` are words), JSON, or the `config.json`, `total_config.py` or
`formatted_total_config.py` of an earlier run. Tags, anchors, aliases, and unknown or repeated keys are refused. Editors
complete and check configs with the JSON Schema printed by `remuda config schema`.

## Schedules

A number whose type says "or schedule" may change during a run. In its place a config may have a list of points
`[env_step, value]`, by rising env_step: `learner: {learning_rate: [[0, 3e-4], [1000000, 0]]}`. Between the points the
value follows a straight line; before the first and after the last it is constant; whole numbers are rounded. Each
update uses the values at the accepted environment steps when its batch was drawn, so a resumed run continues with the
value of its step, and all ranks have the same. The learner's log and TensorBoard show the values as
`settings/learner.learning_rate`. `--set`, programs and sweeps take the same lists. All other numbers are fixed for a
run. (Exploration has settings of its own, such as `policy.epsilon_start`, `_end` and `_decay_env_steps`.)
"""

_BY_ALGORITHM = """\
These settings outside `policy` have the values of the algorithm's authors ([papers](built-in-algorithms.md#defaults)),
by `policy.type` alone; all others have the defaults of the sections below. `remuda train ALGORITHM --env ID` builds the
environment, and also chooses settings for images and kinds of actions. Each of several policies has the `learner` and
`buffer` of its own algorithm; all share the other sections, with the values of the whole config's `policy`. A class of
your own states its defaults [in the same way](algorithms.md#defaults-of-other-sections)."""


def json_schema_text() -> str:
    """Return the JSON Schema (draft 2020-12) of a config file, with descriptions of the settings."""
    schema: _Schema = ExperimentConfig.model_json_schema()
    ours = (section for section in _derived(Section) if section.__module__.startswith("remuda.config."))
    sections = {section.__name__: section for section in ours}
    _explain(schema, ExperimentConfig)
    for name, inner in schema["$defs"].items():
        if name in sections:
            _explain(inner, sections[name])
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema, indent=2) + "\n"


def _explain(schema: _Schema, section: type[Section]) -> None:
    """Add the docstrings of a section to its JSON Schema."""
    for name, text in descriptions(section).items():
        setting = schema["properties"].get(name)
        if setting is not None:
            schema["properties"][name] = dict(sorted({**setting, "description": text}.items()))


def _derived(section: type[Section]) -> Iterator[type[Section]]:
    for kind in section.__subclasses__():
        yield kind
        yield from _derived(kind)


def markdown_text() -> str:
    """docs/configuration.md: a table per section."""
    return "\n".join([_OPENING, *_by_algorithm(), *_section(())])


def _by_algorithm() -> list[str]:
    """Return a table of the algorithms' defaults for sections outside `policy`."""
    kinds = [one.settings for one in BUILT_IN.values()]
    keys = [key for key in all_keys() if any(key in settings.defaults for settings in kinds)]
    lines = ["## Defaults by algorithm", "", _BY_ALGORITHM, ""]
    lines += [f"| setting | {' | '.join(f'`{kind}`' for kind in BUILT_IN)} |", f"|---|{'---|' * len(BUILT_IN)}"]
    for key in keys:
        section, _, name = key.partition(".")
        inside = section_at((section,))
        assert inside is not None
        usual: object = inside.model_fields[name].get_default()
        values = (json.dumps(settings.defaults.get(key, usual)) for settings in kinds)
        lines.append(f"| `{key}` | {' | '.join(values)} |")
    return [*lines, ""]


def _section(loc: Loc) -> list[str]:
    """Return a section with its inner sections. Siblings of one class share an inner section."""
    section = section_at(loc)
    assert section is not None
    lines = [f"## {dotted(loc) or 'Top level'}", "", _one_line(section.__doc__ or ""), ""]
    lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
    inner: list[str] = []
    shown: dict[type[Section], str] = {}
    for name, schema in _properties(section).items():
        here = (*loc, name)
        meaning = _one_line(descriptions(section).get(name, ""))
        if NAME in loc and section_at(here):
            lines.append(f"| {name} | section, as `{name}` of the whole config | | {meaning} |")
        elif kinds := kinds_at(here):
            lines.append(f"| [{name}](#{_anchor(here)}) | section | | {meaning} |")
            inner += _choice(here, kinds)
        elif one := section_at(here):
            if one not in shown:
                inner += _section(here)
            lines.append(f"| [{name}](#{shown.setdefault(one, _anchor(here))}) | section | | {meaning} |")
        elif section_at((*here, NAME)):
            lines.append(f"| [{name}](#{_anchor((*here, NAME))}) | mapping of names to sections | `{{}}` | {meaning} |")
            inner += _section((*here, NAME))
        else:
            lines.append(f"| `{name}` | {_typed(schema)} | {meaning} |")
    return [*lines, "", *inner]


def _choice(loc: Loc, kinds: Sequence[str]) -> list[str]:
    """Return a section whose settings depend on its `type`: a row for all types with the same setting."""
    kinds_of: dict[tuple[str, str], list[str]] = {}
    lines = [
        f"## {dotted(loc)}",
        "",
        f"`{dotted(loc)}.type` chooses the settings; column `of` lists the types with a setting.",
        "",
    ]
    for kind in kinds:
        section = section_at(loc, kind)
        assert section is not None
        lines.append(f"- `{kind}`: {_one_line(section.__doc__ or '')}")
        for name, schema in _properties(section).items():
            if name != "type":
                row = f"{_typed(schema)} | {_one_line(descriptions(section).get(name, ''))} |"
                kinds_of.setdefault((name, row), []).append(kind)
    names = list(dict.fromkeys(name for name, _ in kinds_of))
    lines += ["", "| setting | of | type | default | meaning |", "|---|---|---|---|---|"]
    for (name, row), which in sorted(kinds_of.items(), key=lambda item: names.index(item[0][0])):
        lines.append(f"| `{name}` | {'all' if len(which) == len(kinds) else ', '.join(which)} | {row}")
    return [*lines, ""]


def _properties(section: type[Section]) -> dict[str, _Schema]:
    properties: dict[str, _Schema] = section.model_json_schema()["properties"]
    return properties


def _typed(schema: _Schema) -> str:
    """Return the cells of a setting's type and default."""
    default = f"`{json.dumps(schema['default'])}`" if "default" in schema else "required"
    return f"{_type(schema)} | {default}"


def _anchor(loc: Loc) -> str:
    """Returns the name by which a link finds the heading of a section."""
    return dotted(loc).replace(".", "").lower()


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _type(schema: _Schema) -> str:
    """`integer > 0`, `number ≥ 0 ≤ 1 or null`, `list of integer > 0`."""
    if schema.get("title") == SCHEDULE and schema.get("type") == "array":
        return "[schedule](#schedules)"
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        choices: list[str] = schema.get("enum") or [schema["const"]]
        return " or ".join(f"`{choice}`" for choice in choices)
    if "$ref" in schema:
        return "mapping"  # a section that may be a word instead; the meaning tells what is in it
    kind: str = schema["type"]
    name = {"array": "list", "object": "mapping"}.get(kind, kind)
    if "items" in schema:
        return f"{name} of {_type(schema['items'])}"
    bounds = [
        f"{sign} {schema[word]}"
        for word, sign in _BOUNDS.items()
        if schema.get(word, LARGEST_COUNT) not in (LARGEST_COUNT, LARGEST_FLOAT)
    ]
    return " ".join([name, *bounds])
