"""Sections of a config: frozen, strict about keys, described by docstrings, with numbers that may follow a schedule."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    PrivateAttr,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, SchemaValidator, core_schema
from pydantic_core.core_schema import SerializerFunctionWrapHandler, ValidatorFunctionWrapHandler

LARGEST_COUNT = 2**53
"""The largest integer every number of the wire and of a JSON reader holds exactly."""
LARGEST_FLOAT = 1e30
"""Largest float of a setting: computations use float32, with a limit of 3.4e38."""
LARGEST_CAPACITY = 100_000_000
"""Limit for rows; a row takes about 50 bytes of the coordinator's memory."""
LARGEST_WEIGHTS = 2**27
"""Weights between the layers of a network: 0.5 GiB, and about 3 GiB with gradients, optimizer and copies."""
LARGEST_REQUEST = 4_194_304
"""Limit for rows in one request for batches; the answer lists every row."""


def no_bool(value: object) -> object:
    """Keep `count: true` from meaning 1."""
    if isinstance(value, bool):
        raise ValueError(f"should be a number, not {str(value).lower()}")
    return value


def or_auto(most: int) -> WithJsonSchema:
    """Return the JSON Schema of a positive number or `auto`: see remuda.config.current."""
    number: dict[str, object] = {"type": "integer", "exclusiveMinimum": 0, "maximum": most}
    return WithJsonSchema({"anyOf": [number, {"const": "auto"}]})


_MAX_DEPTH = 32
"""Limit for converted levels of kwargs; the validation refuses a dict or list that contains itself."""


def as_json(value: object, depth: int = 0) -> object:
    """Convert tuples and numpy values, as in configs written in Python, to lists and plain numbers."""
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: as_json(item, depth + 1) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [as_json(item, depth + 1) for item in cast("list[object]", value)]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return cast("object", getattr(value, "tolist")())  # noqa: B009  (nothing is known of its type)
    return value


def all_finite(value: JsonValue) -> JsonValue:
    """Refuse NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: all_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [all_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"should contain finite numbers only, not {value}")
    return value


def at_least_one_layer(hidden: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse a network without a hidden layer to split into value and advantage."""
    if not hidden:
        raise ValueError("should name at least one hidden layer, not []")
    return hidden


def _not_too_large(units: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse a network too large for memory, with optimizer and copies."""
    _check_weights(sum(before * after for before, after in pairwise(units)))
    return units


def _filters_fit(layers: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    """Refuse a network without layers, or too large for memory, with optimizer and copies."""
    if not layers:
        raise ValueError(
            "has no layer: null takes the usual layers; to read images without convolutions, flatten them "
            "(gymnasium.wrappers.FlattenObservation)"
        )
    filters = [1, *(layer[0] for layer in layers)]
    kernels = [layer[1] for layer in layers]
    _check_weights(sum(a * b * kernel**2 for (a, b), kernel in zip(pairwise(filters), kernels, strict=True)))
    return layers


def _check_weights(weights: int) -> None:
    if weights > LARGEST_WEIGHTS:
        raise ValueError(f"has {weights} weights between its layers, and the most is {LARGEST_WEIGHTS}")


Positive = Annotated[int, Field(gt=0, le=LARGEST_COUNT), BeforeValidator(no_bool)]
NonNegative = Annotated[int, Field(ge=0, le=LARGEST_COUNT), BeforeValidator(no_bool)]
AnyFloat = Annotated[float, Field(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT), BeforeValidator(no_bool)]
Float = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(no_bool)]
PositiveFloat = Annotated[float, Field(gt=0, le=LARGEST_FLOAT, allow_inf_nan=False), BeforeValidator(no_bool)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=LARGEST_FLOAT, allow_inf_nan=False), BeforeValidator(no_bool)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(no_bool)]
Correlation = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), BeforeValidator(no_bool)]
LogStd = Annotated[float, Field(ge=-20, le=5, allow_inf_nan=False), BeforeValidator(no_bool)]
"""Of a standard deviation between 2e-9 and 150."""
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), BeforeValidator(no_bool)]
Units = Annotated[int, Field(gt=0, le=16_384), BeforeValidator(no_bool)]
Hidden = Annotated[tuple[Units, ...], Field(max_length=16), AfterValidator(_not_too_large)]
Pixels = Annotated[int, Field(gt=0, le=4_096), BeforeValidator(no_bool)]
Horizon = Annotated[int, Field(gt=0, le=100_000), BeforeValidator(no_bool)]
NSteps = Annotated[int, Field(gt=0, le=10_000), BeforeValidator(no_bool)]
UnrollSteps = Annotated[int, Field(gt=0, le=1_000), BeforeValidator(no_bool)]
Workers = Annotated[int, Field(gt=0, le=100_000), BeforeValidator(no_bool)]
ConvolutionLayer = tuple[Pixels, Pixels, Pixels]
"""Filters, kernel and stride in pixels."""
Convolution = Annotated[tuple[ConvolutionLayer, ...], Field(max_length=16), AfterValidator(_filters_fit)]
Cores = Annotated[tuple[NonNegative, ...], Field(min_length=1)]
Discount = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), BeforeValidator(no_bool)]
Kwargs = Annotated[dict[str, JsonValue], BeforeValidator(as_json), AfterValidator(all_finite)]
"""JSON values by name, including numpy's numbers and tuples."""
REFERENCE = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
Reference = Annotated[str, Field(pattern=REFERENCE)]
"""`module:name`."""


MOST_EVALUATION_EPISODES = 100_000
"""Limit for the episodes of one evaluation over all evaluators: all results fit into one message."""
MOST_OPPONENTS = 1_000
"""Limit for older checkpoints of a policy as opponents, in self-play."""
MOST_LEAGUE = 100
"""Limit for checkpoints in the pool of a league: each plays against each."""
MOST_COLLECTED = 50
"""Limit for collected metrics of an algorithm: every announcement of a chunk contains them."""


class Section(BaseModel):
    """A frozen part of the config that refuses unknown keys. The docstring under a setting explains the setting: see
    `descriptions`.

    The validator of a section is built on first use: usually a section is validated as a part of the whole config, and
    building both would slow down the start of every process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)


@cache
def descriptions(section: type[Section]) -> Mapping[str, str]:
    """Return the docstrings of a section's settings, including inherited settings, by name.

    Empty without source code, for example for classes typed into an interpreter.
    """
    found: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if issubclass(kind, Section):
            found |= docstrings_in(kind.__module__).get(kind.__qualname__, {})
    return found


@cache
def docstrings_in(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of all classes of a module, by qualified name."""
    try:
        source = inspect.getsource(sys.modules[name])
    except (KeyError, OSError, TypeError):
        return {}
    return dict(_in_classes(ast.parse(source).body, ""))


def _in_classes(body: list[ast.stmt], outer: str) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[str, dict[str, str]]] = []
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            name = f"{outer}{statement.name}"
            found.append((name, _under_settings(statement.body)))
            found += _in_classes(statement.body, f"{name}.")
        elif isinstance(statement, ast.FunctionDef):
            found += _in_classes(statement.body, f"{outer}{statement.name}.<locals>.")
    return found


