"""Imports inside the coordinator point down only: from the loop to the state machine, an experiment, and its parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.tests.test_house import ROOT, imported, relative, tree

COORDINATOR = ROOT / "coordinator"
ORDER = (
    {"effects", "reachable", "registry", "scheduler", "turn_watch"},
    {"connections", "leases"},
    {"experiment"},
    {"events"},
    {"journaling"},
    {"assignments", "disk"},
    {"membership", "shutdown"},
    {"client_requests"},
    {"state"},
    {"service"},
    {"__main__"},
)
"""From the ground up: rooms (folders), and the modules beside them. Each imports itself and what is below."""
LEVEL_OF = {name: level for level, names in enumerate(ORDER) for name in names}


def room_of(path: Path) -> str:
    return path.relative_to(COORDINATOR).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return sorted(path for path in COORDINATOR.rglob("*.py") if path != COORDINATOR / "__init__.py")


def arrows() -> Iterator[tuple[str, str, str]]:
    """Place, room and target of each import of another room."""
    for path in modules():
        for line, name in imported(tree(path)):
            parts = name.split(".")
            target = parts[2] if len(parts) > 2 else ""
            if parts[:2] == ["remuda", "coordinator"] and target != room_of(path):
                yield f"{relative(path)}:{line}", room_of(path), target


def allowed(source: str, target: str) -> bool:
    return LEVEL_OF.get(target, len(ORDER)) < LEVEL_OF[source]


def test_every_module_and_room_has_its_level() -> None:
    assert {room_of(path) for path in modules()} == set(LEVEL_OF)


def test_imports_between_rooms_point_down() -> None:
    wrong = [
        f"{place}: {source} must not import {target or 'the whole package'}"
        for place, source, target in arrows()
        if not allowed(source, target)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "target", "may"),
    [
        ("state", "experiment", True),
        ("experiment", "leases", True),
        ("leases", "experiment", False),
        ("experiment", "disk", False),
        ("disk", "experiment", True),
        ("effects", "journaling", False),
        ("effects", "unheard_of", False),
    ],
)
def test_the_rule_itself(source: str, target: str, may: bool) -> None:
    assert allowed(source, target) is may
