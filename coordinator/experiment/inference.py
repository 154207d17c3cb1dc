"""Shared inference in an experiment: who asks and who answers. Nothing of it is journaled."""

from __future__ import annotations

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.leases import Lease
from remuda.wire.messages import InferenceCallers, InferenceJoined, InferenceServer, InferenceServers


class InferenceBook:
    """Tells collectors where inference workers listen: all of them, with each change. Inference workers learn the keys
    of all collectors when they join, and each change. Whoever registers again joins again, so a restarted coordinator
    knows all before long."""

    def __init__(self) -> None:
        self._callers: dict[int, str] = {}
        """Keys of collectors by lease."""
        self._servers: dict[int, InferenceServer] = {}
        """Inference workers by lease."""

    def joined(self, lease: Lease, message: InferenceJoined) -> list[Step]:
        """A collector or an inference worker has joined, perhaps not for the first time."""
        if lease.role == "collector":
            known, self._callers[lease.number] = self._callers.get(lease.number), message.key
            news = [] if known == message.key else self._tell_servers([message.key], [known] if known else [])
            return [*news, self._servers_for(lease.number)]
        if lease.role == "inference" and message.server is not None:
            is_new = self._servers.get(lease.number) != message.server
            self._servers[lease.number] = message.server
            everybody = InferenceCallers(lease.number, sorted(self._callers.values()), whole=True)
            return [SendToLease(lease.number, everybody), *(self._tell_callers() if is_new else [])]
        return []

    def gone(self, lease: int) -> list[Step]:
        """A lease is over."""
        if (key := self._callers.pop(lease, None)) is not None:
            return self._tell_servers([], [key])
        return [] if self._servers.pop(lease, None) is None else self._tell_callers()

    def _tell_servers(self, keys: list[str], gone: list[str]) -> list[Step]:
        return [SendToLease(lease, InferenceCallers(lease, keys, gone)) for lease in sorted(self._servers)]

    def _tell_callers(self) -> list[Step]:
        return [self._servers_for(lease) for lease in sorted(self._callers)]

    def _servers_for(self, lease: int) -> Step:
        return SendToLease(lease, InferenceServers(lease, [server for _, server in sorted(self._servers.items())]))
