"""Imports inside policy/ point down only: from files and algorithms to acting, networks and spaces."""

from __future__ import annotations

from remuda.tests.rooms import Rooms

ROOMS = Rooms(
    "policy",
    (
        {"ranks", "returns", "saved_state", "schedules", "spaces"},
        {"networks"},
        {"base"},
        {"acting", "transitions"},
        {"entry", "network_learner", "torch_distributions"},
        {"algorithms"},
        {"files", "row_plan"},
        {"export", "opponent_pool"},
    ),
)


def test_every_module_and_room_has_its_level() -> None:
    assert ROOMS.unlisted() == set()


def test_imports_between_rooms_point_down() -> None:
    assert ROOMS.wrong() == []
