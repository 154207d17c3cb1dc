"""The bill: use of runs, added up by user, project, run or day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from remuda.training.identity import Identity
from remuda.training.snapshot import HourRow
from remuda.wire.messages import BillKey, BillLine, Used

DAY_H = 24
NOTHING = Used()


@dataclass(frozen=True)
class Charge:
    """A run and its use, until the end of each hour; see Meter."""

    identity: Identity
    hours: Sequence[HourRow]

    def items(self, since_hour: int, until_hour: int) -> Iterable[BillLine]:
        """The use of each day, counting the hours of the period."""
        identity, days = self.identity, dict[int, Used]()
        for hour, used in by_hour(self.hours).items():
            if since_hour <= hour < until_hour:
                days[hour // DAY_H] = days.get(hour // DAY_H, NOTHING) + used
        for day, used in days.items():
            yield BillLine(identity.user, identity.project, identity.name, identity.id, date(day), 1, used)


def by_hour(hours: Iterable[HourRow], before: Used = NOTHING) -> Mapping[int, Used]:
    """Return the use in each hour, without hours of no use. `before`: the use before these hours."""
    used: dict[int, Used] = {}
    for row in sorted(hours, key=lambda row: row.hour):
        if row.used != before:
            used[row.hour] = row.used - before
        before = row.used
    return used


def date(day: int) -> str:
    """Return the date of a day since 1970, UTC."""
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


def bill(items: Iterable[BillLine], by: BillKey) -> list[BillLine]:
    """Add up the use of runs and days; most worker-seconds first, days in order."""
    lines: dict[str, BillLine] = {}
    runs: dict[str, set[str]] = {}
    for item in items:
        line = _headed(item, by)
        key = line.experiment or line.day or line.user or line.project
        known = lines.get(key)
        runs.setdefault(key, set()).add(item.experiment)
        lines[key] = line if known is None else replace(known, used=known.used + item.used)
    counted = [replace(line, runs=len(runs[key])) for key, line in lines.items()]
    if by == "day":
        return sorted(counted, key=lambda line: line.day)
    return sorted(counted, key=lambda line: -line.used.worker_us)


def _headed(item: BillLine, by: BillKey) -> BillLine:
    """Return the item with only those fields that its line shows."""
    match by:
        case "user":
            return BillLine(user=item.user, used=item.used)
        case "project":
            return BillLine(project=item.project, used=item.used)
        case "run":
            return replace(item, day="")
        case "day":
            return BillLine(day=item.day, used=item.used)
