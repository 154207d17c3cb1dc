"""Where the time goes, role by role: one table for people, one curve per number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from tabulate import tabulate

from remuda.logbook.reports import Report, Topic
from remuda.logbook.tables import Value


@dataclass(frozen=True)
class RoleVitals:
    """What the processes of one role used since the last report, and the shares of their time. Shares add up to 1."""

    role: str
    """collector, evaluator, learner or coordinator; serial where all are one process."""
    processes: int
    cpu_cores: float
    """Processor time of all of them per second; child processes of vectors not included."""
    rss_mib: float
    """Resident memory of all of them; pages that they share are counted in each."""
    work: float
    """Neither waiting nor in the environment."""
    env: float
    """In the environment's step and reset."""
    wait_data: float
    """For batches, or for an evaluation to play."""
    wait_policy: float
    """For a policy to load or to be published."""
    wait_credit: float
    """For leave to collect more: the learner is the slower one, or a new policy has to come first."""
    wait_other: float
    """For acknowledgements, for the end; the coordinator: for anything to happen."""


@dataclass(frozen=True, kw_only=True)
class VitalsReport(Report):
    """All roles of a run over the past seconds."""

    wall_s: float
    """Seconds since the run began; the x of its curves."""
    past_s: float
    """Seconds it covers."""
    roles: Sequence[RoleVitals]
    workers: Mapping[str, RoleVitals] = field(default_factory=dict[str, RoleVitals])
    """The same of each worker by its UUID, of a bounded number of them; in the time series alone."""
    episode: int = 0
    policy_version: int = 0

    @property
    def topic(self) -> Topic:
        return "vitals"

    def fields(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for vitals in self.roles:
            for each in fields(vitals)[1:]:
                found[f"{vitals.role}_{each.name}"] = getattr(vitals, each.name)
        return found

    def text(self) -> str:
        names = [each.name for each in fields(RoleVitals)]
        heads, *rows = [[name, *(_cell(name, getattr(vitals, name)) for vitals in self.roles)] for name in names]
        table = tabulate(rows, headers=heads, tablefmt="grid", disable_numparse=True)
        return f"Where the past {round(self.past_s, 1):g} seconds went:\n{table}"


def _cell(name: str, value: str | float) -> str:
    if isinstance(value, str | int):
        return str(value)
    if name == "cpu_cores":
        return f"{value:.2f}"
    return f"{value:.0f}" if name == "rss_mib" else f"{100 * value:.1f} %"
