"""Shared inference in an experiment: who asks and who answers. Nothing of it is journaled."""

from __future__ import annotations

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.leases import Lease
from remuda.wire.messages import InferenceCallers, InferenceJoined, InferenceServer, InferenceServers


class InferenceBook:
    """Tells collectors where inference workers listen, and inference workers the keys of collectors: all of them, with
    each change. Whoever registers again joins again, so a restarted coordinator knows all before long."""

    def __init__(self) -> None:
        self._callers: dict[int, str] = {}
        """Keys of collectors by lease."""
        self._servers: dict[int, InferenceServer] = {}
        """Inference workers by lease."""

    def joined(self, lease: Lease, message: InferenceJoined) -> list[Step]:
        """A collector or an inference worker has joined, perhaps not for the first time."""
        if lease.role == "collector":
            is_new = self._callers.get(lease.number) != message.key
            self._callers[lease.number] = message.key
            return [*(self._tell_servers() if is_new else []), self._servers_for(lease.number)]
        if lease.role == "inference" and message.server is not None:
            is_new = self._servers.get(lease.number) != message.server
            self._servers[lease.number] = message.server
            return [self._callers_for(lease.number), *(self._tell_callers() if is_new else [])]
        return []

    def gone(self, lease: int) -> list[Step]:
        """A lease is over."""
        if self._callers.pop(lease, None) is not None:
            return self._tell_servers()
        return [] if self._servers.pop(lease, None) is None else self._tell_callers()

    def _tell_servers(self) -> list[Step]:
        return [self._callers_for(lease) for lease in sorted(self._servers)]

    def _tell_callers(self) -> list[Step]:
        return [self._servers_for(lease) for lease in sorted(self._callers)]

    def _callers_for(self, lease: int) -> Step:
        return SendToLease(lease, InferenceCallers(lease, sorted(self._callers.values())))

    def _servers_for(self, lease: int) -> Step:
        return SendToLease(lease, InferenceServers(lease, [server for _, server in sorted(self._servers.items())]))
