"""Commands that people are told to type. Each is complete: typed as printed, it does what was said."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

Verb = Literal["train", "launch", "submit"]


def resume_command(verb: Verb, run_dir: str | Path, *, options: Sequence[str] = ()) -> str:
    """Continues the run in `run_dir` with the settings of its own config.json; `options` come last."""
    return shlex.join(["remuda", verb, "--resume", "--run-dir", str(run_dir), *options])


def restart_command(verb: Verb, run_dir: str | Path, *, options: Sequence[str] = ()) -> str:
    """Begins the run in `run_dir` again, with the settings of its own config.json; `options` come last."""
    config = str(Path(run_dir) / "config.json")
    return shlex.join(["remuda", verb, config, "--run-dir", str(run_dir), "--force", *options])


def evaluate_command(run_dir: str | Path, *, has_best: bool) -> str:
    """Plays the best checkpoint, or the newest one of a run that has no best checkpoint."""
    which = ["-i", "best"] if has_best else []
    return shlex.join(["remuda", "evaluate", str(run_dir), *which, "-n", "20", "-d"])


def plot_command(folder: Path) -> str:
    """Draws the learning curves of the runs in a folder into a picture in the working directory."""
    return shlex.join(["remuda", "plot", os.path.relpath(folder), "-o", f"{folder.name}.png"])
