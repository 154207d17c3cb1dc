"""Shared inference in an experiment: which inference workers listen, for its collectors. Nothing of it is journaled."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.leases import LeaseBook
from remuda.wire.messages import InferenceOpened, InferenceServer, InferenceServers


class InferenceBook:
    """Tells collectors of the inference workers that listen: all of them with each change. After a restart of the
    coordinator the workers say it again."""

    def __init__(self, leases: LeaseBook) -> None:
        self._leases = leases
        self._servers: dict[int, InferenceServer] = {}
        """By lease."""

    def opened(self, message: InferenceOpened) -> list[Step]:
        """An inference worker listens."""
        if self._servers.get(message.lease) == message.server:
            return []
        self._servers[message.lease] = message.server
        return self._tell_all()

    def gone(self, lease: int) -> list[Step]:
        """The lease of an inference worker is over."""
        return [] if self._servers.pop(lease, None) is None else self._tell_all()

    def tell(self, collectors: Iterable[int]) -> list[Step]:
        """Tell these collectors (leases)."""
        servers = [server for _, server in sorted(self._servers.items())]
        return [SendToLease(lease, InferenceServers(lease, servers)) for lease in collectors]

    def _tell_all(self) -> list[Step]:
        return self.tell(lease.number for lease in self._leases.ready("collector"))
