"""What an experiment is called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """What an experiment is called and where it lives."""

    id: str
    name: str
    run_dir: str
    policy_file: str
    priority: int
    submitted: int
