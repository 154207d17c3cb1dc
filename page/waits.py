"""What processes do and wait for, in the words of the page."""

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
_WORDS = {
    "work": ("works", ""),
    "env": ("steps environments", ""),
    "wait_credit": ("waits for credit", "the learner is slower, or a new policy has to come first"),
    "wait_batches": ("waits for batches", "its collectors are slower; more of them would help"),
    "wait_policy": ("waits for a policy", "one is loaded or published"),
    "wait_disk": ("waits for the disk", "the disk of the run takes no writes"),
    "wait_workers": ("waits for workers", "the herd has none for it"),
    "wait_other": ("waits for something else", "acknowledgements, or the end"),
}
_WORDS_OF = {
    "evaluator": {"wait_batches": ("waits for an evaluation", "no checkpoint is due")},
    "reanalyzer": {"wait_batches": ("waits for rows", "there is nothing to compute again")},
    "coordinator": {"wait_other": ("waits for messages", "it has nothing to do")},
}


def waits_for(activity: str) -> Wait | None:
    """What a worker that does this waits for; None if it does not wait."""
    if activity in OF_ACTIVITY:
        return OF_ACTIVITY[activity]
    return "other" if activity.startswith("waiting") else None


def words(role: str) -> dict[str, tuple[str, str]]:
    """For each kind of a role's time what it is called, and why somebody waits so."""
    return {**_WORDS, **_WORDS_OF.get(role, {})}
