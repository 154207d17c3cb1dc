"""A callback: halves the learning rate when returns no longer rise, and ends the run if this does not help.

`remuda train examples/callback.yaml` (or launch) runs this callback; see docs/callbacks.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import remuda


class Plateau(remuda.Callback):
    """Compares the mean returns of the newest evaluations with the best return before."""

    def __init__(self, evaluations: int = 3, halvings: int = 1) -> None:
        self.evaluations, self.halvings = evaluations, halvings
        self.returns: list[float] = []
        self.best, self.without_rise = float("-inf"), 0

    def on_evaluation(self, event: remuda.Evaluated, run: remuda.CallbackRun) -> None:
        self.returns = [*self.returns, event.mean_return][-self.evaluations :]
        mean = fmean(self.returns)
        run.log("newest_mean", mean)
        if mean > self.best:
            self.best, self.without_rise = mean, 0
            return
        self.without_rise += 1
        if self.without_rise < self.evaluations:
            return
        if self.halvings == 0:
            run.stop(f"the mean return of {self.evaluations} evaluations no longer rises above {self.best:.6g}")
            return
        self.halvings, self.without_rise = self.halvings - 1, 0
        run.change("learner.learning_rate", run.config.learner.learning_rate / 2)

    def state(self) -> Mapping[str, object]:
        """Return the state to restore after a restart."""
        return {name: value for name, value in vars(self).items() if name != "evaluations"}

    def load_state(self, state: Mapping[str, object]) -> None:
        vars(self).update(state)
