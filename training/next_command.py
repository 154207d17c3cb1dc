"""Complete commands for people to type next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from remuda.storage.bucket.address import shown

Verb = Literal["train", "launch", "submit"]


def resume_command(verb: Verb, run_dir: str | Path, *, options: Sequence[str] = ()) -> str:
    """Return the command that continues the run in `run_dir` with its own config.json; `options` come last."""
    return shlex.join(["remuda", verb, "--resume", "--run-dir", shown(run_dir), *options])


def restart_command(verb: Verb, run_dir: str | Path, *, options: Sequence[str] = ()) -> str:
    """Return the command that begins the run in `run_dir` again with its own config.json; `options` come last."""
    config = str(Path(run_dir) / "config.json")
    return shlex.join(["remuda", verb, config, "--run-dir", shown(run_dir), "--force", *options])


def evaluate_command(run_dir: str | Path, *, has_best: bool) -> str:
    """Return the command that plays the best checkpoint, or the newest if no best exists."""
    which = ["-i", "best"] if has_best else []
    return shlex.join(["remuda", "evaluate", str(run_dir), *which, "-n", "20", "-d"])


def plot_command(folder: Path) -> str:
    """Draws the learning curves of the runs in a folder into a picture in the working directory."""
    return shlex.join(["remuda", "plot", os.path.relpath(folder), "-o", f"{folder.name}.png"])
