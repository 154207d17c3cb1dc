"""Types of numbers, lists and names in settings, with bounds."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, WithJsonSchema

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
    """Return the JSON Schema of a positive number or `auto`: see remuda.config.auto."""
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


def _filters_not_too_large(layers: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    """Refuse a network too large for memory, with optimizer and copies."""
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
Convolution = Annotated[tuple[ConvolutionLayer, ...], Field(max_length=16), AfterValidator(_filters_not_too_large)]
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
MOST_COLLECTED = 50
"""Limit for collected metrics of an algorithm: every announcement of a chunk contains them."""
