"""examples/tic_tac_toe.py has every game there is, and no other."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np

from remuda.examples.tic_tac_toe import TicTacToe

GAMES = {"wins of the first": 131_184, "wins of the second": 77_904, "draws": 46_080}
"""255,168 in all, as is well known."""


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


def free(env: TicTacToe) -> list[int]:
    return np.flatnonzero(env.squares.sum(axis=0) == 0).tolist()


class Tree:
    """Every position, each looked at once."""

    def __init__(self) -> None:
        self._games: dict[bytes, np.ndarray] = {}

    def games(self, env: TicTacToe) -> np.ndarray:
        """How many games go on from here to each end: won by whoever began, by the other, drawn."""
        key = env.squares.tobytes()
        if key not in self._games:
            total = np.zeros(3, np.int64)
            for move in free(env):
                later, (_, reward, terminated, _, _) = after(env, move)
                if terminated:
                    total[env.moves % 2 if reward else 2] += 1
                else:
                    total += self.games(later)
            self._games[key] = total
        return self._games[key]

    @property
    def positions(self) -> int:
        return len(self._games)


@cache
def tree() -> Tree:
    return Tree()


def test_it_has_exactly_the_games_there_are() -> None:
    games = tree().games(begun())
    assert games.tolist() == list(GAMES.values())
    assert games.sum() == 255_168
    assert tree().positions == 4_520, "of 5,478 different positions 958 end the game"


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
