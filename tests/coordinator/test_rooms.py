"""Imports inside the coordinator point down only: from the loop to the state machine, an experiment, and its parts."""

from __future__ import annotations

from remuda.tests.rooms import Rooms

ROOMS = Rooms(
    "coordinator",
    (
        {"effects", "limits", "monitoring", "rights", "scheduler", "stream_server"},
        {"connections", "leases", "settings"},
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
)


def test_every_module_and_room_has_its_level() -> None:
    assert ROOMS.unlisted() == set()


def test_imports_between_rooms_point_down() -> None:
    assert ROOMS.wrong() == []
