"""Imports inside coordinator/, policy/ and training/ point down only, from room to room: folders, and modules beside
them. No file and no room is large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import pytest

from remuda.tests.test_house import LAYER_OF, ROOT, relative, source


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
            {"effects", "monitoring", "rights", "scheduler", "settings", "shares", "stream_server"},
            {"connections"},
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
            {"acting"},
            {"entry", "network_learner", "return_distributions", "torch_distributions"},
            {"algorithms"},
            {"files", "row_plan"},
            {"export", "opponent_pool"},
        ),
    ),
    Rooms(
        "training",
        (
            {"effects", "journal_database", "next_command", "snapshot", "vitals"},
            {"league"},
            {"run_snapshot"},
            {"journal_entry"},
            {"commander", "replay"},
            {"journal", "recovery", "status"},
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


MOST_LINES = 400
MOST_FILES = 25


def code_of(*suffixes: str) -> list[Path]:
    """Files of the product with these suffixes, in any folder."""
    return [path for package in LAYER_OF for path in (ROOT / package).rglob("*") if path.suffix in suffixes]


def test_files_are_short() -> None:
    """In Python and JavaScript: a search tree in C is one idea in more lines."""
    files = [*code_of(".py", ".js"), *(ROOT / "docs").glob("*.py"), *(ROOT / "examples").rglob("*.py")]
    lines = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_folders_have_few_files() -> None:
    """Of code in any language."""
    counts = Counter(relative(path.parent) for path in code_of(".py", ".c", ".h", ".js", ".html", ".css"))
    assert counts.keys() >= {"cli", "page/static", "policy/algorithms/muzero/search"}
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}
