"""Reports for TensorBoard's pages of histograms and images; text logs do not show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from remuda.logbook.grid_format import Value
from remuda.logbook.reports import Report, Topic
from remuda.wire.messages import Film, Histogram


@dataclass(frozen=True, kw_only=True)
class HistogramReport(Report):
    """Histograms of the weights of a checkpoint, or of the actions of its evaluation."""

    of: Literal["weights", "actions"]
    histograms: Mapping[str, Histogram]
    """By layer, or by the action's number."""

    @property
    def topic(self) -> Topic:
        return self.of

    def fields(self) -> dict[str, Value]:
        return {name: sum(histogram.counts) for name, histogram in self.histograms.items()}

    def text(self) -> str:
        return f"histograms of {self.of}: {', '.join(self.histograms)}"


@dataclass(frozen=True, kw_only=True)
class FilmReport(Report):
    """The first episode of a checkpoint's evaluation as a film."""

    film: Film

    @property
    def topic(self) -> Topic:
        return "film"

    def fields(self) -> dict[str, Value]:
        return {"height": self.film.height, "width": self.film.width, "bytes": len(self.film.gif)}

    def text(self) -> str:
        return f"a film of {len(self.film.gif)} bytes"
