"""examples/tic_tac_toe_match.py counts games rightly, and its perfect player is one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
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
    """A player as what load_policy returns: it sees an observation, and the mask."""
    rng = np.random.default_rng(1)

    def get_action(observation: Any, *, legal_actions: Any) -> int:
        env = match.TicTacToe()
        env.squares = observation.reshape(2, 9)
        assert (legal_actions == (env.squares.sum(axis=0) == 0)).all()
        return int(player(env, rng))

    return get_action


@pytest.mark.parametrize("begins", [True, False])
def test_the_perfect_player_draws_with_itself_and_loses_to_nobody(match: Any, begins: bool) -> None:
    perfect, at_random = (as_policy(match, player) for player in (match.perfect, match.at_random))
    assert match.match(perfect, match.perfect, begins=begins, games=20) == (0, 20, 0)
    won, drawn, lost = match.match(perfect, match.at_random, begins=begins, games=40)
    assert (won + drawn, lost) == (40, 0)
    assert won > 20
    won, drawn, lost = match.match(at_random, match.perfect, begins=begins, games=40)
    assert (won, drawn + lost) == (0, 40)
    assert lost > 20


def test_what_moves_are_worth(match: Any) -> None:
    nothing = (0.0,) * 9
    assert set(match.values(nothing, nothing).values()) == {0}, "perfect play is a draw"
    corner = (1.0, *nothing[1:])
    assert {move for move, value in match.values(nothing, corner).items() if value == 0} == {4}, "the middle alone"