def _under_settings(body: list[ast.stmt]) -> dict[str, str]:
    return {
        setting.target.id: inspect.cleandoc(text.value.value)
        for setting, text in pairwise(body)
        if isinstance(setting, ast.AnnAssign)
        and isinstance(setting.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def rising(points: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    """Refuse points of a schedule in wrong order."""
    if any(before >= after for (before, _), (after, _) in pairwise(points)):
        raise ValueError("should name environment steps in rising order, each once")
    return points


Schedule = Annotated[
    tuple[tuple[NonNegative, Float], ...], Field(min_length=1, max_length=1_000), AfterValidator(rising)
]
"""(env_step, value) by rising env_step: straight lines between, constant before the first and after the last."""


def value_at(schedule: tuple[tuple[int, float], ...], env_step: int) -> float:
    """Follow a schedule to an environment step."""
    left_step, left = schedule[0]
    if env_step <= left_step:
        return left
    for right_step, right in schedule[1:]:
        if env_step < right_step:
            break
        left_step, left = right_step, right
    else:
        return left
    done = (env_step - left_step) / (right_step - left_step)
    return (1.0 - done) * left + done * right  # exact at both ends, unlike left + done * (right - left)


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
    """Marks a number of `policy` or `learner` that may change during a run: every update reads the number again, and no
    size depends on it. `clip: Annotated[float, remuda.MayChange()] = 0.2`."""

    def __init__(self, values: object = None) -> None:
        """`values` is the type of a schedule's values, if different from the type of the constant: a schedule may fall
        to 0."""
        self._values = values

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Accept the number, or a schedule of such numbers."""
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


@dataclass(frozen=True)
class OnlyFor:
    """Marks a setting that only algorithms with this use of rows read: see Declaration.reuse."""

    reuse: Literal["replay", "once"]


class ScheduledSection(Section):
    """A section with numbers that may change. A changing setting is typed as a number: with a schedule, the attribute
    is the schedule's first value, and serialization writes the schedule."""

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
    """Return the schedules of a section, by setting."""
    return section._schedules if isinstance(section, ScheduledSection) else {}  # pyright: ignore[reportPrivateUsage]


def with_numbers(section: Settings, numbers: Mapping[str, float]) -> Settings:
    """Return a copy of a section with these numbers, in place of schedules, without validation."""
    changed = section.model_copy(update=numbers)
    if isinstance(changed, ScheduledSection):
        left = {name: points for name, points in schedules_of(section).items() if name not in numbers}
        changed._schedules = left  # pyright: ignore[reportPrivateUsage]
    return changed


def may_change(kind: type[Section]) -> tuple[str, ...]:
    """Return the names of a section's settings that may change during a run."""
    fields = kind.model_fields.items()
    return tuple(name for name, field in fields if any(isinstance(mark, MayChange) for mark in field.metadata))
