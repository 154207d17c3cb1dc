"""Writes the page of all metrics from the declarations of the algorithms: `make docs`, or `python -m
remuda.docs.metrics_page`."""

from __future__ import annotations

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.declaration import BESIDES_MEAN, Declaration
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import built_in_entry, declaration
from remuda.policy.entry import BuiltInEntry

_OPENING = """\
<!-- Written by `make docs`; edit `meanings` of the entries in policy/algorithms/ instead. -->
# Metrics of the built-in algorithms

[Where they are shown](run-folder.md#learner). Five statistics are mean, deviation, largest, smallest and median.
`progress.txt` has the columns of the third column; metrics of [collected steps](run-folder.md#collected) have columns
of the same name there. Explorations are only in the learner's log and curves.

| metric | of | `progress.txt` | shows | meaning |
|---|---|---|---|---|
"""
_VARIANTS: dict[str, dict[str, object]] = {"muzero": {"gumbel": True}, "rainbow": {"noisy": False}}
"""Settings with further metrics."""


def markdown_text() -> str:
    """docs/metrics.md: a row for all algorithms with the same metric."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for kind in BUILT_IN:
        entry, both = built_in_entry(kind), declared(kind)
        assert isinstance(entry, BuiltInEntry), kind
        for name, meaning in entry.meanings.items():
            rest = f"{_columns(name, both)} | {_shows(name, both)} | {meaning}"
            kinds.setdefault((name, rest), []).append(kind)
    of = {row: "all" if len(some) == len(BUILT_IN) else ", ".join(some) for row, some in kinds.items()}
    return _OPENING + "".join(f"| `{name}` | {of[name, rest]} | {rest} |\n" for name, rest in sorted(kinds))


def declared(kind: str) -> list[Declaration]:
    """Return the declarations of an algorithm under the settings that add metrics."""
    policies: list[dict[str, object]] = [{"type": kind}, {"type": kind, **_VARIANTS.get(kind, {})}]
    example = {"name": "x", "env": {"id": "x"}}
    return [declaration(ExperimentConfig.model_validate({**example, "policy": policy})) for policy in policies]


def _columns(name: str, both: list[Declaration]) -> str:
    shown = (name, *(f"{name}_{statistic}" for statistic in BESIDES_MEAN))
    return ", ".join(f"`{column}`" for column, metric in both[0].loss_columns.items() if metric in shown)


def _shows(name: str, both: list[Declaration]) -> str:
    if any(name in one.collected for one in both):
        return "average over collected steps"
    if any(name in one.exploration for one in both):
        return "exploration"
    assert any(name in one.monitored for one in both), f"{name} has a meaning and is not declared"
    return "five statistics" if any(name in one.with_statistics for one in both) else "average"


if __name__ == "__main__":
    print(markdown_text(), end="")
