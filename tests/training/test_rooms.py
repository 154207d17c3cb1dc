"""Imports inside training/ point down only: what is written and read stands above the rules, snapshots below all."""

from __future__ import annotations

from remuda.tests.rooms import Rooms

ROOMS = Rooms(
    "training",
    (
        {"effects", "identity", "journal_database", "next_command", "snapshot", "vitals"},
        {"resume_point", "run_snapshot"},
        {"changed_rows", "journal_entry"},
        {"commander", "replay"},
        {"journal", "recording", "recovery", "status"},
    ),
)


def test_every_module_and_room_has_its_level() -> None:
    assert ROOMS.unlisted() == set()


def test_imports_between_rooms_point_down() -> None:
    """So the commander knows nothing of replay, nor the other way round."""
    assert ROOMS.wrong() == []
