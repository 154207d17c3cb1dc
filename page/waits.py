"""What processes wait for, in the words of the page."""

from __future__ import annotations

from typing import Literal

Wait = Literal["credit", "batches", "policy", "disk", "workers", "other"]
OF_ACTIVITY: dict[str, Wait] = {
    "waiting for credit": "credit",
    "waiting for batches": "batches",
    "waiting for an evaluation": "batches",
    "waiting for chunks": "batches",
}
"""By what a worker says that it does. Other activities that begin with `waiting` are `other`."""
OF_USAGE: dict[str, Wait] = {
    "wait_credit": "credit",
    "wait_data": "batches",
    "wait_policy": "policy",
    "wait_other": "other",
}
"""By the name of its share in the time series. The other two follow from events."""


def waits_for(activity: str) -> Wait | None:
    """What a worker that does this waits for; None if it does not wait."""
    if activity in OF_ACTIVITY:
        return OF_ACTIVITY[activity]
    return "other" if activity.startswith("waiting") else None
