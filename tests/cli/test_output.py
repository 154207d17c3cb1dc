"""Standard output has what was asked for alone, whoever else prints: Python, C, or a process that was started."""

from __future__ import annotations

import subprocess
import sys

import pytest

from remuda.tests.patience import HANG_S

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
