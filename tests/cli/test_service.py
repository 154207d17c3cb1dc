"""`remuda coordinator` refuses what it cannot work with, in a sentence."""

from __future__ import annotations

from pathlib import Path

from remuda.tests.cli.terminal import Terminal


def test_a_runs_folder_that_cannot_be_written_is_wrong_input(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ended = terminal.remuda("coordinator", "--runs-dir", tmp_path / "file" / "runs")
    assert ended.code == 2
    assert f"{tmp_path / 'file' / 'runs'} cannot be written: Not a directory; choose another --runs-dir" in ended.err
    assert (tmp_path / "file").read_text() == "no folder"
