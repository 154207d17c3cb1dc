"""What is promised of `remuda dataset`, as it is typed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from remuda.tests.cli.terminal import Terminal

pytestmark = pytest.mark.xdist_group("a tiny run")


def test_the_episodes_of_a_run_are_a_dataset(terminal: Terminal, tiny_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
    pytest.importorskip("h5py", reason="needs pip install 'remuda[datasets]'")
    ended = terminal.remuda("dataset", "export", tiny_run, tmp_path / "walks")
    assert ended.code == 0, ended.err
    read = json.loads(terminal.remuda("dataset", "info", tmp_path / "walks", "--json").out)
    rows = (tiny_run / "progress.txt").read_text().splitlines()
    counted = dict(zip(rows[0].split("\t"), rows[-1].split("\t"), strict=True))
    assert read["id"] == "walks-v0"
    assert f"{len(read['lengths'])} of {len(read['lengths'])} episodes" in read["description"]
    assert 200 < sum(read["lengths"]) <= int(counted["TotalEnvInteracts"])  # the last episodes had not ended
    best = terminal.remuda("dataset", "export", tiny_run, tmp_path / "best", "--best", 5)
    assert best.code == 0, best.err
    chosen = json.loads(terminal.remuda("dataset", "info", tmp_path / "best", "--json").out)["returns"]
    assert sorted(chosen) == sorted(read["returns"])[-5:]
    kept = shutil.copytree(tiny_run, tmp_path / "kept")
    for path in sorted((kept / "data").iterdir())[2:4]:
        path.unlink()
    rest = terminal.remuda("dataset", "export", kept, tmp_path / "rest")
    assert rest.code == 0, rest.err
    assert "2 of its" in rest.out.splitlines()[-1], "one line says what is left out, and why"
    assert terminal.remuda("dataset", "info", kept).code == 2
