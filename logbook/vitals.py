"""Where the time goes, role by role: one table for people, one curve per number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import asdict
from tabulate import tabulate

from remuda.logbook.grid_format import Value
from remuda.logbook.reports import Report, Topic
from remuda.logbook.usage import Usage


@dataclass(frozen=True, kw_only=True)
class VitalsReport(Report):
    """All roles of a run over the past seconds."""

    wall_s: float
    """Seconds since the run began; the x of its curves."""
    past_s: float
    """Seconds it covers."""
    roles: Sequence[Usage]
    workers: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    """The same for each worker by its UUID, for a limited number of them; only in the time series."""
    episode: int = 0
    policy_version: int = 0

    @property
    def topic(self) -> Topic:
        return "vitals"

    def fields(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for vitals in self.roles:
            found |= {f"{vitals.role}_{name}": value for name, value in asdict(vitals).items() if name != "role"}
        return found

    def text(self) -> str:
        names = Usage.__struct_fields__
        heads, *rows = [[name, *(_cell(name, getattr(vitals, name)) for vitals in self.roles)] for name in names]
        table = tabulate(rows, headers=heads, tablefmt="grid", disable_numparse=True)
        return f"Where the past {round(self.past_s, 1):g} seconds went:\n{table}"


def _cell(name: str, value: str | float) -> str:
    if isinstance(value, str | int):
        return str(value)
    if name == "cpu_cores":
        return f"{value:.2f}"
    return f"{value:.0f}" if name == "rss_mib" else f"{100 * value:.1f} %"
