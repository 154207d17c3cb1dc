"""The limit of open files is raised as far as the system lets a process raise it."""

from __future__ import annotations

import os
import subprocess
import sys

from remuda.tests.patience import HANG_S
from remuda.worker.process import open_files


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = (
        "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(hard, 4096)));"
        "from remuda.worker.process import open_files_limit, raise_open_files_limit;"
        "raise_open_files_limit(); print(open_files_limit())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout.strip() == "4096"


def test_what_is_open_is_counted() -> None:
    before = open_files()
    reading, writing = os.pipe()
    assert open_files() == before + 2
    os.close(reading)
    os.close(writing)
    assert open_files() == before
