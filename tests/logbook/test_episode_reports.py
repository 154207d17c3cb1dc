"""Reports of episodes say exactly the promised names, computed as they say, and nan where there was nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from remuda.config.declaration import IN_COLLECTORS_LOG
from remuda.logbook.episode_reports import (
    CollectReport,
    CollectTotals,
    CollectWindow,
    EpisodeReport,
    EvaluationReport,
    WorkerReport,
)
from remuda.logbook.statistics import episode_statistics

STATISTICS = ("mean", "std", "max", "min", "median")
UUID = "6f1c9c3e-0d0a-4c5b-8a39-2f6f6f5c1e77"


def collected(returns: list[float], lengths: list[int], duration_s: float = 4.0) -> CollectReport:
    return CollectReport(
        train_iter=100,
        env_step=5_000,
        window=CollectWindow(
            env_steps=200, train_samples=190, duration_s=duration_s, episode_returns=returns, episode_lengths=lengths
        ),
        totals=CollectTotals(env_steps=5_000, train_samples=4_900, episodes=31, duration_s=90.5),
    )


def test_the_collectors_lines() -> None:
    assert collected([9.0, 11.0], [30, 50]).text() == (
        "collect end:\n"
        "episode_count: 2\n"
        "envstep_count: 200\n"
        "train_sample_count: 190\n"
        "avg_envstep_per_episode: 40.000000\n"
        "avg_sample_per_episode: 95.000000\n"
        "avg_envstep_per_sec: 50.000000\n"
        "avg_train_sample_per_sec: 47.500000\n"
        "avg_episode_per_sec: 0.500000\n"
        "collect_time: 4.000000\n"
        "reward_mean: 10.000000\n"
        "reward_std: 1.000000\n"
        "each_reward: [9.000000, 11.000000]\n"
        "reward_max: 11.000000\n"
        "reward_min: 9.000000\n"
        "total_envstep_count: 5000\n"
        "total_train_sample_count: 4900\n"
        "total_episode_count: 31\n"
        "total_duration: 90.500000\n"
        "reward_median: 10.000000\n"
        "length_mean: 40.000000\n"
        "length_std: 10.000000\n"
        "length_max: 50.000000\n"
        "length_min: 30.000000\n"
        "length_median: 40.000000"
    )


def test_what_the_environment_reports_stands_behind_the_promised_names() -> None:
    window = CollectWindow(
        env_steps=8, train_samples=8, duration_s=1.0, episode_returns=[1.0], episode_lengths=[8],
        episode_info={"boxes": [1.0, 2.0, 6.0], "won": []},
    )  # fmt: skip
    totals = CollectTotals(env_steps=8, train_samples=8, episodes=1, duration_s=1.0)
    fields = CollectReport(train_iter=0, env_step=8, window=window, totals=totals).fields()
    assert list(fields)[-10:] == [f"{name}_{s}" for name in ("boxes", "won") for s in STATISTICS]
    assert [fields[f"boxes_{s}"] for s in ("mean", "max", "min", "median")] == [3.0, 6.0, 1.0, 2.0]
    report = EvaluationReport(
        train_iter=0, env_step=0, ckpt_name="c", returns=[1.0], lengths=[8], duration_s=1.0, info={"won": [0.0, 1.0]}
    )
    assert list(report.fields())[-5:] == [f"won_{s}" for s in STATISTICS]
    assert report.fields()["won_mean"] == 0.5


def worker_report(**changes: Any) -> WorkerReport:
    given: dict[str, Any] = {
        "role": "collector", "worker": UUID, "episode_count": 2, "step_count": 80, "duration_s": 4.0,
        "reward_mean": 10.0, "reward_std": 1.0,
    }  # fmt: skip
    return WorkerReport(train_iter=100, env_step=5_000, **given | changes)


def test_metrics_of_the_policy_stand_behind_all_others_under_their_own_names() -> None:
    window = CollectWindow(
        env_steps=8, train_samples=8, duration_s=1.0, episode_returns=[1.0], episode_lengths=[8],
        episode_info={"boxes": [1.0]}, metrics={"speed": 2.5},
    )  # fmt: skip
    report = replace(collected([9.0], [30]), window=window)
    assert list(report.fields().items())[-2:] == [("boxes_median", 1.0), ("speed", 2.5)]
    assert report.text().endswith("\nboxes_median: 1.000000\nspeed: 2.500000")
    told = worker_report(statistics={"reward_max": 11.0}, metrics={"speed": 2.5})
    assert list(told.fields().items())[-2:] == [("reward_max", 11.0), ("speed", 2.5)]


def test_no_metric_can_have_the_name_of_what_is_always_there() -> None:
    info = {"discounted_return": [1.0]}
    statistics = episode_statistics([1.0], [1], info)
    always = collected([9.0], [30])
    always = replace(always, window=replace(always.window, episode_info=info))
    assert {*always.fields(), *worker_report(statistics=statistics).fields()} == IN_COLLECTORS_LOG


def test_where_no_episode_ended_there_is_nan_and_no_crash() -> None:
    fields = collected([], [], duration_s=0.0).fields()
    nan = {key for key, value in fields.items() if isinstance(value, float) and math.isnan(value)}
    assert nan == {
        "avg_envstep_per_episode",
        "avg_sample_per_episode",
        "avg_envstep_per_sec",
        "avg_train_sample_per_sec",
        "avg_episode_per_sec",
        "reward_mean",
        "reward_std",
        "reward_max",
        "reward_min",
        "reward_median",
        *(f"length_{statistic}" for statistic in STATISTICS),
    }
    assert fields["episode_count"] == 0
    assert fields["each_reward"] == []


def test_an_evaluation_episode_is_one_line() -> None:
    report = EpisodeReport(train_iter=0, env_step=0, env=3, final_reward=9.0, episode=1)
    assert report.text() == "[EVALUATOR] env 3 finished episode, final reward: 9.0000, current episode: 1"
    assert report.fields() == {"env": 3, "final_reward": 9.0, "episode": 1}


def test_the_evaluators_table() -> None:
    report = EvaluationReport(
        train_iter=100,
        env_step=800,
        ckpt_name="iteration_100.pth.tar",
        returns=[9.0, 11.0],
        lengths=[30, 50],
        duration_s=4.0,
    )
    assert report.text() == (
        "=== Evaluation at Iteration 100 Result ===\n"
        "+-------+------------+-----------------------+---------------+---------------+\n"
        "| Name  | train_iter | ckpt_name             | episode_count | envstep_count |\n"
        "+-------+------------+-----------------------+---------------+---------------+\n"
        "| Value | 100        | iteration_100.pth.tar | 2             | 80            |\n"
        "+-------+------------+-----------------------+---------------+---------------+\n"
        "+-------+---------------+-------------------------+---------------------+----------------------+\n"
        "| Name  | evaluate_time | avg_envstep_per_episode | avg_envstep_per_sec | avg_time_per_episode |\n"
        "+-------+---------------+-------------------------+---------------------+----------------------+\n"
        "| Value | 4.000000      | 40.000000               | 20.000000           | 2.000000             |\n"
        "+-------+---------------+-------------------------+---------------------+----------------------+\n"
        "+-------+-------------+------------+-----------------------+------------+\n"
        "| Name  | reward_mean | reward_std | each_reward           | reward_max |\n"
        "+-------+-------------+------------+-----------------------+------------+\n"
        "| Value | 10.000000   | 1.000000   | [9.000000, 11.000000] | 11.000000  |\n"
        "+-------+-------------+------------+-----------------------+------------+\n"
        "+-------+------------+---------------+-------------+------------+\n"
        "| Name  | reward_min | reward_median | length_mean | length_std |\n"
        "+-------+------------+---------------+-------------+------------+\n"
        "| Value | 9.000000   | 10.000000     | 40.000000   | 10.000000  |\n"
        "+-------+------------+---------------+-------------+------------+\n"
        "+-------+------------+------------+---------------+\n"
        "| Name  | length_max | length_min | length_median |\n"
        "+-------+------------+------------+---------------+\n"
        "| Value | 50.000000  | 30.000000  | 40.000000     |\n"
        "+-------+------------+------------+---------------+"
    )


def test_a_workers_report_is_named_and_its_times_are_not_swapped() -> None:
    report = WorkerReport(
        train_iter=12,
        env_step=900,
        role="collector",
        worker=UUID,
        episode_count=4,
        step_count=200,
        duration_s=10.0,
        reward_mean=9.0,
        reward_std=0.5,
        statistics={"reward_median": 8.5, "length_mean": 40.0, "won_mean": 0.25},
    )
    assert report.text() == (
        f"[COLLECTOR] worker {UUID}:\n"
        "train_iter: 12\n"
        "episode_count: 4\n"
        "step_count: 200\n"
        "avg_step_per_episode: 40.000000\n"
        "avg_time_per_step: 0.050000\n"
        "avg_time_per_episode: 2.000000\n"
        "reward_mean: 9.000000\n"
        "reward_std: 0.500000\n"
        "reward_median: 8.500000\n"
        "length_mean: 40.000000\n"
        "won_mean: 0.250000"
    )
