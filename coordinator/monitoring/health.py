"""Whether a coordinator is well, judged by the newest that its loop said of itself."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from remuda.coordinator.monitoring.snapshot import Snapshot

LOOP_LIMIT_S = 5.0
"""A loop that has said nothing for this long does not turn. It says something every second."""


class Health(Struct, frozen=True):
    """The answer to `/health`."""

    status: Literal["ok", "starting", "stalled", "draining"]
    reason: str = ""
    """Empty if it is well."""
    loop_age_s: float | None = None
    """Since the loop last said something; null if it has not yet."""

    @property
    def is_well(self) -> bool:
        """Whether it takes work."""
        return self.status == "ok"


def health(snapshot: Snapshot | None, now_s: float, limit_s: float = LOOP_LIMIT_S) -> Health:
    """Judge; `now_s` is by the clock of `Snapshot.measured_s`."""
    if snapshot is None:
        return Health("starting", "the coordinator is starting: its loop does not turn yet")
    age_s = round(max(now_s - snapshot.measured_s, 0.0), 3)
    if age_s > limit_s:
        reason = f"the coordinator's loop has not turned for {age_s:.1f} s; {limit_s:g} s are allowed"
        return Health("stalled", reason, age_s)
    if snapshot.draining:
        return Health("draining", "the coordinator is shutting down", age_s)
    return Health("ok", "", age_s)
