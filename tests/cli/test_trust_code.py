"""No verb runs code that came with a folder but `remuda evaluate --trust-code`; vars.pkl only where it is needed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.tests.cli.terminal import Terminal
from remuda.tests.poison import Poison
from remuda.tests.policy.files.saved_runs import lose_environment

pytestmark = pytest.mark.xdist_group("a tiny run")

EVALUATIONS = {
    "newest": ("-nr", "-n", 2),
    "model": ("-nr", "-n", 2, "-i", "model"),
    "followed": ("-nr", "-n", 2, "--follow"),
}
evaluations = pytest.mark.parametrize("options", EVALUATIONS.values(), ids=EVALUATIONS)


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Generator[Path]:
    """A copy of a run, to be spoilt."""
    yield Path(shutil.copytree(tiny_run, tmp_path / "run"))
    sys.modules.pop("walk", None)  # reading vars.pkl imports it past the config's own imports


@evaluations
def test_evaluating_opens_it_only_when_told_to(terminal: Terminal, run: Path, options: tuple[object, ...]) -> None:
    lose_environment(run)
    poison = Poison.as_environment(run)
    ended = terminal.remuda("evaluate", run, *options)
    assert ended.code == 2
    assert "--trust-code" in ended.err
    assert not poison.worked
    ended = terminal.remuda("evaluate", run, *options, "--trust-code")
    assert ended.code == 2
    assert "holds None, which is not a gymnasium.Env" in ended.err
    assert poison.worked


@pytest.mark.parametrize("model", ["newest", "model"])
def test_anothers_run_needs_trust(terminal: Terminal, run: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    ended = terminal.remuda("evaluate", run, *EVALUATIONS[model])
    assert ended.code == 2
    assert "belongs to another user" in ended.err
    assert terminal.remuda("evaluate", run, *EVALUATIONS[model], "--trust-code").code == 0
