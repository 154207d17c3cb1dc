"""The committed page and the editors' schema say what the schema says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from remuda.config.algorithms.registry import BUILT_IN, DEFAULT
from remuda.config.explain import all_keys, kinds_at
from remuda.config.reference import json_schema_text, markdown_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown_text(), (
        "the schema changed: run `remuda config schema --markdown > docs/configuration.md`"
    )


def test_every_setting_has_a_row_with_type_default_and_meaning() -> None:
    sections = markdown_text().partition("\n## Top level\n")[2]
    named: set[tuple[str, str]] = set()
    for section in re.split(r"^## ", sections, flags=re.M):
        title = section.partition("\n")[0]
        for line in (line for line in section.splitlines() if line.startswith("| `")):
            setting, *of, kind, default, meaning = line.replace("\\|", "").strip("| ").split(" | ")
            assert kind, line
            assert default, line
            assert len(meaning) > 10, f"{setting} is not explained"
            named |= {(title, f"{setting} {one}".strip()) for one in (of[0].split(", ") if of else [""])}
    kinds = kinds_at(("policy",))
    assert len(kinds) == len(BUILT_IN) + 1
    for kind in kinds:
        for name in (key.partition(".")[2] for key in all_keys(kind) if key.startswith("policy.")):
            assert {("policy", f"`{name}` {kind}"), ("policy", f"`{name}` all")} & named or name == "type", name
    for key in (key for key in all_keys() if not key.startswith(("policy.", "launch.ray."))):
        section, _, name = key.rpartition(".")
        assert (section, f"`{name}`") in named or f"\n| [{name}](#" in sections, key
    assert ("launch.ray.learner", "`num_gpus`") in named, "all roles have the settings of the first"


def test_editors_choose_the_section_by_its_type() -> None:
    """A policy without a type fits dqn alone, and one with a type of its own no section but the last."""
    schema = json.loads(json_schema_text())
    sections = {one["$ref"].removeprefix("#/$defs/"): schema["$defs"][one["$ref"].removeprefix("#/$defs/")]
                for one in schema["properties"]["policy"]["oneOf"]}  # fmt: skip
    required = {name: section.get("required", []) for name, section in sections.items()}
    default = type(DEFAULT).__name__
    assert required == {name: [] if name == default else ["type"] for name in sections}
    types = {name: section["properties"]["type"] for name, section in sections.items()}
    assert [one.get("const") for one in types.values()] == [*BUILT_IN, None]
    assert types["CustomConfig"]["not"] == {"enum": [*BUILT_IN]}


def test_json_schema_describes_and_closes_every_section() -> None:
    schema = json.loads(json_schema_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["name", "env"]
    sections = [schema, *(section for name, section in schema["$defs"].items() if name != "JsonValue")]
    assert len(sections) > 8
    open_ = [section for section in sections if section["additionalProperties"] is not False]
    assert open_ == [schema["$defs"]["CustomConfig"]]
    for section in sections:
        for setting in section["properties"].values():
            assert setting["description"]
    number, schedule = schema["$defs"]["LearnerConfig"]["properties"]["learning_rate"]["anyOf"]
    assert number["exclusiveMinimum"] == 0
    assert schedule["type"] == "array"
