"""Something that happened in a run, for its time series; people read of it in the commander's log."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.logbook.grid_format import Value
from remuda.logbook.reports import Report, Topic
from remuda.logbook.series import EventKind


@dataclass(frozen=True, kw_only=True)
class EventReport(Report):
    """A worker joined or went, the run was held up, and the like."""

    wall_s: float
    """Seconds since the run began."""
    kind: EventKind
    what: str
    """In words."""
    role: str | None = None
    """Of the worker that it is about; None where it is about none, as the next."""
    worker: str | None = None
    """Its UUID."""

    @property
    def topic(self) -> Topic:
        return "event"

    def fields(self) -> dict[str, Value]:
        return {"event": self.kind, "role": self.role or "", "worker": self.worker or ""}

    def text(self) -> str:
        return self.what
