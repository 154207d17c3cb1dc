"""TensorBoard's view: one event file per folder, with every value over train_iter and over env_step.

Histograms and films are over train_iter alone, the name of checkpoints.
"""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import JsonValue

from remuda.config.errors import flat
from remuda.logbook.curve_file import CurveFile
from remuda.logbook.event_file import film_event, histogram_event, hparams_events, scalar_event, text_event
from remuda.logbook.lines import Value
from remuda.logbook.statistics import trimmed
from remuda.wire.messages import Counters, ExperimentStatus, Film, Histogram

_FLOAT32_MAX = 3.4028234e38
_CONFIG, _RESULTS, _HPARAMS = "config", "results", "_hparams_"
"""Groups of tags that are not curves; the page of hyperparameters needs the last name."""
_NOT_COMPARED = ("name", "exp_name", "log", "limits", "launch", "checkpoint", "source_dir", "affinity")
"""Settings without effect on learning."""


class EventWriter(CurveFile):
    """Writes the event file of a folder, as its only writer.

    A call is a single write to the operating system, and raises OSError after a failure. Events after `resumed` are
    removed; None keeps all.
    """

    def __init__(
        self, folder: Path, *, resumed: Counters | None = None, now_s: Callable[[], float] = time.time
    ) -> None:
        super().__init__(folder, now_s=now_s)
        self._last_steps: Mapping[str, float] = {}
        """Last valid step by axis, while a full disk prevents the removal of later points."""
        if resumed is not None:
            before = resumed.train_iter - 1  # the run continues, and will report other results
            self._cut(
                {
                    "iter": resumed.train_iter,
                    "step": resumed.env_step,
                    "sec": resumed.wall_s,
                    _CONFIG: resumed.train_iter,
                    _RESULTS: before,
                    _HPARAMS: before,
                }
            )
        self._found = dict(self.newest)
        """Newest step of each group at the time of opening."""
        self._seconds: dict[str, int] = {}
        """Newest second of each curve over time since opening."""

    def rewind(self, train_iter: int) -> None:
        """Remove points after this update: a learner continues from the update, and repeats the points."""
        self._cut({"iter": train_iter})

    def newest_step(self, group: str) -> int:
        """Return the highest step of a group of curves (`evaluator_iter`, the part of the tags before the slash); -1
        for an empty group."""
        return self.newest.get(group, -1)

    def scalars(self, prefix: str, values: Mapping[str, Value], *, train_iter: int, env_step: int) -> None:
        """Add `<prefix>_iter/<key>` at train_iter and `<prefix>_step/<key>` at env_step for every finite number."""
        self._write(values, {f"{prefix}_iter": train_iter, f"{prefix}_step": env_step})

    def throughput(self, prefix: str, values: Mapping[str, Value], *, wall_s: float) -> None:
        """Add `<prefix>_sec/<key>` at whole seconds since the run began. A curve keeps the first point of a second: a
        run that ends right after a table writes another table."""
        group, second = f"{prefix}_sec", int(wall_s)
        found = self._found.get(group, -1)
        new = {key: value for key, value in values.items() if self._seconds.get(f"{group}/{key}", found) < second}
        self._seconds |= {f"{group}/{key}": second for key in new}
        self._write(new, {group: second})

    def histograms(self, prefix: str, histograms: Mapping[str, Histogram], *, train_iter: int) -> None:
        """Add `<prefix>_iter/<name>` at train_iter for every histogram, unless the group has histograms from train_iter
        on."""
        group = f"{prefix}_iter"
        if histograms and self._is_new(group, train_iter):
            now_s = self._now_s()
            events = (
                histogram_event(now_s, train_iter, f"{group}/{name}", trimmed(histogram))
                for name, histogram in histograms.items()
            )
            self._append(b"".join(events), {group: train_iter})

    def film(self, film: Film, *, train_iter: int) -> None:
        """Add a film to `film_iter/first_episode` at train_iter, unless the group has films from train_iter on."""
        group = "film_iter"
        if self._is_new(group, train_iter):
            event = film_event(self._now_s(), train_iter, f"{group}/first_episode", film)
            self._append(event, {group: train_iter})

    def config(self, markdown: str, *, train_iter: int) -> None:
        """Show the settings on the page of texts, unless the page has settings from this update on."""
        if self.newest_step(_CONFIG) < train_iter:
            self._append(text_event(self._now_s(), train_iter, _CONFIG, markdown), {_CONFIG: train_iter})

    def results(self, settings: Mapping[str, object], results: Mapping[str, float], *, train_iter: int) -> None:
        """Show finite results beside the settings on the page of hyperparameters, unless the page has results from this
        update on."""
        if self.newest_step(_HPARAMS) >= train_iter:
            return
        finite = {f"{_RESULTS}/{key}": value for key, value in results.items() if abs(value) <= _FLOAT32_MAX}
        now_s = self._now_s()
        events = scalar_event(now_s, train_iter, finite) + hparams_events(now_s, train_iter, settings, finite)
        self._append(events, {_RESULTS: train_iter, _HPARAMS: train_iter})

    def _is_new(self, group: str, step: int) -> bool:
        """Return True for a group without points from this step on: a continued run may report its checkpoint again."""
        self._cut_what_is_due()
        return self.newest_step(group) < step

    def _cut(self, last_steps: Mapping[str, float]) -> None:
        self._last_steps = {**self._last_steps, **last_steps}
        self._cut_what_is_due()

    def _cut_what_is_due(self) -> None:
        last_steps = self._last_steps
        if last_steps:
            self.cut(lambda group: last_steps.get(group, last_steps.get(group.rpartition("_")[2], math.inf)))
            self._last_steps = {}

    def _append(self, events: bytes, steps: Mapping[str, int]) -> None:
        self._cut_what_is_due()
        self.append(events, steps)

    def _write(self, values: Mapping[str, Value], steps: Mapping[str, int]) -> None:
        numeric = {key: float(value) for key, value in values.items() if isinstance(value, numbers.Real)}
        finite = {key: value for key, value in numeric.items() if abs(value) <= _FLOAT32_MAX}
        if finite:
            now_s = self._now_s()
            events = (
                scalar_event(now_s, step, {f"{group}/{key}": value for key, value in finite.items()})
                for group, step in steps.items()
            )
            self._append(b"".join(events), steps)


def as_markdown(settings: Mapping[str, JsonValue]) -> str:
    """The settings as a block of YAML."""
    import yaml  # workers import this module, but never call this

    text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    return "".join(f"    {line}\n" for line in text.splitlines())


def hyperparameters(settings: Mapping[str, JsonValue]) -> dict[str, object]:
    """Return dotted names and values of the settings compared between runs: numbers, booleans and text."""
    compared = {name: value for name, value in settings.items() if name not in _NOT_COMPARED}
    return {name: value for name, value in listed(compared) if value is not None}


def listed(settings: Mapping[str, JsonValue]) -> list[tuple[str, JsonValue]]:
    """Dotted names and values; lists as text."""
    return [(name, str(value) if isinstance(value, list | dict) else value) for name, value in flat(settings).items()]


def results_of(status: ExperimentStatus) -> dict[str, float]:
    """Return the results of a run as numbers."""
    results = {
        "best_return": status.best_return,
        "last_return": status.last_return,
        "env_step": status.env_step,
        "train_iter": status.train_iter,
        "wall_s": status.wall_s,
    }
    return {name: float(value) for name, value in results.items() if value is not None and math.isfinite(value)}
