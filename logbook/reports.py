"""Reports: a frozen type for each thing that is reported, which every view shows in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from remuda.logbook.grid_format import Value

Topic = Literal[
    "collect",
    "episode",
    "evaluation",
    "learn",
    "buffer_sample",
    "buffer_throughput",
    "collector_worker",
    "evaluator_worker",
    "vitals",
    "event",
    "weights",
    "actions",
    "film",
    "callback",
]
"""What a report is about; a logbook has a list of views for each."""


@dataclass(frozen=True, kw_only=True)
class Report(ABC):
    """Any report: its place in the run, its values in order, and its text in a log."""

    train_iter: int
    """Gradient updates done when it was made."""
    env_step: int
    """Environment steps counted when it was made."""

    @property
    @abstractmethod
    def topic(self) -> Topic:
        """The topic, which decides the views that show it."""

    @abstractmethod
    def fields(self) -> dict[str, Value]:
        """List the values under their promised names, in their promised order."""

    @abstractmethod
    def text(self) -> str:
        """Write it for a text log."""
