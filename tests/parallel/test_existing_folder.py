"""A run folder that is already there, and the run that was made in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda.tests.parallel.conftest import Finished, Launcher
from remuda.tests.parallel.reading import index
from remuda.tests.parallel.test_tree import files
from remuda.tests.parallel.user_folder import UserFolder

pytestmark = pytest.mark.processes

SHORT = ("--set", "stop.max_env_steps=100", "--set", "evaluator.episodes=1")


def contents(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in files(run)}


@pytest.mark.xdist_group("a finished parallel run")
def test_a_folder_that_holds_a_run_is_never_mixed_with_another(finished: Finished, launched: Launcher) -> None:
    cwd, run, launch = finished.user.root, finished.run, ("launch", finished.user.config, *SHORT)
    before = contents(run)

    refused = launched(cwd, *launch, "--run-dir", run).ended()
    assert refused.code == 2
    assert all(option in refused.err for option in ("--resume", "--force", "--on-exists rename", str(run)))

    renamed = launched(cwd, *launch, "--run-dir", run, "--on-exists", "rename").ended()
    assert renamed.code == 0, renamed.err
    (other,) = (path for path in run.parent.iterdir() if path.name.startswith("horse_"))
    assert re.fullmatch(r"horse_\d{6}_\d{6}", other.name)
    assert f"run folder: {other}" in renamed.out
    assert contents(run) == before

    second = contents(other)
    forced = launched(cwd, *launch, "--run-dir", other, "--force").ended()
    assert forced.code == 0, forced.err
    (away,) = (other / ".replaced").iterdir()
    assert contents(away) == second
    assert {name for name in files(other) if name.startswith("data/")}.isdisjoint(second)


@pytest.mark.xdist_group("a finished parallel run")
def test_what_was_trained_can_be_played(finished: Finished, launched: Launcher) -> None:
    played = launched(finished.user.root, "evaluate", finished.run, "-i", "best", "-n", 20, "-d", "-nr").ended()
    assert played.code == 0, played.err
    assert f"iteration_{index(finished.run)['best']}.pth.tar" in played.out
    assert "20" in played.out


def test_an_environment_that_cannot_be_built_starts_nothing(tmp_path: Path, launched: Launcher) -> None:
    user, run = UserFolder.make(tmp_path / "user", {"env": {"kwargs": {"hold_afer": 3}}}), tmp_path / "run"
    ended = launched(user.root, "launch", user.config, "--run-dir", run).ended()
    assert ended.code == 2
    assert "hold_afer" in ended.err
    assert not run.exists()
