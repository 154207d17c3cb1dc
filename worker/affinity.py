"""Binds processes to processor cores, and chooses their number of threads."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from remuda.config.errors import counted
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import AffinityConfig
from remuda.wire.messages import Role
from remuda.worker.process import may_choose_threads

MOST_THREADS = 4
"""Most torch threads of a learner with reserved cores; more threads gain little with usual batch sizes."""


@dataclass(frozen=True)
class CpuPlacement:
    """Cores and threads of a process."""

    cores: tuple[int, ...]
    threads: int
    reason: str

    def log_line(self, role: str) -> str:
        """For the log."""
        named = "core " + _ranges(self.cores) if len(self.cores) == 1 else "cores " + _ranges(self.cores)
        threads = counted(self.threads, "torch thread")
        return f"affinity: this {_named(role)} runs on {named} with {threads} ({self.reason})"


def _named(role: str) -> str:
    return "inference worker" if role == "inference" else role


def choose_cores(config: ExperimentConfig, role: Role, index: int, allowed: Sequence[int]) -> CpuPlacement:
    """Choose the cores of the `index`-th process of a role, on a machine where it may use the cores `allowed`. The
    ranks of a learner share its cores.

    Configured cores that are not allowed are left out: a batch system may have given others. `auto` gives every process
    of the run its own core, and the learner the rest, if enough cores exist. If not, the operating system decides,
    which is never slower on a machine with fewer cores than processes. `auto` gives the learner one thread, since more
    are slower for small networks; large updates use more, see `most_update_threads`.
    """
    everywhere = tuple(sorted(allowed))
    if isinstance(config.affinity, AffinityConfig):
        return _configured_placement(config.affinity, role, index, everywhere, ranks=config.learner.ranks)
    if config.affinity == "none":
        return CpuPlacement(everywhere, 1, "affinity is none")
    counts: dict[Role, int] = {
        "collector": config.collector.count,
        "evaluator": config.evaluator.count,
        "reanalyzer": config.reanalyzer.count,
        "inference": config.shared_inference.workers,
    }
    others, ranks = sum(counts.values()), config.learner.ranks
    if others + ranks > len(everywhere):
        reason = f"auto: {others + ranks} processes are more than {len(everywhere)} cores, so none is bound"
        return CpuPlacement(everywhere, 1, reason)
    learner, rest = everywhere[: len(everywhere) - others], everywhere[len(everywhere) - others :]
    if role == "learner":
        return CpuPlacement(learner, 1, "auto: what the others leave")
    first = sum(counts[other] for other in itertools.takewhile(lambda other: other != role, counts))
    return CpuPlacement((rest[(first + index) % len(rest)],), 1, "auto: a core of its own")


def bind_cores(config: ExperimentConfig, role: Role, index: int) -> str:
    """Bind the calling thread, and threads that it starts from now on, to its cores; returns the line for the log.

    The thread that sends beats is not bound: it must not wait for the work.
    """
    place = choose_cores(config, role, index, _allowed_at_first())
    if _can_bind():
        os.sched_setaffinity(0, place.cores)
    elif config.affinity != "none":
        return f"affinity: this {_named(role)} is bound to no cores: {sys.platform} does not support it"
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(place.threads)
    return place.log_line(role)


def bind_cores_alone(config: ExperimentConfig) -> str:
    """As `bind_cores`, for serial mode: the process uses the configured cores of the learner, if any."""
    if isinstance(config.affinity, AffinityConfig):
        return bind_cores(config, "learner", 0).replace("this learner", "this run")
    return f"affinity: this run is bound to no cores (one process, affinity is {config.affinity})"


def most_update_threads(
    config: ExperimentConfig, *, alone: bool, allowed: Sequence[int] | None = None, follow: bool | None = None
) -> int:
    """Return the most torch threads for an update: on cores that the rest of the run does not need meanwhile.

    These are the learner's own cores, and all cores if the run has no other process (`alone`) or collectors wait for
    each update (a strictly on-policy run). One if the environment names a number of threads. `allowed` are the cores
    that this process may use, and `follow` is True if Remuda may choose the number; None: from the system.
    """
    everywhere = tuple(sorted(_allowed_at_first() if allowed is None else allowed))
    place = choose_cores(config, "learner", 0, everywhere)
    waits = config.policy.segment_steps is not None and config.buffer.max_policy_lag == 0
    free = len(place.cores) if alone or waits or place.cores != everywhere else 1
    if not (may_choose_threads() if follow is None else follow) or config.learner.ranks > 1:
        free = 1
    return max(place.threads, min(free, MOST_THREADS))


def _configured_placement(
    wanted: AffinityConfig, role: Role, index: int, allowed: tuple[int, ...], *, ranks: int
) -> CpuPlacement:
    cores: tuple[int, ...] | None = getattr(wanted, role)
    if cores is None:
        return CpuPlacement(allowed, 1, "affinity names no cores for this role")
    usable = tuple(core for core in cores if core in allowed)
    if not usable:
        return CpuPlacement(allowed, 1, f"none of the cores {_ranges(cores)} may be used here")
    if role == "learner":
        threads = max(1, len(usable) // ranks)
        return CpuPlacement(usable, min(threads, MOST_THREADS), "as the config says")
    return CpuPlacement((usable[index % len(usable)],), 1, "as the config says")


_at_first: tuple[int, ...] = ()


def _allowed_at_first() -> tuple[int, ...]:
    """Return the cores of this process before an earlier lease bound it to some of them."""
    global _at_first
    if not _at_first:
        cores = os.sched_getaffinity(0) if _can_bind() else range(os.cpu_count() or 1)
        _at_first = tuple(sorted(cores))
    return _at_first


def _can_bind() -> bool:
    return hasattr(os, "sched_setaffinity")


def _ranges(cores: Sequence[int]) -> str:
    """0-3,8 for 0, 1, 2, 3 and 8."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in parts)
