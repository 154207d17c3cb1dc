"""The collectors of a run: their chunks count for all policies, and credit limits how far each may run ahead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush

from remuda.coordinator.effects import DeleteChunks, Reply, SendToLease, Step
from remuda.coordinator.experiment.flow import STALLED_S
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.logbook.episode_reports import WorkerReport
from remuda.policy.row_plan import joint_plan
from remuda.training.effects import LogLine
from remuda.training.replay.accounting import CHUNKS_AHEAD, Accepted
from remuda.training.run_snapshot import ChangedRows, Rows
from remuda.training.snapshot import AccountSnapshot
from remuda.wire.messages import (
    ChunkAccepted,
    ChunkMeta,
    ChunkReady,
    CollectorReport,
    Credit,
    PolicyAvailable,
    PolicyRef,
)

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
        self.outstanding = 0
        """Environment steps granted, not yet counted and still waited for, over all collectors."""
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
            self.outstanding -= account.outstanding
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
        self.outstanding = 0
        return len(late)

    def granted(self, lease: int) -> int:
        """Environment steps that the lease may take in total; 0 for a closed lease."""
        account = self._accounts.get(lease)
        return 0 if account is None or account.closed else account.granted

    def is_beyond(self, lease: int, env_steps: int) -> bool:
        """True if this number of further steps is far more than the lease allows."""
        account = self._accounts.get(lease)
        return account is not None and account.arrived + env_steps > account.granted + ANNOUNCED_AHEAD * self._chunk

    def extend(self, allowance: int) -> list[int]:
        """Grant chunks while `allowance` environment steps exceed the outstanding steps, first to collectors with the
        fewest.

        Returns the leases with a larger grant. May exceed the allowance by less than a chunk, so a small allowance
        never stops all collectors. Grants at most GRANTS_PER_TURN: call again soon.
        """
        grown: set[int] = set()
        free = allowance - self.outstanding
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
        self.outstanding += outstanding - before
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


class Collecting:
    """Counts chunks, and keeps the collectors within the distance to the learners allowed by each policy."""

    def __init__(self, experiment: str, policies: Sequence[PolicyTraining]) -> None:
        self._experiment = experiment
        self._policies = policies
        self._first, *self._others = policies
        self._budget_env_steps = self._first.config.stop.max_env_steps
        self.plan = joint_plan([policy.replay.plan for policy in policies])
        self.credit = CreditBook(self.plan.chunk_slots)

    # --- collectors ---

    def open(self, leases: Iterable[int]) -> list[Step]:
        """Open accounts for ready collectors, once all learners are ready."""
        if all(policy.flow.is_open for policy in self._policies):
            for lease in leases:
                self.credit.open(lease)
        return self.extend()

    def gone(self, lease: int) -> list[Step]:
        """Free the outstanding steps of a collector whose lease is over."""
        self.credit.close(lease)
        return self.extend()

    def forget(self, lease: int) -> None:
        """Forget a lease with an end long ago; later chunks of the lease are not counted."""
        self.credit.forget(lease)
        for policy in self._policies:
            policy.replay.ledger.forget(lease)

    def repeat(self, leases: Iterable[int]) -> list[Step]:
        """Send collectors their credit again."""
        return self._send([lease for lease in leases if self.credit.granted(lease)])

    # --- experience ---

    def chunk(self, message: ChunkReady) -> tuple[Accepted, list[Step]]:
        """Count a chunk for all policies, or for none. Returns the result, and the steps to take."""
        lease, metas = message.lease, (message.meta, *message.others)
        check = self._first.replay.index.check_fits if not self._others else partial(self._check_fits, metas)
        steps, accepted = list[Step](), Accepted(fresh=False)
        for policy, meta in zip(self._policies, metas, strict=True):
            accepted = policy.chunk(meta, lease, check)
            if accepted.deletable:
                steps += policy.own([DeleteChunks(self._experiment, accepted.deletable)])
            if accepted.rejected is not None:
                steps += policy.own([DeleteChunks(self._experiment, (meta.file,))])
        if accepted.rejected is not None:
            text = f"chunk {message.meta.file} refused: {accepted.rejected}"
            steps.insert(0, LogLine(self._experiment, text, "warning"))
        if accepted.fresh or accepted.rejected is not None:
            self.credit.arrived(lease, self.plan.slots(metas))
        grown = self._grow()
        steps.append(self.answer(message, rejected=accepted.rejected))
        if grown and grown != [lease]:
            steps += self._send([other for other in grown if other != lease])
        for policy in self._policies:
            if policy.flow.requests.next is not None and (served := policy.flow.serve()):
                steps += [*served, *self.extend()]
        return accepted, steps

    def _check_fits(self, metas: Sequence[ChunkMeta], _: ChunkMeta) -> None:
        """Raise ChunkTooLargeError if the buffer of any policy can never hold its part of a chunk."""
        for policy, meta in zip(self._policies, metas, strict=True):
            policy.replay.index.check_fits(meta)

    def answer(self, message: ChunkReady, *, rejected: str | None) -> Reply:
        """Return the acknowledgement of a chunk, with all control data for the collector."""
        policy, exploration = self._first.flow.policy, self._first.exploration()
        others = [each.acting() for each in self._others] if self._others else []
        granted, task = self.credit.granted(message.lease), self._first.commander.curriculum.task
        return Reply(ChunkAccepted(message.meta.chunk, granted, policy, exploration, rejected, others, task))

    def published(self, index: int, policy: PolicyRef, collectors: Iterable[int]) -> list[Step]:
        """Announce a new policy file to these collectors (leases). Collectors due for credit get the news with the
        credit."""
        if not self._policies[index].flow.published(policy):
            return []
        granted = self._grow()
        steps: list[Step] = [
            SendToLease(lease, PolicyAvailable(lease, policy, index)) for lease in collectors if lease not in granted
        ]
        return steps + self._send(granted)

    def tick(self, now_s: float) -> list[Step]:
        """Time has passed."""
        stalled = [policy.flow.is_stalled(now_s) for policy in self._policies]  # each keeps its time
        if any(stalled):
            late = self.credit.wait_no_longer()
            text = (
                f"no chunk has come for {STALLED_S:g} s while the learner waits: {late} collector(s) may still "
                "deliver theirs, and others collect in their place"
            )
            return [*([LogLine(self._experiment, text, "warning")] if late else []), *self.extend()]
        return self.extend()

    def extend(self) -> list[Step]:
        """Grant collectors the credit that buffers and budget allow; many collectors over several calls."""
        grown = self._grow()
        return self._send(grown) if grown else []

    def _grow(self) -> list[int]:
        """Grant credit as far as each policy allows; return the leases with a larger grant."""
        room = self._budget_env_steps - self._first.replay.ledger.env_step
        for policy in self._policies:
            if not policy.flow.is_open or policy.replay.is_filled:
                return []
            room = min(room, policy.replay.plan.slots_for(policy.replay.index.insertable_rows()))
        return self.credit.extend(room)

    def _send(self, leases: Sequence[int]) -> list[Step]:
        if not leases:
            return []
        first, *others = [policy.acting() for policy in self._policies]
        task, granted = self._first.commander.curriculum.task, self.credit.granted
        return [
            SendToLease(lease, Credit(lease, granted(lease), first.policy, first.exploration, others, task))
            for lease in leases
        ]


def collector_report(message: CollectorReport, worker: str, env_step: int) -> WorkerReport:
    """Return the report about a collector's work."""
    return WorkerReport(
        train_iter=message.train_iter,
        env_step=env_step,
        role="collector",
        worker=worker,
        episode_count=message.episode_count,
        step_count=message.step_count,
        duration_s=message.duration_s,
        reward_mean=message.reward_mean,
        reward_std=message.reward_std,
        statistics=message.statistics,
        metrics=message.metrics,
    )
