"""What processes used over an interval: in the commander's tables and curves, and in the run's time series."""

from __future__ import annotations

from msgspec import Struct


class Usage(Struct, frozen=True):
    """What the processes of one role used since the last report, and the shares of their time. Shares add up to 1."""

    role: str
    """collector, evaluator, learner or coordinator; serial where all are one process."""
    processes: int
    cpu_cores: float
    """Processor time of all of them per second; child processes of vectors not included."""
    rss_mib: float
    """Resident memory of all of them; pages that they share are counted in each."""
    work: float
    """Neither waiting nor in the environment."""
    env: float
    """In the environment's step and reset."""
    wait_data: float
    """Waiting for batches, or for an evaluation to play."""
    wait_policy: float
    """Waiting for a policy to load or to be published."""
    wait_credit: float
    """Waiting for credit: the learner is slower, or a new policy has to come first."""
    wait_other: float
    """Waiting for acknowledgements or for the end; the coordinator: for messages."""

    @property
    def wait(self) -> float:
        """The share of all waits."""
        return self.wait_data + self.wait_policy + self.wait_credit + self.wait_other


class WorkerUsage(Usage, frozen=True, kw_only=True):
    """The same of one worker."""

    worker: str
    """Its UUID."""
    env_steps: int | None = None
    """Steps that a collector has reported within the interval; None for other roles."""
