"""The schema for people and for editors: docs/configuration.md and the JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.errors import Loc, dotted
from remuda.config.explain import kinds_at, section_at
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

One config describes one [run](concepts.md#words), for serial and parallel mode alike. Only `name` and one of `env.id`
and `env.make` are required. `remuda config check FILE` names the mistakes in a file, and settings without effect beside
the others; `remuda config show FILE` prints every setting with its source. `--set learner.batch_size=128` on the
command line beats the file (its value is YAML), the file beats the default of the [algorithm](#defaults-by-algorithm),
and that beats the default in the tables below. A run folder keeps the source of each setting (`file`, `command line`,
`measured`, `algorithm`, `default`) in `formatted_total_config.py` and for `remuda config show RUN_DIR --sources`. A
resumed run keeps the defaults with which it began.

A file is YAML 1.2 (`1e-3` is a number, `no` and `on` are words), JSON, or the `config.json`, `total_config.py` or
`formatted_total_config.py` of an earlier run. Tags, anchors, aliases, and unknown or repeated keys are refused. Editors
complete and check configs with the JSON Schema printed by `remuda config schema`.

## Schedules

A number whose type says "or schedule" may change during a run. In its place a config may have a list of points
`[env_step, value]`, by rising env_step: `learner: {learning_rate: [[0, 3e-4], [1000000, 0]]}`. Between the points the
value follows a straight line; before the first and after the last it is constant; whole numbers are rounded. Each
update uses the values at the accepted environment steps when its batch was drawn, so a resumed run continues with the
value of its step, and all ranks have the same. The learner's log and TensorBoard show the values as
`settings/learner.learning_rate`. `--set`, programs and sweeps take the same lists. Exploration has settings of its own,
such as `policy.epsilon_start`, `_end` and `_decay_env_steps`; all other numbers are fixed for a run.

## Defaults by algorithm

Where a default differs between algorithms, the tables name the types of the other defaults: "`64`; rainbow: `32`" is 64
for all types but rainbow. These are the choices of the algorithm's authors ([papers](built-in-algorithms.md#defaults)),
by `policy.type` alone. `remuda train ALGORITHM --env ID` builds the environment, and also chooses settings for images
and kinds of actions. Each of several policies has the `learner` and `buffer` of its own algorithm; all share the other
sections, with the values of the whole config's `policy`. A class of your own has the defaults of dqn, and [states
others](algorithms.md#defaults-of-other-sections).
"""


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
    """docs/configuration.md: a table of all settings by their full names, and one of the algorithms' settings."""
    return "\n".join([_OPENING, *_settings(), *_choice(("policy",), kinds_at(("policy",)))])


def _settings() -> list[str]:
    """Return the table of settings outside `policy`: per section a bold row, then a row per setting."""
    rows = _rows(())
    sections = re.findall(r'^\| <a id="(.*?)"></a>\*\*(\w+)\*\*', "\n".join(rows), re.M)
    named = ", ".join(f"[{name}](#{anchor})" for anchor, name in [("policy", "policy"), *sections])
    lines = ["## Settings", "", f"By full name, as after `--set`. Sections: {named}.", ""]
    return [*lines, "| setting | type | default | meaning |", "|---|---|---|---|", *rows, ""]


def _rows(loc: Loc) -> list[str]:
    """Return the rows of a section and of its inner sections. Sections of one class are written once."""
    section = section_at(loc)
    assert section is not None
    rows: list[str] = []
    inner: list[str] = []
    shown: dict[type[Section], str] = {}
    for name, schema in _properties(section).items():
        here = (*loc, name)
        meaning = _one_line(descriptions(section).get(name, ""))
        if NAME in loc and section_at(here):
            rows.append(f"| `{dotted(here)}` | section, as `{name}` of the whole config | | {meaning} |")
        elif kinds_at(here):
            rows.append(f"| [**{dotted(here)}**](#{_anchor(here)}) | section | | {meaning} |")
        elif one := section_at(here):
            if one in shown:
                inner.append(f"| **{dotted(here)}** | section, as `{shown[one]}` | | {meaning} |")
            else:
                shown[one] = dotted(here)
                inner += _headed(here, "section", _one_line(one.__doc__ or ""))
        elif named := section_at((*here, NAME)):
            meaning = f"{meaning} {_one_line(named.__doc__ or '')}"
            inner += _headed(here, "mapping of names to sections | `{}`", meaning, (*here, NAME))
        else:
            default = _by_kind(_defaults_of_kinds(dotted(here), _default(schema)))
            rows.append(f"| `{dotted(here)}` | {_type(schema)} | {default} | {meaning} |")
    return [*rows, *inner]


def _defaults_of_kinds(key: str, usual: str) -> Mapping[str, Sequence[str]]:
    """Return each default of a setting outside `policy`, with its algorithms."""
    found: dict[str, list[str]] = {}
    for kind, built_in in BUILT_IN.items():
        own = built_in.settings.defaults
        found.setdefault(f"`{json.dumps(own[key])}`" if key in own else usual, []).append(kind)
    return found


def _headed(loc: Loc, kind: str, meaning: str, inside: Loc | None = None) -> list[str]:
    """Return the bold row of a section, then the rows of its settings."""
    cells = kind if "|" in kind else f"{kind} |"
    return [f'| <a id="{_anchor(loc)}"></a>**{dotted(loc)}** | {cells} | {meaning} |', *_rows(inside or loc)]


def _choice(loc: Loc, kinds: Sequence[str]) -> list[str]:
    """Return a section whose settings depend on its `type`: a row for all types with the same type and meaning."""
    defaults: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    lines = [f"## {dotted(loc)}", "", f"`{dotted(loc)}.type` chooses the settings; column `of` lists the types.", ""]
    for kind in kinds:
        section = section_at(loc, kind)
        assert section is not None
        lines.append(f"- `{kind}`: {_one_line(section.__doc__ or '')}")
        for name, schema in _properties(section).items():
            if name != "type":
                row = (name, _type(schema), _one_line(descriptions(section).get(name, "")))
                defaults.setdefault(row, {}).setdefault(_default(schema), []).append(kind)
    lines += ["", "| setting | of | type | default | meaning |", "|---|---|---|---|---|"]
    names = list(dict.fromkeys(name for name, *_ in defaults))
    for (name, kind, meaning), by_default in sorted(defaults.items(), key=lambda item: names.index(item[0][0])):
        which = [each for each in kinds if any(each in some for some in by_default.values())]
        cells = (f"`{dotted((*loc, name))}`", _which(which, kinds), kind, _by_kind(by_default), meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _which(some: Sequence[str], kinds: Sequence[str]) -> str:
    """Return the types with a setting, or the few without it."""
    others = [kind for kind in kinds if kind not in some]
    if not others:
        return "all"
    return f"all but {', '.join(others)}" if len(others) < len(some) / 2 else ", ".join(some)


def _by_kind(defaults: Mapping[str, Sequence[str]]) -> str:
    """List the most common default, then each other default behind the names of its algorithms."""
    usual, *others = sorted(defaults, key=lambda value: -len(defaults[value]))
    return "; ".join([usual, *(f"{', '.join(defaults[value])}: {value}" for value in others)])


def _properties(section: type[Section]) -> dict[str, _Schema]:
    properties: dict[str, _Schema] = section.model_json_schema()["properties"]
    return properties


def _default(schema: _Schema) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else "required"


def _anchor(loc: Loc) -> str:
    """Return the name by which a link finds a section."""
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
