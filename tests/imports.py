"""What a program brings into a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from remuda.tests.patience import HANG_S

THIS_CHECKOUT = {"PYTHONPATH": str(Path(__file__).parents[1] / ".typing")}
"""Lets a process of its own import Remuda from here, whatever is installed."""


def imported_by(program: str, *, cwd: Path | None = None) -> set[str]:
    """Run it in a process of its own; return the names of the top-level packages it has imported by its end."""
    tail = "import sys; print('\\n'.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{tail}"],
        cwd=cwd,
        env={**os.environ, **THIS_CHECKOUT},
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    return set(done.stdout.splitlines())
