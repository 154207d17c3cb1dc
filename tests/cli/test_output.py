"""Standard output has what was asked for alone, whoever else prints; the end of a run, with what to type next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from remuda.cli.errors import RunFailedError
from remuda.cli.output import print_end
from remuda.config.schema import ExperimentConfig
from remuda.tests.client.statuses import status
from remuda.tests.patience import HANG_S

CONFIG = ExperimentConfig.model_validate({"name": "mine", "env": {"id": "CartPole-v1"}})
PROGRAM = """
import ctypes, os, subprocess, sys
from remuda.cli.output import reserved_stdout
libc = ctypes.CDLL(None)
print("before")
with reserved_stdout() as output:
    print("by Python")
    libc.printf(b"by C\\n")
    os.write(1, b"by number\\n")
    subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)
    print("asked for", file=output)
print("after")
"""


@pytest.mark.processes
def test_all_else_goes_to_standard_error() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert ended.stdout == "before\nasked for\nafter\n"
    assert sorted(ended.stderr.splitlines()) == ["by C", "by Python", "by a child", "by number"]


def test_a_stopped_run_is_told_how_to_go_on_in_words_that_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stopped = status(state="stopped", reason="stopped", run_dir=str(tmp_path / "runs" / "my run"))
    print_end(stopped, CONFIG, "launch", options=["--limit", "lost_after_s=20"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "  remuda launch --resume --run-dir 'runs/my run' --limit lost_after_s=20"
    assert "  remuda evaluate 'runs/my run' -i best -n 20 -d" in lines


def test_a_run_without_a_checkpoint_begins_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ckpt").mkdir()
    stopped = status(state="stopped", reason="stopped", run_dir=str(tmp_path), best_return=None)
    print_end(stopped, CONFIG, "launch")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"  remuda launch {tmp_path}/config.json --run-dir {tmp_path} --force"
    assert not any("remuda evaluate" in line for line in lines)


def test_a_failed_run_says_why_and_where_to_read() -> None:
    failed = status(
        state="failed", reason="workers failed 5 times in a row", run_dir="/elsewhere/mine", best_return=None
    )
    with pytest.raises(
        RunFailedError,
        match=r"failed: workers failed 5 times in a row; best return none\nread why in .*commander_logger\.txt",
    ):
        print_end(failed, CONFIG, "launch")
