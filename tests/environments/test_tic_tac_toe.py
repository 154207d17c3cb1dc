"""examples/tic_tac_toe.py tells each side what it sees, and ends a game at a wrong move."""

from __future__ import annotations

import copy
from typing import Any

from remuda.examples.tic_tac_toe import TicTacToe


def begun() -> TicTacToe:
    env = TicTacToe()
    env.reset(seed=0)
    return env


def after(env: TicTacToe, *moves: int) -> tuple[TicTacToe, tuple[Any, ...]]:
    """A copy of the game after these moves, and what the last of them brought."""
    env = copy.copy(env)
    brought: tuple[Any, ...] = ()
    for move in moves:
        brought = env.step(move)
    return env, brought


def test_all_is_told_from_the_side_that_moves() -> None:
    env = TicTacToe()
    seen, info = env.reset(seed=0)
    assert not seen.any()
    assert (info["action_mask"].tolist(), info["to_play"]) == ([1] * 9, 0)
    seen, reward, terminated, truncated, info = env.step(4)
    assert (reward, terminated, truncated, info["to_play"]) == (0.0, False, False, 1)
    assert (seen[0].sum(), seen[1].tolist()) == (0.0, [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    assert info["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]
    seen, *_, info = env.step(0)
    assert (seen[0, 1, 1], seen[1, 0, 0], seen.sum(), info["to_play"]) == (1.0, 1.0, 2.0, 0)


def test_a_square_that_is_taken_loses_the_game() -> None:
    for moves in ((4, 4), (4, 0, 4)):
        _, (_, reward, terminated, _, _) = after(begun(), *moves)
        assert (reward, terminated) == (-1.0, True)
