"""Shares of the herd: the use of users and projects, their quotas and weights, and the order of the queue.

Among experiments of the same priority, the account with the fewest worker-hours per weight comes first. Half of an hour
of use is forgotten in a week.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from remuda.coordinator.bill import DAY_H, NOTHING
from remuda.training.run_snapshot import Identity
from remuda.wire.messages import AccountStatus, Quota, Used

HALF_LIFE_H = 7 * DAY_H
REMEMBERED_H = 28 * DAY_H
"""Older use does not count for the order of the queue."""
LONGEST_H = 366 * DAY_H
"""The longest period of a quota."""
US_PER_HOUR = 3_600_000_000


@dataclass(frozen=True)
class Past:
    """Use of a user and project in an hour."""

    user: str
    project: str
    hour: int
    used: Used


@dataclass(frozen=True)
class Active:
    """An unfinished run."""

    identity: Identity
    used: Used
    """Use in the present hour."""
    workers: int


@dataclass
class _Account:
    quota: Quota
    hours: dict[int, Used] = field(default_factory=dict[int, Used])
    """Use by hour, without the present hour of active runs."""
    present: Used = NOTHING
    """Use of active runs in the present hour."""
    workers: int = 0
    summed_at: int = -1
    """Hour of the next two sums; -1 for none."""
    window: Used = NOTHING
    decayed_us: float = 0.0

    def sum_up(self, hour: int) -> None:
        """Add up the hours, once in an hour and after changes."""
        if self.summed_at == hour:
            return
        self.summed_at = hour
        self.hours = {at: used for at, used in self.hours.items() if at > hour - LONGEST_H}
        since = hour - self.quota.days * DAY_H
        self.window = sum((used for at, used in self.hours.items() if at > since), NOTHING)
        remembered = ((hour - at, used) for at, used in self.hours.items() if at > hour - REMEMBERED_H)
        self.decayed_us = sum(used.worker_us * 0.5 ** (max(age_h, 0) / HALF_LIFE_H) for age_h, used in remembered)

    @property
    def used(self) -> Used:
        """Use in the period of the quota."""
        return self.window + self.present

    @property
    def share_hours(self) -> float:
        return (self.decayed_us + self.present.worker_us) / US_PER_HOUR / self.quota.weight


class Shares:
    """Quotas, and the use of all accounts. Pure: the cost of `read` depends on the number of active runs and accounts,
    not of their hours."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        """All with a quota, or with use that still counts."""
        self._refusals: dict[str, str | None] = {}
        """Reasons for the wait by account, since the newest `read`."""
        self._hour = 0

    def set_quota(self, quota: Quota) -> None:
        """Set the quota of an account; without limits and weight, none is left."""
        account = self._account(quota.account)
        account.quota, account.summed_at = quota, -1

    def note(self, past: Past) -> None:
        """Count the use of an hour that is over, or of a run that is over."""
        for name in accounts_of(past.user, past.project):
            account = self._account(name)
            account.hours[past.hour] = account.hours.get(past.hour, NOTHING) + past.used
            account.summed_at = -1

    def read(self, active: Iterable[Active], hour: int) -> None:
        """Read workers and present use of the active runs, before decisions."""
        self._hour = hour
        self._refusals.clear()
        for name, account in [*self._accounts.items()]:
            account.present, account.workers = NOTHING, 0
            account.sum_up(hour)
            if not account.hours and account.quota.is_empty:
                del self._accounts[name]
        for each in active:
            for name in accounts_of(each.identity.user, each.identity.project):
                account = self._account(name)
                account.present += each.used
                account.workers += each.workers

    # --- what follows ---

    def share_hours(self, identity: Identity) -> float:
        """Return the use by which the queue is ordered. A project counts if a quota names it."""
        user, *project = (self._account(name) for name in accounts_of(identity.user, identity.project))
        return max(each.share_hours for each in (user, *project) if each is user or not each.quota.is_empty)

    def room(self) -> dict[str, tuple[int, int]]:
        """Return the most workers and the present workers of accounts with such a limit."""
        limits = ((name, each.quota.workers, each.workers) for name, each in self._accounts.items())
        return {name: (most, present) for name, most, present in limits if most is not None}

    def refusal(self, identity: Identity) -> str | None:
        """Return a line about the quota that holds a run back and the command that lets the run begin; else None."""
        names = accounts_of(identity.user, identity.project)
        for name in names:
            if name not in self._refusals:
                self._refusals[name] = self._exhausted(name, self._account(name))
        found = (self._refusals[name] for name in names)
        return next((why for why in found if why is not None), None)

    def status(self) -> list[AccountStatus]:
        """Return all accounts with a quota or with use that still counts."""
        return [
            AccountStatus(each.quota, each.workers, each.used, each.share_hours)
            for _, each in sorted(self._accounts.items())
            if not each.quota.is_empty or each.workers or each.share_hours > 0
        ]

    def _account(self, name: str) -> _Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = _Account(Quota(name))
        return account

    def _exhausted(self, name: str, account: _Account) -> str | None:
        quota, used = account.quota, account.used
        if (most_hours := quota.worker_hours) is not None and used.worker_us >= most_hours * US_PER_HOUR:
            hours = used.worker_us / US_PER_HOUR
            what = f"{hours:.3f} of {most_hours:g} worker-hours"
            free_at = self._free_at(account, lambda left: left.worker_us < most_hours * US_PER_HOUR)
            raised = f"--worker-hours {int(hours) + 1}"
        elif (most_steps := quota.env_steps) is not None and used.env_steps >= most_steps:
            what = f"{used.env_steps:,} of {most_steps:,} environment steps"
            free_at = self._free_at(account, lambda left: left.env_steps < most_steps)
            raised = f"--env-steps {used.env_steps + 1}"
        else:
            return None
        days = "day" if quota.days == 1 else f"{quota.days} days"
        return (
            f"waits for its quota: {name} has used {what} of the last {days}; it may begin {free_at}, or once an "
            f"operator types `remuda quota set {name} {raised}` or more"
        )

    def _free_at(self, account: _Account, suffices: Callable[[Used], bool]) -> str:
        """Return the time at which enough use is older than the period, without further use."""
        left, period_h = account.used, account.quota.days * DAY_H
        for at in sorted(at for at in account.hours if at > self._hour - period_h):
            left -= account.hours[at]
            if suffices(left):
                return f"at {datetime.fromtimestamp((at + period_h) * 3_600, UTC):%Y-%m-%d %H:%M} UTC"
        return f"{account.quota.days * DAY_H} hours after the end of the active runs"


def accounts_of(user: str, project: str) -> tuple[str, ...]:
    """Return the accounts that a run is charged to."""
    return (f"user/{user}", f"project/{project}") if project else (f"user/{user}",)
