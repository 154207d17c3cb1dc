"""What is promised of `remuda export`, as it is typed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from remuda.tests.cli.terminal import Terminal

pytestmark = pytest.mark.xdist_group("a tiny run")


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """A copy, to be written to."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def test_an_exported_policy_plays_the_episodes_of_its_checkpoint(terminal: Terminal, run: Path) -> None:
    ended = terminal.remuda("export", run, "--format", "onnx")
    assert ended.code == 0, ended.err
    path = run / "export" / "policy.onnx"
    first, *others = ended.out.splitlines()
    assert first.startswith(f"{path}: dqn, train_iter ")
    assert "compared on 100 observations from data/: all actions are equal, outputs differ by" in ended.out
    assert others[-1].startswith("action, q_values, value = policy.run(None, {'observation': observation})")
    asked = ("-d", "-n", 4, "-nr", "--json")
    played = [json.loads(terminal.remuda("evaluate", *which, *asked).out) for which in ((path,), (run, "-i", "best"))]
    assert played[0]["each"] == played[1]["each"]
    assert played[0]["train_iter"] == played[1]["train_iter"]


@pytest.mark.parametrize(("format", "names"), [("torchscript", ["p.pt"]), ("numpy", ["p.npz", "p.py"])])
def test_observations_are_played(terminal: Terminal, run: Path, tmp_path: Path, format: str, names: list[str]) -> None:
    shutil.rmtree(run / "data")
    out = tmp_path / "elsewhere" / names[0]
    asked = ("export", run, "--format", format, "-i", "-1", "--out", out, "--verify", 130, "--json")
    printed = [terminal.remuda(*asked) for _ in range(2)]
    assert [ended.code for ended in printed] == [0, 0], printed[0].err
    info = json.loads(printed[0].out)
    assert (info["parity"]["observations"], info["parity"]["source"]) == (130, "the environment")
    assert info["parity"] == json.loads(printed[1].out)["parity"]
    assert sorted(path.name for path in out.parent.iterdir()) == sorted([*names, f"{names[0]}.json"])
    assert json.loads(Path(f"{out}.json").read_text()) == json.loads(printed[1].out)
