"""Let a trained policy play tic-tac-toe against a perfect player and against a random one, from both sides.

python examples/tic_tac_toe_match.py runs/tic_tac_toe [checkpoint] [games]
"""

import sys
from functools import cache

import numpy as np
from tic_tac_toe import LINES, TicTacToe

from remuda import load_policy


def perfect(env, rng):
    """One of the best moves, by looking through all games to their end."""
    moves = values(tuple(env.squares[0]), tuple(env.squares[1]))
    best = max(moves.values())
    return rng.choice([move for move, value in moves.items() if value == best])


@cache
def values(mine, others):
    """What each legal move is worth to the side that makes it: 1 wins, 0 is a draw, -1 loses."""
    moves = {}
    for move in range(9):
        if not mine[move] and not others[move]:
            after = (*mine[:move], 1.0, *mine[move + 1 :])
            won = any(all(after[square] for square in line) for line in LINES)
            full = sum(after) + sum(others) == 9
            moves[move] = 1 if won else 0 if full else -max(values(others, after).values())
    return moves


def at_random(env, rng):
    """Any legal move."""
    return rng.choice(np.flatnonzero(env.squares.sum(axis=0) == 0))


def play(get_action, opponent, rng, *, begins):
    """Play a game; what it brought the policy: 1, 0 or -1."""
    env = TicTacToe()
    observation, info = env.reset()
    over = False
    while not over:
        policy_moves = (info["to_play"] == 0) == begins
        legal = info["action_mask"]
        move = get_action(observation, legal_actions=legal) if policy_moves else opponent(env, rng)
        observation, reward, over, _, info = env.step(int(move))
    return int(reward if policy_moves else -reward)


def match(get_action, opponent, *, begins, games=100, seed=0):
    """How many of the games the policy won, drew and lost."""
    rng = np.random.default_rng(seed)
    results = [play(get_action, opponent, rng, begins=begins) for _ in range(games)]
    return results.count(1), results.count(0), results.count(-1)


if __name__ == "__main__":
    run_dir, which, games = [*sys.argv[1:], *["last", "100"][len(sys.argv) - 2 :]]
    _, get_action = load_policy(run_dir, int(which) if which.isdigit() else which)
    print("opponent  begins     won  drawn  lost")
    for opponent in (perfect, at_random):
        for begins in (True, False):
            won, drawn, lost = match(get_action, opponent, begins=begins, games=int(games))
            print(f"{opponent.__name__:9} {'policy' if begins else 'opponent':9} {won:4} {drawn:6} {lost:5}")
