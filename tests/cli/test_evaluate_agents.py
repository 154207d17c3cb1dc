"""`remuda evaluate` of a run with several agents: all play together, or one against older checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.functions import load_action
from remuda.runner.serial import Start
from remuda.tests.cli.terminal import Terminal
from remuda.tests.runner.runs import run_tiny
from remuda.tests.runner.several import LENGTHS, several_config

pytestmark = pytest.mark.xdist_group("a run with several policies")

RETURNS = {f"a{n}": 100 * n * length + length * (length + 1) / 2 for n, length in enumerate(LENGTHS)}
"""Whatever the agents do."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    config = several_config(folder / "user", "stop.max_env_steps=120")
    return run_tiny(config, Start(folder / "run")).run_dir


def test_all_policies_play_together(run: Path, terminal: Terminal) -> None:
    done = terminal.remuda("evaluate", str(run), "-i", "best", "-n", "3", "-d", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["agents"] == pytest.approx(RETURNS)
    assert told["policies"]["ends"]["reward_mean"] == pytest.approx((RETURNS["a0"] + RETURNS["a2"]) / 2)
    assert told["policies"]["middle"]["reward_mean"] == pytest.approx(RETURNS["a1"])
    assert [one["length"] for one in told["each"]] == [max(LENGTHS)] * 3
    assert "ends: checkpoint " in done.err


def test_one_agent_plays_against_older_checkpoints(run: Path, terminal: Terminal) -> None:
    """Its agents take turns: a0 in two of three episodes, a2 in one."""
    done = terminal.remuda("evaluate", str(run), "--policy", "ends", "--against", "0", "-n", "3", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert list(told["policies"]) == ["ends"]
    assert told["policies"]["ends"]["reward_mean"] == pytest.approx((2 * RETURNS["a0"] + RETURNS["a2"]) / 3)
    assert told["against"] == "0"


def test_a_policy_of_a_league_plays_all_agents_against_any_checkpoint(tmp_path: Path, terminal: Terminal) -> None:
    pytest.importorskip("openskill", reason="a league rates with openskill: pip install 'remuda[league]'")
    league = {"share": 0.5, "league": {"pool": 2, "exploiters": {"hunter": {}}}}
    policies = {name: {"agents": ["*"]} for name in ("hunter", "main")}
    config = several_config(
        tmp_path / "user", "stop.max_env_steps=60", "evaluator.episodes=4", policies=policies, self_play=league
    )
    run = run_tiny(config, Start(tmp_path / "run")).run_dir
    others = ("--policy", "hunter", "--against", "main/iteration_0", "-n", "3", "--json")
    done = terminal.remuda("evaluate", run, *others)
    assert done.code == 0, done.err
    hunter = json.loads(done.out)["policies"]["hunter"]
    assert hunter["reward_mean"] == pytest.approx(sum(RETURNS.values()) / 3)
    assert hunter["score"] == pytest.approx(sum(own > sum(RETURNS.values()) / 3 for own in RETURNS.values()) / 3)
    assert f"hunter: checkpoint {run}/ckpt/hunter/" in done.err
    assert f"main: checkpoint {run}/ckpt/main/iteration_0.pth.tar" in done.err
    refused = terminal.remuda("evaluate", run, "--against", "hare/0")
    assert (refused.code, "the run has no policy 'hare'; there are hunter, main" in refused.err) == (2, True)
    assert load_action(run, 0, policy="hunter")(np.zeros(3)) in range(3)
    with pytest.raises(CheckpointError, match="the run has the policies hunter, main; give policy="):
        load_action(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "hare", "--against", "0"], "--policy hare: the run has no such policy; there are ends, middle"),
        (["--policy", "ends"], "--policy says who plays --against: give both, or neither"),
        (["-i", "model"], "-i model: with several agents checkpoints play; give -1 (newest), best, or a train_iter"),
        (["-i", "12345"], "-i 12345: {run}/ckpt/ends has no such checkpoint; there are: 0, "),
        (["--follow", "--against", "0"], "--follow plays the newest policies, and --against older ones"),
    ],
)
def test_what_is_not_there_is_refused(run: Path, terminal: Terminal, options: list[str], message: str) -> None:
    done = terminal.remuda("evaluate", str(run), "-nr", *options)
    assert done.code == 2
    assert message.format(run=run) in done.err
    assert "model/" not in done.err


def test_the_newest_policies_of_a_run_are_followed_to_its_end(run: Path, terminal: Terminal) -> None:
    done = terminal.remuda("evaluate", str(run), "--follow", "-nr", "-d", "--json")
    assert done.code == 0, done.err
    (line,) = done.out.splitlines()
    assert json.loads(line)["agents"] == pytest.approx(RETURNS)
    assert "the run is over (policies played: 1)" in done.err


def test_games_are_filmed(tmp_path: Path, terminal: Terminal) -> None:
    make = "remuda.tests.environments.painter:PaintedGame"
    env = {"kind": "pettingzoo", "make": make, "num_envs": 2, "kwargs": {"lengths": list(LENGTHS)}}
    run = run_tiny(several_config(tmp_path / "user", "stop.max_env_steps=60", env=env), Start(tmp_path / "run")).run_dir
    done = terminal.remuda("evaluate", str(run), "--record", str(tmp_path / "films"), "-n", "2", "--json")
    assert done.code == 0, done.err
    assert [Path(film).stat().st_size > 0 for film in json.loads(done.out)["videos"]] == [True, True]
