"""What was typed for a sweep that searches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Place = Literal["herd", "local"]


@dataclass(frozen=True)
class Asked:
    """What was typed, of what a search needs, and the sweep's folder."""

    folder: Path
    place: Place
    jobs: int
    sets: tuple[str, ...]
    runs_dir: Path
    connection_file: Path | None
    force: bool
    dry_run: bool
    as_json: bool
