"""The learner's requests for batches, answered in the order they were made, whatever order they came in."""

from __future__ import annotations

from remuda.wire.messages import BatchRequest


class RequestQueue:
    """Requests of one learner's lease. Their answers hand out new chunks, so they must not overtake each other."""

    def __init__(self) -> None:
        self._waiting: dict[int, BatchRequest] = {}
        self._next = 1

    def rewind(self, oldest: int) -> None:
        """The learner has lost touch and is back: it repeats what it waits for, `oldest` being the first."""
        self._waiting, self._next = {}, oldest

    def add(self, request: BatchRequest) -> None:
        """A request has come; one that was answered already is dropped."""
        if request.request >= self._next:
            self._waiting[request.request] = request

    @property
    def expected(self) -> int:
        """The number of the request that is to be answered next."""
        return self._next

    @property
    def next(self) -> BatchRequest | None:
        """The one to be answered next, if it has come."""
        return self._waiting.get(self._next)

    def answered(self) -> None:
        """`next` is answered."""
        del self._waiting[self._next]
        self._next += 1
