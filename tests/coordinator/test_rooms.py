"""Imports inside the coordinator point down only: from the loop to the state machine, an experiment, and its parts."""

from __future__ import annotations

import pytest

from remuda.tests.rooms import Rooms

ROOMS = Rooms(
    "coordinator",
    (
        {"effects", "limits", "monitoring", "rights", "scheduler", "stream_server", "throttled_lines"},
        {"connections", "leases", "settings"},
        {"addresses", "registry"},
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
    assert ROOMS.allowed(source, target) is may
