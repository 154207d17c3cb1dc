"""examples/tic_tac_toe.py has every game there is, and no other."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv

from remuda.collector.rows import NStepRows
from remuda.environments.spaces import Array
from remuda.environments.vectors import Vector
from remuda.evaluator.evaluate import evaluate
from remuda.examples.tic_tac_toe import TicTacToe
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.policy.algorithms.untaught import Untaught

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
        self._values: dict[bytes, float] = {}

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

    def value(self, env: TicTacToe) -> float:
        """What the position is worth to the side that moves, if both play perfectly."""
        key = env.squares.tobytes()
        if key not in self._values:
            values: list[float] = []
            for move in free(env):
                later, (_, reward, terminated, _, _) = after(env, move)
                values.append(float(reward) if terminated else -self.value(later))
            self._values[key] = max(values)
        return self._values[key]

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


def test_perfect_play_is_a_draw_and_a_fork_wins() -> None:
    assert tree().value(begun()) == 0.0
    assert tree().value(after(begun(), 0, 1)[0]) == 1.0, "an edge is no answer to a corner"
    assert tree().value(after(begun(), 0, 4)[0]) == 0.0, "the middle is"
    assert tree().value(after(begun(), 0, 1, 4)[0]) == -1.0, "the middle, and two ways to win"


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


class Legally(Untaught):
    """Draws a legal action."""

    uses_legal_actions = True

    def act(
        self,
        observations: Array,
        exploration: Any,
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: Any = None,
        state: Any = None,
    ) -> Array:
        assert (legal == ~observations.any(axis=1).reshape(-1, 9))[legal.sum(axis=1) < 9].all()
        return np.asarray((legal * rng.random(legal.shape)).argmax(axis=1))

    def act_recording(
        self, observations: Array, exploration: Any, rng: np.random.Generator, *, legal: Any = None, state: Any = None
    ) -> tuple[Array, dict[str, Array]]:
        return self.act(observations, exploration, rng, deterministic=False, legal=legal), {}


def test_a_policy_that_is_told_takes_no_square_that_is_taken() -> None:
    vector: Vector = SyncVectorEnv([TicTacToe] * 4)
    rows = NStepRows(n_step=1, discount=1.0)
    chunk = OneRollout(vector, Legally(), rows=rows, rng=np.random.default_rng(0), seeds=range(4)).collect(2_000, {})
    assert set(chunk.columns["reward"].tolist()) == {0.0, 1.0}
    assert set(chunk.episode_lengths) == {5, 6, 7, 8, 9}
    played = evaluate([TicTacToe()], Legally(), seeds=range(50), rng=np.random.default_rng(0))
    assert {episode.return_ for episode in played} == {0.0, 1.0}
