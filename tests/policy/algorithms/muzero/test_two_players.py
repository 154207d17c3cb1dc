"""Two players who take turns: a winning move has value 1 for its side, and -1 for the other side one move earlier."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.environments.spaces import Array
from remuda.evaluator.play_policy import evaluate
from remuda.policy.algorithms.muzero.acting import ILLEGAL, MuZeroPolicy, search_settings
from remuda.policy.algorithms.muzero.search.rules import SearchSettings
from remuda.policy.algorithms.muzero.search.search import new_tree, search
from remuda.policy.algorithms.muzero.search.tree import Tree
from remuda.policy.algorithms.muzero.targets import Positions, Returns
from remuda.tests.policy.algorithms.muzero.cases import changed, muzero
from remuda.tests.policy.algorithms.muzero.games import (
    BOARD,
    SQUARES,
    Scripted,
    Strict,
    TrueModel,
    board,
    games,
    legal_on,
)

FIRST_WINS, SECOND_WINS = (0, 3, 1, 4, 2), (8, 0, 7, 4, 5, 1, 3, 2)
DRAWN = (0, 1, 2, 4, 3, 5, 7, 6, 8)


def targets(moves: tuple[int, ...], *, n_step: int, value: float = 0.5) -> list[float]:
    """Value targets of a game's positions, with the network's value `value` for each."""
    told = changed(players=2, discount=1.0, n_step=n_step)
    rows = games(Scripted(moves), told, env_steps=40)
    first = {name: column[: len(moves)] for name, column in rows.items()}
    assert (first["steps"][-1], first["terminated"][-1]) == (1, True), "the rows of one game"
    positions = Positions.of(first["steps"], first["terminated"], unroll_steps=told.unroll_steps)
    settings = search_settings(told)
    returns = Returns.of(
        positions,
        first["reward"],
        first["steps"],
        first["terminated"],
        n_step=n_step,
        discount=settings.sign * settings.discount,
    )
    whole = returns.with_values(np.full(len(returns.bootstrapped), value, np.float32))
    at_once = positions.counts[0]
    of_rows = whole[:at_once][np.argsort(positions.row[:at_once])]
    return [float(value) for value in of_rows]


@pytest.mark.parametrize(
    ("moves", "expected"),
    [(FIRST_WINS, [1, -1, 1, -1, 1]), (SECOND_WINS, [-1, 1, -1, 1, -1, 1, -1, 1]), (DRAWN, [0] * 9)],
)
def test_a_game_is_worth_its_end_to_whoever_moves(moves: tuple[int, ...], expected: list[float]) -> None:
    assert targets(moves, n_step=9) == expected


def test_values_are_taken_over_from_the_side_that_moves_there() -> None:
    """A value of 0.5 is 0.5 for the same side two moves earlier, and -0.5 for the other side."""
    assert targets(FIRST_WINS, n_step=1) == [-0.5, -0.5, -0.5, -0.5, 1.0]
    assert targets(FIRST_WINS, n_step=2) == [0.5, 0.5, 0.5, -1.0, 1.0]
    assert targets(FIRST_WINS, n_step=3) == [-0.5, -0.5, 1.0, -1.0, 1.0]


def searched(position: Array, simulations: int) -> Tree:
    """The tree of a search by the true rules."""
    settings = SearchSettings(simulations, discount=1.0, players=2)
    tree = new_tree(1, 9, settings)
    search(TrueModel(), position[None], settings, tree=tree, legal=legal_on(position[None]))
    return tree


def test_a_winning_move_is_worth_one() -> None:
    tree = searched(board((0, 1), (3, 4)), 60)
    assert tree.visits().argmax() == 2
    assert tree.q_values()[0, 2] == 1.0
    assert 0.5 < tree.root_values()[0] <= 1.0


def test_no_illegal_move_is_made_in_whole_games_whatever_the_weights() -> None:
    """The environment raises at an illegal move."""
    told = changed(players=2, simulations=10, consistency_coefficient=0.0)
    state = muzero(told, observation=BOARD, action=SQUARES).acting_state()
    rng = np.random.default_rng(0)
    acting = MuZeroPolicy(told, BOARD, SQUARES)
    acting.load_state({name: rng.uniform(0.1, 2.0, array.shape).astype(np.float32) for name, array in state.items()})
    rows = games(acting, told, env_steps=300, num_envs=8, exploration={"collect_mcts_temperature": 1.0})
    taken, share = rows["action"][:, 0], rows["search_policy"][:, 0]
    np.testing.assert_array_equal(share != ILLEGAL, legal_on(rows["obs"][:, 0]))
    assert (share[np.arange(len(taken)), taken] > 0).all()
    for exploration in (None, {"collect_mcts_temperature": 1.0}):
        played = evaluate([Strict() for _ in range(4)], acting, seeds=range(12), rng=rng, exploration=exploration)
        assert {episode.return_ for episode in played} <= {0.0, 1.0}
