"""The collectors of a run: their chunks count for all policies, and their credit is what every policy allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from remuda.coordinator.effects import DeleteChunks, Reply, SendToLease, Step
from remuda.coordinator.experiment.credit import CreditBook
from remuda.coordinator.experiment.flow import STALLED_S
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.policy.row_plan import joint_plan
from remuda.training.effects import LogLine
from remuda.training.replay.accounting import Accepted
from remuda.wire.messages import ChunkAccepted, ChunkMeta, ChunkReady, Credit, PolicyAvailable, PolicyRef


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
        steps: list[Step] = []
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
            if policy.flow.waits and (served := policy.flow.serve()):
                steps += [*served, *self.extend()]
        return accepted, steps

    def _check_fits(self, metas: Sequence[ChunkMeta], _: ChunkMeta) -> None:
        """Raise ChunkTooLargeError if the buffer of any policy can never hold its part of a chunk."""
        for policy, meta in zip(self._policies, metas, strict=True):
            policy.replay.index.check_fits(meta)

    def answer(self, message: ChunkReady, *, rejected: str | None) -> Reply:
        """Return the acknowledgement of a chunk, with all control data for the collector."""
        flow, others = self._first.flow, [policy.flow.acting() for policy in self._others] if self._others else []
        granted, task = self.credit.granted(message.lease), self._first.commander.curriculum.task
        return Reply(
            ChunkAccepted(message.meta.chunk, granted, flow.policy, flow.exploration(), rejected, others, task)
        )

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
        if any([policy.flow.is_stalled(now_s) for policy in self._policies]):
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
            if not policy.flow.is_open:
                return []
            room = min(room, policy.flow.insertable_slots())
        return self.credit.extend(room)

    def _send(self, leases: Sequence[int]) -> list[Step]:
        if not leases:
            return []
        first, *others = [policy.flow.acting() for policy in self._policies]
        task, granted = self._first.commander.curriculum.task, self.credit.granted
        return [
            SendToLease(lease, Credit(lease, granted(lease), first.policy, first.exploration, others, task))
            for lease in leases
        ]
