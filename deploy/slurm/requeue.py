"""Asks Slurm, from inside a job, to start this job again."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

DEADLINE_S = 30.0


def own_job(environment: Mapping[str, str]) -> str:
    """How Slurm calls the job that has this environment; for a task of an array not by its id alone, since the last
    task of an array has the same id as the whole array. Raises KeyError outside a job."""
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environment["SLURM_JOB_ID"]


def requeue(environment: Mapping[str, str]) -> str:
    """Ask for this job to be started again; returns what came of it, for the job's output. Slurm then ends the job."""
    try:
        job = own_job(environment)
    except KeyError:
        return "not requeued: this is no job of Slurm"
    try:
        asked = subprocess.run(
            ["scontrol", "requeue", job], capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"job {job} is not requeued: {error}"
    if asked.returncode:
        return f"job {job} is not requeued: scontrol says: {asked.stderr.strip() or asked.returncode}"
    return f"job {job} is requeued"
