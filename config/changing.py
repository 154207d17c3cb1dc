"""Numbers among the settings that may change while a run goes on: in place of each a config may give a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeVar, cast

from pydantic import (
    BaseModel,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, SchemaValidator, core_schema
from pydantic_core.core_schema import SerializerFunctionWrapHandler, ValidatorFunctionWrapHandler

from remuda.config.declaration import Schedule, rising
from remuda.config.numbers import LARGEST_COUNT, no_bool
from remuda.config.section import Section

Settings = TypeVar("Settings", bound=Section)
MOST_POINTS = 1_000
SCHEDULE = "schedule"
"""The title of a schedule in the JSON Schema."""
_ENV_STEP = core_schema.no_info_before_validator_function(no_bool, core_schema.int_schema(ge=0, le=LARGEST_COUNT))
_IN_JSON: JsonSchemaValue = {
    "title": SCHEDULE,
    "type": "array",
    "minItems": 1,
    "maxItems": MOST_POINTS,
    "items": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}], "minItems": 2, "maxItems": 2},
}


class MayChange:
    """Marks a number of an algorithm's settings, or of the learner's, that may change while a run goes on: each update
    reads it again, and nothing is sized by it. `clip: Annotated[float, remuda.MayChange()] = 0.2`."""

    def __init__(self, values: object = None) -> None:
        """`values` is the type of a schedule's values where they may be what a constant may not: fall to 0."""
        self._values = values

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The number, or a schedule whose values each are such a number."""
        number = handler(source)
        value = number if self._values is None else handler.generate_schema(self._values)
        point = core_schema.tuple_positional_schema([_ENV_STEP, value])
        points = core_schema.no_info_after_validator_function(_checked, core_schema.tuple_variable_schema(point))

        @cache  # most processes never see a schedule
        def schedule() -> SchemaValidator:
            return SchemaValidator(points)

        def number_or_schedule(given: object, validate: ValidatorFunctionWrapHandler) -> object:
            return schedule().validate_python(given) if isinstance(given, list | tuple) else validate(given)

        return core_schema.no_info_wrap_validator_function(number_or_schedule, number)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The same, for editors."""
        number = handler(schema)
        return {"anyOf": [*number.get("anyOf", [number]), _IN_JSON]}


def _checked(points: Schedule) -> Schedule:
    if not 0 < len(points) <= MOST_POINTS:
        raise ValueError(f"should have 1 to {MOST_POINTS} points [env_step, value], not {len(points)}")
    if any(cast("object", value) is None for _, value in points):
        raise ValueError("should have numbers at all its points, not null")
    return rising(points)


class ScheduledSection(Section):
    """A section of which some numbers may change. Each is typed as a number: where a config gives a schedule, the
    setting is its first value, and what is written down is the schedule."""

    _schedules: dict[str, Schedule] = PrivateAttr(default_factory=dict[str, Schedule])

    @model_validator(mode="after")
    def _put_schedules_aside(self) -> ScheduledSection:
        for name in may_change(type(self)):
            value: object = getattr(self, name)
            if isinstance(value, tuple):
                points = cast("Schedule", value)
                self._schedules[name] = points
                object.__setattr__(self, name, points[0][1])  # nobody else has seen it yet
        return self

    @model_serializer(mode="wrap")
    def _with_schedules(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        values = cast("dict[str, object]", handler(self))
        return {**values, **{name: points for name, points in self._schedules.items() if name in values}}


def schedules_of(section: BaseModel) -> Mapping[str, Schedule]:
    """The schedules that a section was given, by the names of its settings."""
    return section._schedules if isinstance(section, ScheduledSection) else {}  # pyright: ignore[reportPrivateUsage]


def with_numbers(section: Settings, numbers: Mapping[str, float]) -> Settings:
    """A copy of a section with these numbers, in place of schedules for them. They are not checked."""
    changed = section.model_copy(update=numbers)
    if isinstance(changed, ScheduledSection):
        left = {name: points for name, points in schedules_of(section).items() if name not in numbers}
        changed._schedules = left  # pyright: ignore[reportPrivateUsage]
    return changed


def may_change(kind: type[Section]) -> tuple[str, ...]:
    """The names of the settings of a section that may change while a run goes on."""
    fields = kind.model_fields.items()
    return tuple(name for name, field in fields if any(isinstance(mark, MayChange) for mark in field.metadata))
