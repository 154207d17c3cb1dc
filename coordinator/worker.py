"""One registered worker, as its beats describe it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from remuda.coordinator.limits import LongestWithoutProgress
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import Phase, Register, Role, WorkerState, WorkerStatus


@dataclass
class Worker:
    """One registered worker in its present incarnation."""

    uuid: str
    incarnation: int
    role: Role
    host: str
    pid: int
    peer: bytes
    """Socket identity of this incarnation."""
    heard_s: float
    progress: int = 0
    progressed_s: float = 0.0
    activity: str = "registered"
    phase: Phase = "idle"
    longest_s: LongestWithoutProgress = field(default_factory=dict[Phase, float])
    """Of the run that it works for."""
    rss_bytes: int = 0
    cpu_s: float = 0.0
    """Processor time of its process so far, of all threads."""
    cpu_cores: float = 0.0
    """Processor time per second between the newest two beats."""
    cpu_heard_s: float = 0.0
    cpus: int = 0
    """Cores that it may use; 0 if only its journal knows it."""
    memory_bytes: int = 0
    """Of its machine."""
    lease: int = 0
    """0: in the herd, free to be drawn."""
    stuck: bool = False
    look_s: float = math.inf
    """When the registry checks it next."""

    def is_process(self, message: Register) -> bool:
        """Whether the process that registers is this one, over another connection."""
        return (self.incarnation, self.host, self.pid) == (message.incarnation, message.host, message.pid)

    @property
    def holder(self) -> LeaseHolder:
        """What the journal has of it, with the lease that it holds."""
        return LeaseHolder(self.lease, self.uuid, self.incarnation, self.role, self.host, self.pid)

    @property
    def state(self) -> WorkerState:
        """Its state. A lost worker is no longer in the registry."""
        if self.stuck:
            return "stuck"
        return "busy" if self.lease else "idle"

    def status(
        self, now_s: float, *, experiment: str | None = None, draining: bool = False, work_share: float | None = None
    ) -> WorkerStatus:
        """Its line in `remuda status`, with what its experiment knows of it."""
        return WorkerStatus(
            uuid=self.uuid,
            incarnation=self.incarnation,
            role=self.role,
            host=self.host,
            pid=self.pid,
            state="draining" if draining and self.state == "busy" else self.state,
            experiment=experiment,
            beat_age_s=now_s - self.heard_s,
            activity=self.activity,
            rss_bytes=self.rss_bytes,
            cpu_cores=self.cpu_cores,
            work_share=work_share,
            cpus=self.cpus,
            memory_bytes=self.memory_bytes,
        )
