"""Who plays whom in a league: by rating, out of a pool that spans the run."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.training.league import MOST_RESETS, League, opponent_of
from remuda.wire.messages import CheckpointRecord

pytest.importorskip("openskill", reason="a league rates with openskill: pip install 'remuda[league]'")

POOL, GAMES = 4, 40
WON, LOST = 1.0, 0.0


def league_of(matching: str = "hard", exploiters: dict[str, Any] | None = None) -> League:
    names = ["main", *(exploiters or {})]
    config = ExperimentConfig.model_validate(
        {
            "name": "league",
            "env": {"kind": "pettingzoo", "make": "game:make", "agents": ["cross", "nought"]},
            "policies": {name: {"agents": ["*"]} for name in names} if exploiters else {},
            "self_play": {"share": 0.5, "league": {"pool": POOL, "matching": matching, "exploiters": exploiters or {}}},
            "evaluator": {"episodes": GAMES},
        }
    )
    settings = config.self_play.league
    assert settings is not None
    return League(config, settings)


def record(train_iter: int) -> CheckpointRecord:
    file = f"iteration_{train_iter}.pth.tar"
    return CheckpointRecord(train_iter, 10 * train_iter, 0.0, None, file, "0" * 64, "now", 0)


def play(league: League, train_iter: int, *scores: float, policy: int = 0) -> Any:
    """Play against the pool; the last of `scores` is against all further opponents."""
    opponents = max(1, sum(map(len, league.opponents)))
    at = [min(opponent_of(episode, 2, opponents), len(scores) - 1) for episode in range(GAMES)]
    games = {episode: scores[index] for episode, index in enumerate(at)}
    return league.evaluated(policy, record(train_iter), league.opponents, games, agents=2)


def pool_of(league: League, policy: int = 0) -> list[int]:
    return [one.train_iter for one in league.opponents[policy]]


def test_the_pool_keeps_the_first_and_the_newest_and_spans_the_run() -> None:
    league = league_of()
    for train_iter in range(20):
        play(league, train_iter, WON)
    assert pool_of(league) == [0, 8, 16, 19], "evenly, whatever was played between"


@pytest.mark.parametrize("matching", ["hard", "even", "uniform"])
def test_opponents_are_drawn_by_the_probability_to_win(matching: str) -> None:
    league = league_of(matching)
    play(league, 0, WON)
    play(league, 1, WON)
    play(league, 2, WON, LOST)
    itself, weak, strong, equal = league.weights(0)
    assert (itself, weak + strong + equal) == pytest.approx((0.5, 0.5)), "the share of episodes against the pool"
    if matching == "hard":
        assert strong > equal > weak
    elif matching == "even":
        assert equal > max(weak, strong)
    else:
        assert weak == strong == equal == pytest.approx(0.5 / 3)


def test_an_exploiter_that_wins_joins_the_pool_and_begins_again() -> None:
    """Against main, from its first weights; its next rating begins where the first did."""
    league = league_of(exploiters={"hunter": {"against": "main", "reset_win_rate": 0.7}})
    assert league.names == ("hunter", "main")
    play(league, 0, LOST, policy=0)
    play(league, 0, WON, policy=1)
    assert league.weights(0)[:2] == [0.0, 0.5], "the newest main policy, and its checkpoints"
    assert play(league, 1, LOST, policy=0).reset is None
    assert pool_of(league, 0) == []
    judged = play(league, 2, WON, policy=0)
    assert pool_of(league, 0) == [2]
    assert judged.reset is not None
    assert judged.reset[0].train_iter == 0
    league.begun_again(0, record(3), *judged.reset)
    low, middle, high = play(league, 4, LOST, policy=0).interval
    assert low < middle < 25.0 < judged.interval[1] < judged.interval[2]
    assert middle < high


def test_a_snapshot_continues_the_same_league() -> None:
    league, again = league_of(), league_of()
    for train_iter in range(6):
        play(league, train_iter, WON)
        for _ in range(MOST_RESETS // 5):  # what is kept of them is bounded
            league.begun_again(0, record(train_iter), record(0), "it has won")
    again.restore(league.snapshot())
    assert again.document() == league.document()
    assert (len(again.snapshot().resets), again.snapshot().resets_before) == (MOST_RESETS, MOST_RESETS // 5)
    assert play(again, 7, LOST) == play(league, 7, LOST)


def test_each_agent_plays_against_each_opponent() -> None:
    assert [opponent_of(episode, 2, 3) for episode in range(8)] == [0, 0, 1, 1, 2, 2, 0, 0]
