"""Reports of a short run, as its time series is told of them."""

from __future__ import annotations

from remuda.logbook.episode_reports import EvaluationReport, WorkerReport
from remuda.logbook.reports import BufferThroughputReport, CallbackReport, EventReport, VitalsReport
from remuda.logbook.series import Usage
from remuda.wire.messages import LedgerCounts

UUID = "6f1c9c3e-0d0a-4c5b-8a39-2f6f6f5c1e77"
LEARNER = Usage("learner", 1, 1.0, 200.0, 0.75, 0.0, 0.25, 0.0, 0.0, 0.0)
COLLECTOR = Usage("collector", 1, 0.5, 100.0, 0.25, 0.25, 0.0, 0.0, 0.5, 0.0)


def vitals(wall_s: float, *, past_s: float = 60.0, policy_version: int = 4) -> VitalsReport:
    """Eight environment steps and half an update per second."""
    return VitalsReport(
        train_iter=int(wall_s / 2),
        env_step=int(8 * wall_s),
        wall_s=wall_s,
        past_s=past_s,
        roles=[LEARNER, COLLECTOR],
        workers={UUID: COLLECTOR},
        episode=3,
        policy_version=policy_version,
    )


def collected(episodes: int, reward_mean: float, *, steps: int = 240) -> WorkerReport:
    return WorkerReport(
        train_iter=30,
        env_step=480,
        role="collector",
        worker=UUID,
        episode_count=episodes,
        step_count=steps,
        duration_s=1.0,
        reward_mean=reward_mean,
        reward_std=0.0,
    )


def evaluation(wall_s: float, *, best: bool = True) -> EvaluationReport:
    return EvaluationReport(
        train_iter=int(wall_s / 2),
        env_step=int(8 * wall_s),
        ckpt_name=f"iteration_{int(wall_s / 2)}.pth.tar",
        returns=[8.0, 10.0],
        lengths=[8, 10],
        duration_s=1.5,
        wall_s=wall_s,
        best=best,
    )


def logged(wall_s: float, **numbers: float) -> CallbackReport:
    at = {"train_iter": int(wall_s / 2), "env_step": int(8 * wall_s)}
    return CallbackReport(**at, callback="Mine", wall_s=wall_s, numbers=numbers)


def joined(wall_s: float) -> EventReport:
    return EventReport(
        train_iter=0,
        env_step=0,
        wall_s=wall_s,
        kind="worker_joined",
        what=f"collector {UUID} joins as collector 0",
        role="collector",
        worker=UUID,
    )


ROWS = BufferThroughputReport(
    train_iter=30,
    env_step=480,
    wall_s=60.0,
    past_s=60.0,
    pushed_in=1,
    sampled_out=2,
    removed=3,
    current_have=470,
    samples_per_insert=7.5,
    policy_lag=2,
    ledger=LedgerCounts(accepted=8, repeated=1, lost_collectors=2),
)
