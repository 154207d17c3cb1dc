"""The committed page and the editors' schema say what the schema says."""

from __future__ import annotations

import json
from pathlib import Path

from remuda.config.algorithms.registry import BUILT_IN, DEFAULT
from remuda.config.explain import all_keys, kinds_at
from remuda.config.load import load_settings
from remuda.config.reference import json_schema_text, markdown_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown_text(), (
        "the schema changed: run `remuda config schema --markdown > docs/configuration.md`"
    )


def test_every_setting_has_a_row_with_type_default_and_meaning() -> None:
    settings, _, policy = markdown_text().partition("\n## Settings\n")[2].partition("\n## policy\n")
    named = {setting for setting, *_ in rows(settings)}
    kinds = kinds_at(("policy",))
    assert len(kinds) == len(BUILT_IN) + 1
    for setting, of, *_ in rows(policy):
        excepted = of.removeprefix("all but ").split(", ")
        which = of.split(", ") if not of.startswith("all") else [kind for kind in kinds if kind not in excepted]
        assert set(which) <= set(kinds), of
        named |= {f"{setting} of {kind}" for kind in which}
    for kind in kinds:
        missing = {key for key in all_keys(kind) if key.startswith("policy.") and f"{key} of {kind}" not in named}
        assert missing == {"policy.type"}
    alike = tuple(f"launch.ray.{role}." for role in ("collector", "evaluator", "reanalyzer", "inference"))
    others = {key for key in all_keys() if not key.startswith(("policy.", *alike))}
    assert {key for key in others - named if f"**{key}** | " not in settings} == set()
    assert {f"launch.ray.learner.{name}" for name in ("num_cpus", "num_gpus")} <= named, "all roles have its settings"


def test_a_setting_of_several_types_names_the_types_with_other_defaults() -> None:
    settings, _, policy = markdown_text().partition("\n## policy\n")
    (discount,) = (row for row in rows(policy) if row[0] == "policy.discount")
    assert discount[1:4] == ["all but custom", "number > 0 ≤ 1", "`0.99`; muzero, r2d2: `0.997`"]
    (size,) = (row for row in rows(settings) if row[0] == "learner.batch_size")
    assert size[2] == "`64`; muzero, sac, crossq, td3, iql: `256`; rainbow: `32`; bootstrapped_dqn: `128`"
    loaded = load_settings({"name": "x", "env": {"id": "x"}, "policy": {"type": "rainbow"}}, folder=PAGE.parent)
    assert loaded.config.learner.batch_size == 32


def rows(text: str) -> list[list[str]]:
    """Return the cells of the row of each setting. Every row has a type, a default and a meaning."""
    found = [line.replace("\\|", "").strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    for setting, *others in found:
        assert all(others), setting
        assert len(others[-1]) > 10 or others[0].startswith("section, as "), f"{setting} is not explained"
    return [[setting.strip("`"), *others] for setting, *others in found]


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
