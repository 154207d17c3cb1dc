"""Publishes the newest policy, and target networks, from separate threads, so no update waits for a disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from remuda.learner.loop import DivergedError
from remuda.policy.base import ReanalyzingAlgorithm
from remuda.policy.files.policy_file import StaleEpoch, publish
from remuda.policy.saved_state import NotFinite
from remuda.storage.atomic import outlived
from remuda.storage.fence import SupersededError
from remuda.wire.messages import PolicyRef
from remuda.worker.serve import TakenOverError


class Pace:
    """A budget of time that fills steadily. The caller gives the clock's time."""

    def __init__(self, share: float, *, ahead_s: float) -> None:
        """`share` of the time, in (0, 1], may be spent, and `ahead_s` seconds in advance."""
        if not 0 < share <= 1 or not ahead_s >= 0:
            raise ValueError(f"share must be in (0, 1] and ahead_s not negative, not {share} and {ahead_s}")
        self._share = share
        self._ahead_s = ahead_s
        self._owed_s = 0.0
        self._owed_at_s = 0.0

    def spent(self, cost_s: float, now_s: float) -> None:
        """Spend `cost_s` seconds."""
        self._owed_s, self._owed_at_s = self._owed(now_s) + cost_s, now_s

    def allows(self, now_s: float) -> bool:
        """True if the budget allows another expense."""
        return self._owed(now_s) <= self._ahead_s

    def _owed(self, now_s: float) -> float:
        return max(0.0, self._owed_s - self._share * (now_s - self._owed_at_s))


RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses after successive failed writes (for instance because of a full disk), of any policies; the
last value repeats."""
SHARE = 0.011
"""Share of the training thread's time for publishing, in addition to its own copy (about 0.7 %): the threads share the
interpreter and the memory."""
AHEAD_S = 0.2
"""Processor time for publishing in advance. A run's first hundred policies are published at once, since each is much
better than the one before, and a run of a few seconds never waits."""
CLOSE_DEADLINE_S = 10.0
"""Deadline for the end of the thread; only a hanging disk takes longer."""


class Write(Protocol):
    """Writes a policy into its file; see `policy_file.publish`."""

    def __call__(
        self, path: Path, state: Mapping[str, np.ndarray], policy: PolicyRef, *, warn: Callable[[str], None]
    ) -> None:
        """Raises NotFinite, StaleEpoch, SupersededError, OSError."""
        ...


class Publisher:
    """Holds at most one waiting policy; a newer policy replaces the waiting one, so publishing never falls behind
    training.

    `ready` for another policy if no write is under way and the share of the time allows another; policies offered
    sooner are still published. Versions count up from 0. Failed writes are repeated. Weights that
    are not finite, or a learner of a newer epoch, end the publisher.
    """

    def __init__(
        self,
        path: Path,
        epoch: int,
        *,
        published: Callable[[PolicyRef], None],
        say: Callable[[str], None],
        write: Write = publish,
    ) -> None:
        """The publishing thread calls `published` and `say`."""
        self._path = path
        self._epoch = epoch
        self._published = published
        self._say = say
        self._write = write
        self._next_version = 0
        self._changed = threading.Condition()
        self._offered: tuple[Mapping[str, np.ndarray], int] | None = None
        self._busy = False
        self._retrying = False
        self._refusals = 0
        self._pace = Pace(SHARE, ahead_s=AHEAD_S)
        self._closing = False
        self._failure: Exception | None = None
        self.last: PolicyRef | None = None
        """The policy in the file."""
        self._thread = threading.Thread(target=self._run, name="remuda-publisher", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """True if another policy can be published within the share of the time, if the last one cannot be written, or
        if `offer` would raise."""
        if self._retrying or self._failure is not None:
            return True
        return not self._busy and self._offered is None and self._pace.allows(time.monotonic())

    def offer(self, state: Mapping[str, np.ndarray], train_iter: int) -> None:
        """Publish this policy as soon as possible. The caller must not change the arrays afterwards.

        Raises the error that ended the publishing thread, usually TakenOverError.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self._offered = (state, train_iter)
            self._changed.notify_all()

    def flush(self, deadline_s: float) -> bool:
        """Wait until nothing waits to be published. False when the deadline passes first."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: (self._offered is None and not self._busy) or self._failure is not None, deadline_s
            )
            if self._failure is not None:
                raise self._failure
            return done

    def close(self) -> None:
        """End the thread, without publishing a waiting policy."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(CLOSE_DEADLINE_S)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._offered is not None or self._closing)
                if self._closing:
                    return
                assert self._offered is not None
                (state, train_iter), self._offered, self._busy = self._offered, None, True
            before_s = time.thread_time()
            try:
                with outlived(
                    self._path
                ):  # readers get a message about the new one before the old one's memory is freed
                    self._publish(state, train_iter)
            except (StaleEpoch, SupersededError) as error:
                self._say(f"policy of iteration {train_iter} is not published, and this learner stops: {error}")
                self._fail(taken_over(error))
                return
            except Exception as error:  # handed to the training thread, which raises it
                self._fail(error)
                return
            self._pace.spent(time.thread_time() - before_s, time.monotonic())
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _publish(self, state: Mapping[str, np.ndarray], train_iter: int) -> None:
        ref = PolicyRef(self._epoch, self._next_version, train_iter)
        while True:
            try:
                self._write(self._path, state, ref, warn=self._say)
            except NotFinite as error:
                self._say(f"policy of iteration {train_iter} is not published: {error}")
                raise DivergedError(f"after update {train_iter}, {error}") from error
            except OSError as error:
                self._say(f"policy of iteration {train_iter} cannot be written: {error}; trying again")
                self._refusals += 1
                if self._give_way(RETRY_S[min(self._refusals, len(RETRY_S)) - 1]):
                    return
            else:
                self._refusals = 0
                self._next_version += 1
                self.last = ref
                self._published(ref)
                return

    def _give_way(self, pause_s: float) -> bool:
        """Pause before another try; True if a newer policy waits or the thread should end, so this policy is
        dropped."""
        with self._changed:
            self._retrying = True
            try:
                self._changed.wait_for(lambda: self._closing, pause_s)
                return self._offered is not None or self._closing
            finally:
                self._retrying = False


def taken_over(why: object) -> TakenOverError:
    """Error that ends a replaced learner."""
    return TakenOverError(f"another learner has taken over: {why}")


class TargetPublisher:
    """Publishes the target network after each change, from a separate thread, as policies are published.

    Policy file and target file have separate versions under the same epoch.
    """

    def __init__(self, algorithm: ReanalyzingAlgorithm, publisher: Publisher) -> None:
        """From now on `algorithm` computes no stored rows again itself."""
        algorithm.leave_reanalysis()
        self._algorithm = algorithm
        self._publisher = publisher
        self._offered_iter = -1

    @property
    def is_due(self) -> bool:
        """True if the target network has changed since the last offer, and can be published now."""
        return self._algorithm.target_iter != self._offered_iter and self._publisher.ready

    def offer(self) -> None:
        """Publish the target network as soon as possible. Raises the error that ended the publishing thread."""
        self._offered_iter = self._algorithm.target_iter
        self._publisher.offer(self._algorithm.target_state(), self._offered_iter)
