"""How a coordinator leaves its runs to its next start: it has their learners save once more, and ends none of them."""

from __future__ import annotations

from remuda.coordinator.catalog import Catalog
from remuda.coordinator.effects import Exit, Step
from remuda.coordinator.journaling import Journaling
from remuda.training.effects import LogLine


class Handover:
    """Nothing happens until `begin`. Afterwards workers are served as before, until everything is saved.

    They are not told to leave: they wait for the next coordinator, as after a crash.
    """

    def __init__(self, catalog: Catalog, journaling: Journaling) -> None:
        self._catalog = catalog
        self._journaling = journaling
        self._begun = False

    def begin(self, reason: str, now_s: float) -> list[Step]:
        """Have every learner save what it has learned since its last checkpoint."""
        self._begun = True
        steps: list[Step] = [LogLine(None, f"handing over to the next start: {reason}")]
        for experiment in self._catalog.active:
            self._journaling.touched.add(experiment.identity.id)
            steps += experiment.save_now(now_s)
        return steps

    def tick(self) -> list[Step]:
        """End once nothing is being saved any more. A run whose disk accepts no writes is not waited for."""
        if not self._begun or any(each.is_saving and each.held_up is None for each in self._catalog.active):
            return []
        return [Exit()]
