"""How a run ended, read from the last lines of its log."""

from __future__ import annotations

import re

from remuda.training.commander.end import ON_REQUEST, REACHED, End
from remuda.wire.messages import ExperimentState

_RECORD = re.compile(r"^\[\d{4}-\d\d-\d\d [^\]]*\]\[[^\]]*\]\[[A-Z]+\] ", re.MULTILINE)
_OVER = re.compile(r"the run is over after [0-9.]+ s: (.*)", re.DOTALL)
_BY_HAND = "a client asked"
"""Who stops a run by hand gives no other reason."""
_LAST_RECORDS = 3
"""Up to two records may follow the one that tells the end, for instance about a file."""


def ended(tail: str) -> tuple[ExperimentState, str] | None:
    """State and reason, if one of the last records of the log says that the run is over. A run that was resumed has
    other records behind that one."""
    for record in _RECORD.split(tail)[-_LAST_RECORDS:][::-1]:
        found = _OVER.match(record)
        if found is not None:
            reason = _reason(found[1].strip())
            because = found[1].strip().removeprefix(f"{ON_REQUEST}; ")
            told = because if reason == ON_REQUEST and not because.startswith(_BY_HAND) else reason
            return End(reason, "").state, told
    return None


def _reason(text: str) -> str:
    """The reason in `reason; explanation`. A sentence stands alone; earlier versions wrote it twice."""
    first = text.partition(";")[0]
    if first in REACHED or first == ON_REQUEST:
        return first
    return text[: len(text) // 2 - 1] if text[: len(text) // 2 - 1] == text[len(text) // 2 + 1 :] else text
