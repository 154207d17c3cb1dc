"""Imports inside coordinator/, policy/ and training/ point down only, from room to room: folders, and modules beside
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import pytest

from remuda.tests.test_house import ROOT, relative, source


@dataclass(frozen=True)
class Rooms:
    package: str
    order: Sequence[AbstractSet[str]]
    """From the ground up. Each room imports itself and what is below."""

    def unlisted(self) -> set[str]:
        """Rooms that are there and have no level, or the other way round."""
        there = {self._room_of(path) for path in self._modules()}
        return there ^ {name for names in self.order for name in names}

    def wrong(self) -> list[str]:
        """Imports that do not point down."""
        return [
            f"{place}: {source} must not import {target or 'the whole package'}"
            for place, source, target in self._arrows()
            if not self.allowed(source, target)
        ]

    def allowed(self, source: str, target: str) -> bool:
        levels = {name: level for level, names in enumerate(self.order) for name in names}
        return levels.get(target, len(self.order)) < levels[source]

    def _arrows(self) -> Iterator[tuple[str, str, str]]:
        """Place, room and target of each import of another room."""
        for path in self._modules():
            for line, name in source(path).imports:
                parts = name.split(".")
                target = parts[2] if len(parts) > 2 else ""
                if parts[:2] == ["remuda", self.package] and target != self._room_of(path):
                    yield f"{relative(path)}:{line}", self._room_of(path), target

    def _modules(self) -> list[Path]:
        root = ROOT / self.package
        return sorted(path for path in root.rglob("*.py") if path != root / "__init__.py")

    def _room_of(self, path: Path) -> str:
        return path.relative_to(ROOT / self.package).parts[0].removesuffix(".py")


ROOMS = [
    Rooms(
        "coordinator",
        (
            {"leases"},
            {"bill"},
            {"effects", "limits", "monitoring", "rights", "scheduler", "shares", "stream_server"},
            {"connections", "settings"},
            {"addresses", "failures", "registry"},
            {"experiment"},
            {"catalog"},
            {"events"},
            {"journaling"},
            {"assignments", "disk"},
            {"membership", "shutdown"},
            {"client_requests"},
            {"state"},
            {"measuring"},
            {"service"},
            {"__main__"},
        ),
    ),
    Rooms(
        "policy",
        (
            {"ranks", "returns", "saved_state", "schedules", "spaces"},
            {"networks"},
            {"base"},
            {"acting", "transitions"},
            {"entry", "network_learner", "return_distributions", "torch_distributions"},
            {"algorithms"},
            {"files", "row_plan"},
            {"export", "opponent_pool"},
        ),
    ),
    Rooms(
        "training",
        (
            {"changed_rows", "effects", "identity", "journal_database", "next_command", "snapshot", "vitals"},
            {"league"},
            {"resume_point", "run_snapshot"},
            {"journal_entry"},
            {"commander", "replay"},
            {"journal", "recording", "recovery", "status"},
        ),
    ),
]
every = pytest.mark.parametrize("rooms", ROOMS, ids=lambda rooms: rooms.package)


@every
def test_every_module_and_room_has_its_level(rooms: Rooms) -> None:
    assert rooms.unlisted() == set()


@every
def test_imports_between_rooms_point_down(rooms: Rooms) -> None:
    assert rooms.wrong() == []
