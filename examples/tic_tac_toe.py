"""Tic-tac-toe as self-play: the policy makes the moves of both sides in turn. For algorithms that plan for two players.

In a config: `env: {make: "tic_tac_toe:TicTacToe"}`.
"""

from typing import Any

import gymnasium
import numpy as np

LINES = np.array([(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)])
"""Three squares in a row; squares are numbered 0 to 8, line by line."""


class TicTacToe(gymnasium.Env[np.ndarray, Any]):
    """A step is one move, and observations and rewards are from the side of the moving player.

    Observations are float32 [2, 3, 3]: the squares of the player to move, and the squares of the opponent. An action is
    the number of a square. The reward belongs to the player who made the move: 1 for a win, -1 for a taken square,
    which loses the game, else 0. A gain of one player is a loss of the opponent.

    `info` has `action_mask`, 1 for every free square (0 everywhere after the game), and `to_play`, 0 if the player who
    began moves next, else 1.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2, 3, 3), np.float32)
    action_space = gymnasium.spaces.Discrete(9)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.squares = np.zeros((2, 9), np.float32)  # of the side that moves next, and of the other
        self.moves, self.over = 0, False
        return self._seen(), self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        taken = bool(self.squares[:, action].any())
        mine, others = self.squares.copy()
        mine[action] = 1.0
        won = not taken and bool(mine[LINES].all(axis=1).any())
        self.squares = np.stack([others, mine])
        self.moves += 1
        self.over = won or taken or self.moves == 9
        return self._seen(), float(won) - float(taken), self.over, False, self._info()

    def _seen(self) -> np.ndarray:
        return self.squares.reshape(2, 3, 3).copy()

    def _info(self) -> dict[str, Any]:
        free = ~self.squares.any(axis=0) & (not self.over)
        return {"action_mask": free.astype(np.int8), "to_play": self.moves % 2}
