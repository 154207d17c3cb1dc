"""Pages of TensorBoard besides the curves: a run's settings, and its results beside its hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import JsonValue

from remuda.config.flat import flat
from remuda.wire.messages import ExperimentStatus

_NOT_COMPARED = ("name", "exp_name", "log", "limits", "launch", "checkpoint", "source_dir", "affinity")
"""Settings that do not affect how well a run learns."""


def as_markdown(settings: Mapping[str, JsonValue]) -> str:
    """The settings as a block of YAML."""
    import yaml  # not above: workers import this module too, and never call this

    text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    return "".join(f"    {line}\n" for line in text.splitlines())


def hyperparameters(settings: Mapping[str, JsonValue]) -> dict[str, object]:
    """Dotted names and values of the settings that are compared between runs: numbers, booleans and text."""
    compared = {name: value for name, value in settings.items() if name not in _NOT_COMPARED}
    return {name: value for name, value in listed(compared) if value is not None}


def listed(settings: Mapping[str, JsonValue]) -> list[tuple[str, JsonValue]]:
    """Dotted names and values; lists as text."""
    return [(name, str(value) if isinstance(value, list | dict) else value) for name, value in flat(settings).items()]


def results_of(status: ExperimentStatus) -> dict[str, float]:
    """How a run ended, in numbers."""
    results = {
        "best_return": status.best_return,
        "last_return": status.last_return,
        "env_step": status.env_step,
        "train_iter": status.train_iter,
        "wall_s": status.wall_s,
    }
    return {name: float(value) for name, value in results.items() if value is not None and math.isfinite(value)}
