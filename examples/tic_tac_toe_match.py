"""Let a trained policy play tic-tac-toe from both sides: every possible game, because the policy always makes the same
moves. One opponent is perfect, and makes any of its best moves; the second opponent makes any move at all.

python examples/tic_tac_toe_match.py runs/tic_tac_toe [checkpoint]

The run is of tic_tac_toe_muzero.yaml or tic_tac_toe_league.yaml.
"""

import copy
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
from tic_tac_toe import LINES, TicTacToe

from remuda.policy.files.functions import load_action


def perfect(env):
    """Return the best moves, by searching all games to their end."""
    moves = values(tuple(env.squares[0]), tuple(env.squares[1]))
    best = max(moves.values())
    return [move for move, value in moves.items() if value == best]


def anyone(env):
    """All legal moves."""
    return np.flatnonzero(env.squares.sum(axis=0) == 0).tolist()


@cache
def values(mine, others):
    """Return the value of every legal move for the moving player: 1 wins, 0 is a draw, -1 loses."""
    moves = {}
    for move in range(9):
        if not mine[move] and not others[move]:
            after = (*mine[:move], 1.0, *mine[move + 1 :])
            won = any(all(after[square] for square in line) for line in LINES)
            full = sum(after) + sum(others) == 9
            moves[move] = 1 if won else 0 if full else -max(values(others, after).values())
    return moves


def play(get_action, opponent, *, begins):
    """Play all games; return the policy's results: 1, 0 or -1."""
    env = TicTacToe()
    observation, info = env.reset()
    results = []
    positions = [(env, observation, info)]
    while positions:
        env, observation, info = positions.pop()
        policy_moves = (info["to_play"] == 0) == begins
        moves = [int(get_action(observation, legal_actions=info["action_mask"]))] if policy_moves else opponent(env)
        for move in moves:
            after = copy.deepcopy(env)
            observation, reward, over, _, info = after.step(move)
            if over:
                results.append(int(reward if policy_moves else -reward))
            else:
                positions.append((after, observation, info))
    return results


def match(get_action, opponent, *, begins):
    """Return the numbers of games that the policy won, drew and lost."""
    results = play(get_action, opponent, begins=begins)
    return results.count(1), results.count(0), results.count(-1)


def mistakes(get_action):
    """Return the number of positions in which the policy's move gives a better result away, and the number of all
    positions that the policy can meet."""
    met = {}

    def judged(observation, legal_actions):
        move = int(get_action(observation, legal_actions=legal_actions))
        moves = values(tuple(observation[0].ravel().tolist()), tuple(observation[1].ravel().tolist()))
        met[observation.tobytes()] = moves[move] < max(moves.values())
        return move

    for begins in (True, False):
        play(judged, anyone, begins=begins)
    return sum(met.values()), len(met)


def policy_of(run_dir, which):
    """Load a policy. In PettingZoo's tictactoe_v3 the two sides are the last dimension of an observation."""
    get_action = load_action(run_dir, int(which) if which.isdigit() else which)
    if json.loads((Path(run_dir) / "config.json").read_text())["env"]["kind"] != "pettingzoo":
        return get_action
    return lambda observation, legal_actions: get_action(
        np.moveaxis(observation, 0, -1).astype(np.int8), legal_actions=legal_actions
    )


if __name__ == "__main__":
    policy = policy_of(*[*sys.argv[1:], "last"][:2])
    print("opponent  begins     won  drawn  lost")
    for opponent in (perfect, anyone):
        for begins in (True, False):
            won, drawn, lost = match(policy, opponent, begins=begins)
            print(f"{opponent.__name__:9} {'policy' if begins else 'opponent':9} {won:4} {drawn:6} {lost:5}")
    wrong, all_met = mistakes(policy)
    print(f"mistakes: in {wrong} of {all_met} positions")
