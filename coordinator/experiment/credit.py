"""Credit limits how far each collector may run ahead of the coordinator's counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from remuda.training.changed_rows import ChangedRows
from remuda.training.replay.limiters import CHUNKS_AHEAD
from remuda.training.snapshot import AccountSnapshot, Rows

ANNOUNCED_AHEAD = 64
"""Chunks that a collector may announce beyond the grants before dismissal. A collector within the credit is at most a
chunk ahead; the rest allows for chunks of unusual size."""
GRANTS_PER_TURN = 1_000
"""Chunks granted at once. When the learner of a large run becomes ready, all collectors wait, and messages to ten
thousand of them would take a tenth of a second: the rest follows with the next message or tick."""
SPARE_CANDIDATES = 64
"""Maximum number of outdated candidates in the heap, besides the current candidates."""


@dataclass
class _Account:
    granted: int = 0
    """Environment steps that the collector may take under the lease, in total."""
    arrived: int = 0
    """Environment steps counted under the lease."""
    granted_as: int = 0
    """Number of the last grant among all grants."""
    closed: bool = False
    """The lease is over: no more grants, but granted steps may still arrive."""
    late: bool = False
    """The grant is overdue and no longer waited for. The collector gets no new grant before the next chunk arrives."""

    outstanding: int = 0
    """Environment steps granted, not yet counted, and still waited for."""


_Candidate = tuple[int, int, int]
"""Outstanding steps, number of the last grant, and lease. The smallest goes first: the collector with the fewest
outstanding steps, then the least recently granted, so work is shared evenly."""


class CreditBook:
    """Grants environment steps to collectors within an allowance. Grants never shrink, so a lost or repeated message
    with a grant does no harm.

    Called for every chunk, so the cost must not grow with the number of collectors: the sum and the candidates for more
    credit are kept up to date.
    """

    def __init__(self, chunk_env_steps: int) -> None:
        self._chunk = chunk_env_steps
        self._accounts: dict[int, _Account] = {}
        self._wanting: set[int] = set()
        """Leases with fewer outstanding steps than allowed."""
        self._candidates: list[_Candidate] = []
        """A heap with a current entry for every wanting lease, and outdated entries."""
        self._outstanding = 0
        self._grants = 0
        self._changed = ChangedRows[int]()

    def open(self, lease: int) -> None:
        """Open an account for a collector that has become ready."""
        if lease not in self._accounts:
            account = self._accounts[lease] = _Account()
            self._change(lease, account, granted=0, arrived=0)

    def close(self, lease: int) -> None:
        """Close the account of an ended lease and free the outstanding steps for the remaining collectors. Late chunks
        stay limited by the grant."""
        account = self._accounts.get(lease)
        if account is not None and not account.closed:
            self._outstanding -= account.outstanding
            account.closed, account.outstanding = True, 0
            self._wanting.discard(lease)
            self._changed.put.add(lease)

    def forget(self, lease: int) -> None:
        """Forget a lease under which no more chunks arrive."""
        self.close(lease)
        if self._accounts.pop(lease, None) is not None:
            self._changed.drop(lease)

    def arrived(self, lease: int, env_steps: int) -> None:
        """Count a chunk of this lease."""
        account = self._accounts.get(lease)
        if account is not None:
            account.late = False
            self._change(lease, account, granted=account.granted, arrived=account.arrived + env_steps)

    def wait_no_longer(self) -> int:
        """Free all outstanding steps for the remaining collectors; return the number of collectors with overdue steps.

        A late chunk still counts when it arrives, and only then does the collector get a new grant.
        """
        late = [(lease, account) for lease, account in self._accounts.items() if account.outstanding]
        for lease, account in late:
            account.late, account.outstanding = True, 0
            self._wanting.discard(lease)
        self._outstanding = 0
        return len(late)

    def granted(self, lease: int) -> int:
        """Environment steps that the lease may take in total; 0 for a closed lease."""
        account = self._accounts.get(lease)
        return 0 if account is None or account.closed else account.granted

    def is_beyond(self, lease: int, env_steps: int) -> bool:
        """True if this number of further steps is far more than the lease allows."""
        account = self._accounts.get(lease)
        return account is not None and account.arrived + env_steps > account.granted + ANNOUNCED_AHEAD * self._chunk

    @property
    def outstanding(self) -> int:
        """Environment steps granted, not yet counted and still waited for, over all collectors."""
        return self._outstanding

    def extend(self, allowance: int) -> list[int]:
        """Grant chunks while `allowance` environment steps exceed the outstanding steps, first to collectors with the
        fewest.

        Returns the leases with a larger grant. May exceed the allowance by less than a chunk, so a small allowance
        never stops all collectors. Grants at most GRANTS_PER_TURN: call again soon.
        """
        grown: set[int] = set()
        free = allowance - self._outstanding
        for _ in range(GRANTS_PER_TURN):
            lease = self._next() if free > 0 else None
            if lease is None:
                break
            account = self._accounts[lease]
            self._grants += 1
            account.granted_as = self._grants
            granted = max(account.granted, account.arrived) + self._chunk
            self._change(lease, account, granted=granted, arrived=account.arrived)
            free -= self._chunk
            grown.add(lease)
        return sorted(grown)

    # --- over a restart ---

    def rows(self) -> tuple[AccountSnapshot, ...]:
        """All rows."""
        return tuple(self._row(lease) for lease in self._accounts)

    def changes(self) -> Rows[AccountSnapshot]:
        """Return the rows changed since the last call."""
        return self._changed.take(self._row)

    def restore(self, rows: Sequence[AccountSnapshot]) -> None:
        """Continue from a snapshot; only for an empty book."""
        for known in rows:
            self.open(known.lease)
            self._change(known.lease, self._accounts[known.lease], granted=known.granted, arrived=known.arrived)
            if known.closed:
                self.close(known.lease)
        self._changed = ChangedRows[int]()

    def _row(self, lease: int) -> AccountSnapshot:
        account = self._accounts[lease]
        return AccountSnapshot(lease, account.granted, account.arrived, account.closed)

    # --- inside ---

    def _next(self) -> int | None:
        """Return the lease to grant next; None if all have enough."""
        candidates, wanting = self._candidates, self._wanting
        while wanting:
            outstanding, granted_as, lease = candidates[0]
            account = self._accounts.get(lease)
            if account is None or (account.outstanding, account.granted_as) != (outstanding, granted_as):
                heappop(candidates)
            elif lease in wanting:
                return lease
            else:
                heappop(candidates)
        return None

    def _change(self, lease: int, account: _Account, *, granted: int, arrived: int) -> None:
        before = account.outstanding
        self._changed.put.add(lease)
        account.granted, account.arrived = granted, arrived
        if account.closed:
            return
        outstanding = account.outstanding = 0 if account.late else max(0, granted - arrived)
        self._outstanding += outstanding - before
        if outstanding > (CHUNKS_AHEAD - 1) * self._chunk:
            self._wanting.discard(lease)
        elif lease not in self._wanting or outstanding != before:
            self._wanting.add(lease)
            heappush(self._candidates, (outstanding, account.granted_as, lease))
            if len(self._candidates) > SPARE_CANDIDATES + 2 * len(self._wanting):
                self._drop_outdated_candidates()

    def _drop_outdated_candidates(self) -> None:
        waiting = ((lease, self._accounts[lease]) for lease in self._wanting)
        self._candidates = [(account.outstanding, account.granted_as, lease) for lease, account in waiting]
        heapify(self._candidates)
