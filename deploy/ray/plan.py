"""What a launch asks of Ray, as the argument of the process that speaks with Ray."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from remuda.config.launching import RayConfig
from remuda.deploy.launcher import LaunchRequest, WorkerCounts


class RayPlan(BaseModel):
    """Holds no secret: it can be read in the list of processes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    counts: dict[str, int]
    """Workers by role."""
    settings: RayConfig
    runs_dir: Path
    coordinator_timeout_s: float
    profile: Path | None = None

    @staticmethod
    def of(request: LaunchRequest, workers: WorkerCounts) -> RayPlan:
        """The plan for these workers; roles without workers are left out."""
        counts = {role.removesuffix("s"): count for role, count in asdict(workers).items() if count}
        return RayPlan(
            counts=counts,
            settings=request.settings.ray,
            runs_dir=request.runs_dir,
            coordinator_timeout_s=request.settings.coordinator_timeout_s,
            profile=request.profile,
        )
