"""A role's own log under a lease."""

from __future__ import annotations

from remuda.logbook.book import WorkerSource
from remuda.logbook.role_logbooks import worker_logbook
from remuda.logbook.streams import end_printed, log_printed
from remuda.worker.link import Link, WorkerIdentity
from remuda.worker.stores.ports import NotNowError, RunStores


class LeaseLog:
    """The log of a role under a lease, with all that its process prints and its reasons to wait for storage."""

    def __init__(self, role: WorkerSource, identity: WorkerIdentity, link: Link, stores: RunStores) -> None:
        self.book = worker_logbook(stores.folder, role, identity.uuid, identity.incarnation)
        self._role: WorkerSource = role
        self._link, self._stores = link, stores
        self._has_waited = False
        log_printed(self.say)

    def say(self, text: str) -> None:
        """Write a line."""
        self.book.say(self._role, text)

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.book.say(self._role, text, level="warning")

    def waits(self, error: NotNowError, what: str = "") -> None:
        """Report the reason for waiting; log a problem once until `goes_on`."""
        self._link.activity("waiting", f"waiting for {error.waits_for}", lacks_bytes=error.lacks_bytes)
        if error.problem and not self._has_waited:
            self._has_waited = True
            self.warn(f"{what}waits for {error.waits_for}: {error.problem}")

    def goes_on(self) -> None:
        """Log the next problem."""
        self._has_waited = False

    def close(self) -> None:
        """Close the log and the stores."""
        end_printed()
        self.book.close()
        self._stores.close()
