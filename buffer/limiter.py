"""Limiters decide how many rows may come in and go out, given how many did."""

from __future__ import annotations

import math
from typing import Protocol

from remuda.buffer.samplers import UNLIMITED_ROWS

_MOST = float(UNLIMITED_ROWS)
"""Rounded down, larger values might not fit an integer."""


class Limiter(Protocol):
    """Decides how many rows may come in and go out."""

    request_rows: int
    """Most rows that a learner draws at once."""
    min_rows: int
    """Rows that come in before the first is drawn."""

    def insertable_rows(self, inserted: int, sampled: int) -> int:
        """Return the number of further rows that may come in."""
        ...

    def sampleable_rows(self, inserted: int, sampled: int) -> int:
        """Return the number of further rows that may be drawn."""
        ...

    def achieved(self, inserted: int, sampled: int) -> float:
        """Return the average number of draws per row; nan before the first row."""
        ...


class OnPolicyLimiter:
    """Lets in the rows of the next update, and of as many further updates as the policy may lag behind.

    An update is finished once its policy can act. With a lag of 0 nothing is collected while an update is trained or
    published, so every row of an update was collected by the policy that it improves.
    """

    def __init__(self, rows_per_update: int, *, updates_ahead: int) -> None:
        """`updates_ahead` is the lag: 0 keeps collectors strictly on the newest policy."""
        self.request_rows = rows_per_update
        self.min_rows = 0
        self._ahead_rows = rows_per_update * (1 + updates_ahead)
        self.finished_rows = 0
        """Rows of finished updates."""
        self.dropped_rows = 0
        """Rows that came in and were never used."""

    def finish(self, sampled: int) -> None:
        """Note that the first `sampled` rows were trained on, and the resulting policy is published."""
        self.finished_rows = sampled

    def drop(self, rows: int) -> None:
        """Note this number of rows as never used."""
        self.dropped_rows += rows

    def insertable_rows(self, inserted: int, sampled: int) -> int:
        """Return the number of further rows that may come in."""
        return max(0, self.finished_rows + self.dropped_rows + self._ahead_rows - inserted)

    def sampleable_rows(self, inserted: int, sampled: int) -> int:
        """Return UNLIMITED_ROWS: each row is drawn once, and the sampler knows the remaining rows."""
        return UNLIMITED_ROWS

    def achieved(self, inserted: int, sampled: int) -> float:
        """Uses per row: at most 1, less if rows were dropped or wait."""
        return sampled / inserted if inserted else math.nan


class SamplesPerInsertLimiter:
    """Keeps the number of sampled rows near `samples_per_insert` times the rows inserted after the first `min_rows`.

    With d = samples_per_insert * (inserted - min_rows) - sampled, both sides may continue while |d| is within `band`:
    inserting raises d, sampling lowers d. The first min_rows rows are a warm-up, which later draws do not make up for.

    The band is one learner's request plus the samples for `chunk_rows`, twice the minimum at which the two sides never
    wait for each other: if both were held back, d > band - samples_per_insert * chunk_rows and d < request_rows - band
    would hold at the same time. As the band does not grow, the achieved ratio approaches the setting as 1 / inserted:
    it is within 5 % once 20 * band / samples_per_insert rows came after the warm-up.

    Has no state: its caller holds the counters.
    """

    def __init__(
        self, samples_per_insert: float | None, min_rows: int, *, request_rows: int = 1, chunk_rows: int = 1
    ) -> None:
        """`samples_per_insert` None holds neither side back (after min_rows). `request_rows`: most rows per draw of a
        learner (batches * batch_size, of all requests in flight). `chunk_rows`: most rows of a simultaneous arrival
        (rows of a chunk times the collectors)."""
        if samples_per_insert is not None and not 0 < samples_per_insert < math.inf:
            raise ValueError(f"samples_per_insert must be positive, not {samples_per_insert}")
        if min_rows < 1 or request_rows < 1 or chunk_rows < 1:
            raise ValueError("min_rows, request_rows and chunk_rows must be at least 1")
        self._samples_per_insert = samples_per_insert
        self.min_rows = min_rows
        self.request_rows = request_rows
        self.band = request_rows + (samples_per_insert or 0.0) * chunk_rows
        """Most samples by which collecting or learning may be ahead."""

    def insertable_rows(self, inserted: int, sampled: int) -> int:
        """Return the number of further rows that may come in."""
        if self._samples_per_insert is None:
            return UNLIMITED_ROWS
        most = self.min_rows + math.floor(min((sampled + self.band) / self._samples_per_insert, _MOST))
        return min(UNLIMITED_ROWS, max(0, most - inserted))

    def sampleable_rows(self, inserted: int, sampled: int) -> int:
        """Return the number of further rows that may be drawn; 0 before min_rows came in."""
        if inserted < self.min_rows:
            return 0
        if self._samples_per_insert is None:
            return UNLIMITED_ROWS
        most = math.floor(min(self._samples_per_insert * (inserted - self.min_rows) + self.band, _MOST))
        return max(0, most - sampled)

    def achieved(self, inserted: int, sampled: int) -> float:
        """Return the average number of draws per row after the warm-up; nan before the first such row."""
        if inserted <= self.min_rows:
            return math.nan
        return sampled / (inserted - self.min_rows)
