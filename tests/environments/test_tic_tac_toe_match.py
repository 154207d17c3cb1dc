"""examples/tic_tac_toe_match.py counts games rightly, and its perfect player is one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def match(monkeypatch: pytest.MonkeyPatch) -> Generator[Any]:
    """The script as a module, found beside the game as when it is run."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield importlib.import_module("tic_tac_toe_match")
    for name in ("tic_tac_toe", "tic_tac_toe_match"):
        sys.modules.pop(name, None)


def as_policy(match: Any, player: Any) -> Any:
    """A player that always makes the first of its moves, as what load_policy returns: it sees an observation, and the
    mask."""

    def get_action(observation: Any, *, legal_actions: Any) -> int:
        env = match.TicTacToe()
        env.squares = observation.reshape(2, 9)
        assert (legal_actions == (env.squares.sum(axis=0) == 0)).all()
        return int(player(env)[0])

    return get_action


@pytest.mark.parametrize("begins", [True, False])
def test_the_perfect_player_draws_with_itself_and_loses_to_nobody(match: Any, begins: bool) -> None:
    perfect, first_square = (as_policy(match, player) for player in (match.perfect, match.anyone))
    won, drawn, lost = match.match(perfect, match.perfect, begins=begins)
    assert (won, lost) == (0, 0)
    assert drawn > 1, "there is more than one best game"
    won, drawn, lost = match.match(perfect, match.anyone, begins=begins)
    assert lost == 0
    assert won > drawn
    assert match.mistakes(perfect)[0] == 0 < match.mistakes(first_square)[0]
    won, drawn, lost = match.match(first_square, match.perfect, begins=begins)
    assert won == 0
    assert lost > 0
