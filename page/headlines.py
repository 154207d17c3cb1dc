"""One sentence about each run: what it waits for and why, how it goes, or how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from remuda.page.waiting import Lack, Queued
from remuda.page.waits import words

NOTABLE = 0.25
"""Share of the time from which on a wait is named."""
_NEVER = 0.02
"""The same for waits that should not be there at all: for disks and workers."""
Shares = Mapping[str, Mapping[str, float]]
"""By role, the share of its time by what it is spent on."""
Tone = Literal["good", "wait", "bad", "still"]
_TONES: Mapping[str, Tone] = {
    "queued": "wait",
    "starting": "wait",
    "running": "good",
    "stopping": "wait",
    "failed": "bad",
}


class Headline(Struct, frozen=True):
    """The sentence about a run, and its tone."""

    tone: Tone
    text: str


class Told(Protocol):
    """What a sentence needs to know of a run."""

    @property
    def state(self) -> str:
        """A state of an experiment, or unknown."""
        ...

    @property
    def reason(self) -> str | None:
        """Of its end."""
        ...

    @property
    def why(self) -> str | None:
        """It waits, as its coordinator says."""
        ...


def headline(
    run: Told, *, queued: Queued | None = None, recent: Shares | None = None, stop: Mapping[str, object] | None = None
) -> Headline:
    """`queued`: its entry in the queue; `recent`: where the time goes now; `stop`: the bounds of its config. Each may
    be missing."""
    tone = _TONES.get(run.state, "still")
    if run.state == "queued":
        return Headline(tone, _sentence(_queued(queued, run.why)))
    if run.state == "running":
        return Headline("wait", _sentence(run.why)) if run.why else _running(recent or {})
    begins_or_ends = {
        "starting": "it has its workers, and waits until its learner is ready",
        "stopping": "it ends: the last checkpoint is saved and evaluated",
    }
    if run.state in begins_or_ends:
        return Headline(tone, _sentence(run.why or begins_or_ends[run.state]))
    if run.state == "unknown":
        text = "nobody has written how it ended: its process was killed, or another coordinator has it"
        return Headline(tone, _sentence(text))
    return Headline(tone, _sentence(f"{run.state}: {_end(run.reason, stop or {})}"))


def _queued(queued: Queued | None, why: str | None) -> str:
    """`waits for 1 learner and 1 collector: low has them; it is number 1 in the queue`."""
    if queued is None:
        return why or "it waits for workers"
    place = "" if queued.place is None else f"; it is number {queued.place} in the queue"
    if not queued.waits_for:
        return f"{queued.why or why or 'it waits for workers'}{place}"
    runs = list(dict.fromkeys(holder.run or holder.name for holder in queued.held_by))
    shown = runs if len(runs) <= 3 else [*runs[:2], f"{len(runs) - 2} other runs"]
    one = len(queued.waits_for) == 1 and queued.waits_for[0].missing == 1
    have = f"{_listed(shown)} {'has' if len(runs) == 1 else 'have'} {'it' if one else 'them'}"
    lacks = _listed([_lack(each) for each in queued.waits_for])
    return f"waits for {lacks}: {have if runs else 'the herd has too few'}{place}"


def _lack(lack: Lack) -> str:
    """`2 collectors (1 free)`."""
    many = lack.missing or lack.needs
    more = ", ".join(filter(None, [f"{lack.free} free" if lack.free else "", lack.note]))
    return f"{many:,} {lack.role}{'' if many == 1 else 's'}{f' ({more})' if more else ''}"


def _running(recent: Shares) -> Headline:
    """Of a run that goes on: the wait that costs most."""

    def waits(role: str, kinds: Sequence[str], least: float) -> Headline | None:
        shares = recent.get(role, {})
        most = max(kinds, key=lambda kind: shares.get(kind, 0.0))
        if shares.get(most, 0.0) < least:
            return None
        name, why = words(role)[most]
        return Headline("wait", _sentence(f"the {role} {name} {_percent(shares[most])} of its time: {why}"))

    for role in ("learner", "collector"):
        if (stuck := waits(role, ["wait_disk", "wait_workers"], _NEVER)) is not None:
            return stuck
    credit = recent.get("collector", {}).get("wait_credit", 0.0)
    batches = recent.get("learner", {}).get("wait_batches", 0.0)
    if min(credit, batches) >= NOTABLE:
        text = (
            f"the learner and its collectors wait for each other, it for batches {_percent(batches)} of its time, they "
            f"for credit {_percent(credit)}: a larger buffer.max_policy_lag would let both work at once"
        )
        return Headline("wait", _sentence(text))
    if (starved := waits("learner", ["wait_batches", "wait_policy", "wait_other"], NOTABLE)) is not None:
        return starved
    if credit >= NOTABLE:
        text = f"the learner sets the pace: its collectors wait for credit {_percent(credit)} of their time"
        return Headline("good", _sentence(text))
    return Headline("good", _sentence("it runs, and nobody waits for long" if recent else "it runs"))


def _end(reason: str | None, stop: Mapping[str, object]) -> str:
    if reason is None:
        return "nobody has written why"
    ends: Mapping[str, Callable[[], str]] = {
        "stop_value": lambda: f"its return reached the stop value {_bound(stop, 'stop_value', '')}".rstrip(),
        "max_env_steps": lambda: f"it has made {_bound(stop, 'max_env_steps', 'all its')} environment steps",
        "max_train_iters": lambda: f"it has made {_bound(stop, 'max_train_iters', 'all its')} updates",
        "max_wall_s": lambda: "its time was over",
        "stopped": lambda: "somebody asked for it",
    }
    return ends[reason]() if reason in ends else reason


def _bound(stop: Mapping[str, object], name: str, otherwise: str) -> str:
    value = stop.get(name)
    return f"{value:,.10g}" if isinstance(value, int | float) else otherwise


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _listed(words_: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words_[:-1]), *words_[-1:]]))


def _sentence(text: str) -> str:
    text = text.strip().rstrip(". \n")
    return f"{text[:1].upper()}{text[1:]}."
