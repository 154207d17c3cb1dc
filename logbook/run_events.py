"""Events of a run for its time series; people read about them in the commander's log."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.logbook.grid_format import Value
from remuda.logbook.reports import Report, Topic
from remuda.logbook.series import EventKind


@dataclass(frozen=True, kw_only=True)
class EventReport(Report):
    """A worker joined or left, the run was held up, and the like."""

    wall_s: float
    """Seconds since the run began."""
    kind: EventKind
    what: str
    """In words."""
    role: str | None = None
    """The role of the worker that it is about; None if it is about none, and then `worker` is None too."""
    worker: str | None = None
    """Its UUID."""

    @property
    def topic(self) -> Topic:
        return "event"

    def fields(self) -> dict[str, Value]:
        return {"event": self.kind, "role": self.role or "", "worker": self.worker or ""}

    def text(self) -> str:
        return self.what
