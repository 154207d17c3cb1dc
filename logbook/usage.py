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
    """For batches, or for an evaluation to play."""
    wait_policy: float
    """For a policy to load or to be published."""
    wait_credit: float
    """For leave to collect more: the learner is the slower one, or a new policy has to come first."""
    wait_other: float
    """For acknowledgements, for the end; the coordinator: for anything to happen."""

    @property
    def wait(self) -> float:
        """The share of all waits."""
        return self.wait_data + self.wait_policy + self.wait_credit + self.wait_other


class WorkerUsage(Usage, frozen=True, kw_only=True):
    """The same of one worker."""

    worker: str
    """Its UUID."""
    env_steps: int | None = None
    """That a collector has reported within the interval; None of other roles."""
