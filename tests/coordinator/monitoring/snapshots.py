"""Snapshots to test with."""

from __future__ import annotations

from remuda.coordinator.monitoring.snapshot import RunMeasures, Snapshot
from remuda.wire.messages import RefusalCounts

RUN = RunMeasures(
    experiment="aaaaaaaa-0000-4000-8000-000000000001",
    name="cartpole_dqn",
    state="running",
    env_step=12_345,
    train_iter=678,
    episode=90,
    policy_version=12,
    wall_s=34.5,
    policy_lag=1,
    samples_per_insert=7.5,
    last_return=None,
    best_return=200.0,
)

SNAPSHOT = Snapshot(
    measured_s=100.0,
    version="0.1.0",
    protocol=7,
    uptime_s=60.0,
    draining=False,
    turns=4_000,
    longest_turn_s=0.02,
    descriptors=40,
    descriptor_limit=1_024,
    rss_bytes=50 << 20,
    cpu_s=3.25,
    workers={"collector": {"idle": 1, "busy": 2, "stuck": 0, "draining": 0}},
    refusals=RefusalCounts(unknown_key=5),
    malformed=2,
    journal_lag_s=0.5,
    held_up=1,
    runs=[RUN],
)
