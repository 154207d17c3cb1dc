"""Tic-tac-toe for MuZero's tests: a strict environment, games as rows, and a model with the true rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv

from remuda.collector.rows import UnrollRows
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.environments.spaces import Array
from remuda.environments.vectors import Vector
from remuda.examples.tic_tac_toe import LINES, TicTacToe
from remuda.policy.algorithms.muzero.search.rules import Actions, Floats, Nodes
from remuda.policy.base import Arrays, Policy
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.policy.algorithms.untaught import Untaught

SQUARES = ActionSpec(9)
BOARD = ObservationSpec((2, 3, 3), "float32")


class Strict(TicTacToe):
    """An illegal move is an error."""

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self.squares[:, action].any():
            raise ValueError(f"square {action} is taken")
        return super().step(action)


def strict() -> Strict:
    """For `env.make` of a config."""
    return Strict()


def board(mine: Sequence[int], others: Sequence[int]) -> Array:
    """An observation: squares of the side to move, and squares of the other side."""
    squares = np.zeros((2, 9), np.float32)
    squares[0, list(mine)] = squares[1, list(others)] = 1.0
    return squares.reshape(2, 3, 3)


def legal_on(boards: Array) -> Array:
    """True for free squares, bool [n, 9]."""
    return np.asarray(~boards.any(axis=1).reshape(-1, 9))


RECORDED: Mapping[str, tuple[tuple[int, ...], str]] = {
    "search_policy": ((9,), "float32"),
    "root_value": ((), "float32"),
}


class Scripted(Untaught):
    """Makes the given moves in every game, and records them as a search's best moves."""

    def __init__(self, moves: Sequence[int]) -> None:
        self._moves = np.array([*moves, 0])  # the last for a game that is over: it is not played

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return RECORDED

    def act(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> Array:
        return np.asarray(self._moves[observations.sum(axis=(1, 2, 3)).astype(int)])

    def act_recording(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> tuple[Array, Arrays]:
        moves = self.act(observations, exploration, rng, deterministic=True)
        return moves, {"search_policy": np.eye(9, dtype=np.float32)[moves], "root_value": np.zeros(len(moves))}


def games(
    policy: Policy,
    config: MuZeroConfig,
    *,
    env_steps: int,
    num_envs: int = 1,
    exploration: Mapping[str, float] | None = None,
) -> dict[str, Array]:
    """Columns of a batch: a collector's rows of games that the policy plays."""
    vector: Vector = SyncVectorEnv([Strict] * num_envs)
    rows = UnrollRows(unroll_steps=config.unroll_steps, n_step=config.n_step, discount=config.discount)
    rollout = OneRollout(vector, policy, rows=rows, rng=np.random.default_rng(0), seeds=range(num_envs))
    columns = rollout.collect(env_steps, exploration or {}).columns
    return {**columns, "weights": np.ones(len(columns["reward"]), np.float32)}


class TrueModel:
    """A model with the rules alone: equal priors, and value 0 until the game is over.

    Moving to a taken square loses the game, as in the environment. Nothing follows the end.
    """

    def begin(self, observations: Array, simulations: int) -> tuple[Floats, Floats]:
        n = len(observations)
        self._squares = np.zeros((simulations + 1, n, 2, 9), np.bool_)
        self._over = np.zeros((simulations + 1, n), np.bool_)
        self._squares[0] = observations.reshape(n, 2, 9) > 0
        return self._unsure(n)

    def expand(self, parents: Nodes, actions: Actions, node: int) -> tuple[Floats, Floats, Floats]:
        n = len(parents)
        every = np.arange(n)
        before, over = self._squares[parents, every], self._over[parents, every]
        taken = before[every, :, actions].any(axis=1)
        mine = before[:, 0].copy()
        mine[every, actions] = True
        lines: Array = np.asarray(mine[:, LINES].all(axis=2))
        won = lines.any(axis=1) & ~taken
        self._squares[node] = np.stack([before[:, 1], mine], axis=1)
        self._over[node] = over | won | taken | (mine | before[:, 1]).all(axis=1)
        reward = np.where(over, 0.0, won.astype(np.float32) - taken).astype(np.float32)
        return reward, *self._unsure(n)

    def _unsure(self, n: int) -> tuple[Floats, Floats]:
        return np.full((n, 9), 1 / 9, np.float32), np.zeros(n, np.float32)
