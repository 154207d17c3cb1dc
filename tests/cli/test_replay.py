"""`remuda replay`: lists, compares and shows recorded episodes; says why there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.cli.terminal import Terminal

pytestmark = pytest.mark.xdist_group("a tiny run")


def test_the_worst_episodes_are_found_and_shown_step_by_step(terminal: Terminal, tiny_run: Path) -> None:
    last = CheckpointIndex(tiny_run / "ckpt").last
    assert last is not None
    every = terminal.remuda("replay", tiny_run)
    assert every.code == 0, every.err
    assert f"All {last.episode} episodes are equal to the last bit" in every.out
    worst = terminal.remuda("replay", tiny_run, "--worst", 2, "--steps", "--json")
    told = json.loads(worst.out)
    assert (worst.code, told["counted"], told["equal"]) == (0, last.episode, True)
    first, second = told["episodes"]
    assert first["returns"]["agent"] <= second["returns"]["agent"]
    reset, *steps = first["steps"]
    assert (reset["number"], reset["rewards"], len(steps)) == (0, {}, first["length"])
    assert sum(step["rewards"]["agent"] for step in steps) == pytest.approx(first["returns"]["agent"])
    assert first["id"] in every.out
    one = terminal.remuda("replay", tiny_run, "--episode", first["id"])
    assert "All 1 episodes are equal" in one.out


def test_wrong_input_is_explained(terminal: Terminal, tiny_run: Path, tmp_path: Path) -> None:
    unknown = terminal.remuda("replay", tiny_run, "--episode", "9.9.9.9")
    assert (unknown.code, "--episode 9.9.9.9: no such episode" in unknown.err) == (2, True)
    (tmp_path / "config.json").write_text((tiny_run / "config.json").read_text())
    without = terminal.remuda("replay", tmp_path)
    assert (without.code, "has no steps/" in without.err) == (2, True)
