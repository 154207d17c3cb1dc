"""`remuda evaluate --follow`: somebody watches while a run goes on, in both modes, and is done when it is over."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import pytest

from remuda.tests.parallel.command import Command
from remuda.tests.parallel.conftest import Launcher
from remuda.tests.parallel.reading import index
from remuda.tests.parallel.user_folder import ENDLESS, UserFolder
from remuda.tests.patience import until

pytestmark = pytest.mark.processes

NEVER: dict[str, object] = {"interval_env_steps": 10_000_000}
WITHOUT_CHECKPOINTS = {"evaluator": NEVER, "checkpoint": NEVER}
"""Between the first and the last."""


class Line(TypedDict):
    checkpoint: str
    train_iter: int
    episodes: int


def lines(follower: Command) -> list[Line]:
    """What it has printed so far."""
    whole = follower.scratch.with_suffix(".out").read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def begin(
    launched: Launcher, tmp_path: Path, verb: str, changes: Mapping[str, Mapping[str, object]]
) -> tuple[Command, Command, Path]:
    """A run without end, and who follows it."""
    user, run = UserFolder.make(tmp_path / "user", {**ENDLESS, **changes}), tmp_path / "run"
    training = launched(user.root, verb, user.config, "--run-dir", run)
    until(lambda: training.process.poll() is not None or (run / "config.json").exists(), "it is a run")
    return training, follow(launched, user.root, run), run


def follow(launched: Launcher, root: Path, run: Path) -> Command:
    """Somebody who watches that run."""
    return launched(root, "evaluate", run, "--follow", "-n", 2, "-d", "-nr", "--json")


def test_every_newer_policy_is_played_until_the_run_is_over(tmp_path: Path, launched: Launcher) -> None:
    """Without checkpoints between the first and the last, by the policy file."""
    training, follower, run = begin(launched, tmp_path, "launch", WITHOUT_CHECKPOINTS)
    until(lambda: follower.process.poll() is not None or len(lines(follower)) >= 4, "policies are played")
    training.process.terminate()
    assert training.ended().code == 0
    ended = follower.ended()
    assert ended.code == 0, ended.err
    played = lines(follower)
    iterations = [line["train_iter"] for line in played]
    assert iterations == sorted(set(iterations))
    assert iterations[-1] == index(run)["last"]
    assert {line["episodes"] for line in played} == {2}
    # The first and the last may be seen in the policy file before their checkpoints are listed.
    assert {Path(line["checkpoint"]).parent.name for line in played} - {"ckpt"} == {"policy"}
    assert ended.err.splitlines()[-1] == f"the run is over (policies played: {len(played)})"


def test_watching_changes_nothing_and_ends_with_a_killed_run(tmp_path: Path, launched: Launcher) -> None:
    training, first, run = begin(launched, tmp_path, "train", {})
    until(lambda: first.process.poll() is not None or lines(first), "a policy is played")
    first.process.send_signal(signal.SIGINT)
    stopped = first.ended()
    assert stopped.code == 0, stopped.err
    assert "no longer following; the run was not touched" in stopped.err
    assert training.process.poll() is None
    second = follow(launched, tmp_path / "user", run)
    until(lambda: second.process.poll() is not None or lines(second), "a policy is played again")
    training.process.kill()
    ended = second.ended()
    assert ended.code == 0, ended.err
    assert "the run is over" in ended.err
