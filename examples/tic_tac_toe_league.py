"""Let the main policy of a league play tic-tac-toe against a perfect player and against any moves: every possible game.

python examples/tic_tac_toe_league.py runs/tic_tac_toe_league [checkpoint]
"""

import sys

import numpy as np
from tic_tac_toe_match import anyone, match, perfect

from remuda.policy.files.functions import load_action

if __name__ == "__main__":
    run_dir, which = [*sys.argv[1:], "last"][:2]
    get_action = load_action(run_dir, int(which) if which.isdigit() else which)

    def act(observation, legal_actions):
        """Act on an observation of PettingZoo's tictactoe_v3: the same squares, the two sides last."""
        return get_action(np.moveaxis(observation, 0, -1).astype(np.int8), legal_actions=legal_actions)

    print("opponent  begins     won  drawn  lost")
    for opponent in (perfect, anyone):
        for begins in (True, False):
            won, drawn, lost = match(act, opponent, begins=begins)
            print(f"{opponent.__name__:9} {'policy' if begins else 'opponent':9} {won:4} {drawn:6} {lost:5}")
