"""What runs that go on have spent the last minutes on: read again every few seconds, for the sentence about each."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from remuda.page.headlines import Shares
from remuda.page.library import REQUEST_S, Budget, Library
from remuda.page.run_ids import RunIds, UnknownRunError
from remuda.page.timeline import recent

LOOK_S = 5.0
PAST_S = 120.0
_MOST_RUNS = 100
"""So many are remembered."""


class GoingOn:
    """For any thread."""

    def __init__(self, library: Library, ids: RunIds, clock: Callable[[], float] = time.monotonic) -> None:
        self._library = library
        self._ids = ids
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Shares]] = OrderedDict()

    def shares(self, run: str) -> Shares:
        """By role, where its time goes; of its first policy, where it has several."""
        now_s = self._clock()
        known = self._known.get(run)
        if known is not None and now_s < known[0]:
            return known[1]
        try:
            with self._library.series(self._ids.each_policy(run)[0], Budget(REQUEST_S)) as reader:
                found = recent(reader, PAST_S)
        except (UnknownRunError, OSError):
            found = {}
        self._known[run] = (now_s + LOOK_S, found)
        while len(self._known) > _MOST_RUNS:
            self._known.popitem(last=False)
        return found
