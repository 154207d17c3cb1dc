"""Games in turns as parallel environments: one move is one step, and who waits can only pass."""

from __future__ import annotations

import math
from typing import Any

import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.errors import UnusableResultError
from remuda.environments.make import make_parallel

pytest.importorskip("pettingzoo", reason="tic-tac-toe is of PettingZoo: pip install 'remuda[pettingzoo]'")


@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
def test_a_move_is_a_step_and_the_game_ends_for_both_with_their_rewards() -> None:
    game = make_parallel(EnvConfig(kind="pettingzoo", id="pettingzoo.classic.tictactoe_v3"), source_dir=None)
    _, infos = game.reset(seed=0)
    first, second = game.possible_agents
    for move, square in enumerate((0, 3, 1, 4, 2)):
        mover, waits = (first, second) if move % 2 == 0 else (second, first)
        assert infos[mover]["action_mask"].sum() == 9 - move
        assert infos[waits]["action_mask"].tolist() == [1] + [0] * 8
        _, rewards, terminations, truncations, infos = game.step({mover: square, waits: 0})
    assert (rewards, game.agents) == ({first: 1.0, second: -1.0}, [])
    assert all(terminations.values())
    assert not any(truncations.values())
    game.reset()
    assert list(game.agents) == [first, second]
    below: Any = game  # the attributes of the game in turns
    below.terminations[second] = math.nan
    with pytest.raises(UnusableResultError, match=f"terminated = nan, .*neither True nor False .agent {second}"):
        game.step({first: 0, second: 0})
