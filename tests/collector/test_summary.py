"""A collector reports when an episode has ended and enough updates have passed, and loses nothing in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from remuda.collector.collected import Collected
from remuda.collector.summary import CollectSummary
from remuda.config.schema import ExperimentConfig
from remuda.wire.messages import Counters, MetricMean, PolicyRef


def chunk(*returns: float, env_steps: int = 10, rows: int = 9) -> Collected:
    columns = {"reward": np.zeros(rows, np.float32)}
    return Collected(columns, env_steps, PolicyRef(), list(returns), [5] * len(returns), 0.25)


def test_the_first_report_comes_with_the_first_episode_and_has_all_since_the_start() -> None:
    summary = CollectSummary(100)
    summary.add(chunk())
    assert summary.due(train_iter=0, env_step=10) is None
    summary.add(chunk(3.0, 5.0))
    report = summary.due(train_iter=0, env_step=20)
    assert report is not None
    fields = report.fields()
    assert (fields["episode_count"], fields["envstep_count"], fields["train_sample_count"]) == (2, 20, 18)
    assert (fields["reward_mean"], fields["collect_time"]) == (4.0, 0.5)


def test_reports_lie_at_least_the_interval_apart_and_need_an_episode() -> None:
    summary = CollectSummary(100)
    reported: list[int] = []
    for train_iter in range(0, 500, 30):
        summary.add(chunk(*([1.0] if train_iter not in (120, 150) else [])))
        if summary.due(train_iter=train_iter, env_step=0) is not None:
            reported.append(train_iter)
    assert reported == [0, 120, 240, 360, 480]


def test_at_the_end_the_rest_is_reported_once_due_or_not() -> None:
    summary = CollectSummary(100)
    summary.add(chunk(3.0))
    assert summary.due(train_iter=0, env_step=10) is not None
    assert summary.last(train_iter=0, env_step=10) is None, "nothing has come since"
    summary.add(chunk())
    assert summary.due(train_iter=1, env_step=20) is None
    report = summary.last(train_iter=1, env_step=20)
    assert report is not None
    assert (report.window.env_steps, report.window.episode_returns) == (10, [])
    assert summary.last(train_iter=1, env_step=20) is None


def test_where_nothing_is_learned_steps_are_counted() -> None:
    summary = CollectSummary(100, in_env_steps=True, before=Counters(env_step=50))
    reported: list[int] = []
    for taken in range(30, 400, 30):
        summary.add(chunk(1.0, env_steps=30))
        if summary.due(train_iter=0, env_step=taken) is not None:
            reported.append(taken)
    assert reported == [30, 150, 270, 390]


@pytest.mark.parametrize(("inference", "at"), [(True, [40, 140, 240]), (False, [40])])
def test_a_config_says_by_what_reports_are_counted(inference: bool, at: list[int]) -> None:
    raw = {"name": "x", "env": {"id": "CartPole-v1"}, "learner": {"inference": inference}}
    log = {"interval_train_iters": 10, "progress_interval_env_steps": 100}
    summary = CollectSummary.of(ExperimentConfig.model_validate({**raw, "log": log}))
    reported: list[int] = []
    for taken in range(20, 300, 20):
        summary.add(chunk(*([] if taken == 20 else [1.0]), env_steps=20))
        if summary.due(train_iter=0, env_step=taken) is not None:
            reported.append(taken)
    assert reported == at


@pytest.mark.parametrize("chunks", [1, 3, 7])
def test_windows_add_up_to_the_totals(chunks: int) -> None:
    summary = CollectSummary(0)
    windows = 0
    for number in range(chunks):
        summary.add(chunk(1.0, env_steps=10 + number))
        report = summary.due(train_iter=number, env_step=0)
        assert report is not None
        windows += report.window.env_steps
        assert report.totals.env_steps == windows
        assert report.totals.episodes == number + 1


def test_a_resumed_run_s_totals_go_on() -> None:
    summary = CollectSummary(0, before=Counters(env_step=1_000, episode=20))
    summary.add(chunk(1.0))
    report = summary.last(train_iter=0, env_step=0)
    assert report is not None
    totals = report.totals
    assert (totals.env_steps, totals.train_samples, totals.episodes, totals.duration_s) == (1_010, 1_009, 21, 0.25)


def test_metrics_are_means_over_all_steps_since_the_last_report() -> None:
    summary = CollectSummary(0)
    for metrics in ({"speed": MetricMean(1.0, 10)}, {"speed": MetricMean(4.0, 5), "height": MetricMean(7.0, 2)}, {}):
        summary.add(replace(chunk(1.0), metrics=metrics))
    report = summary.due(train_iter=0, env_step=30)
    assert report is not None
    assert report.window.metrics == {"speed": pytest.approx((1.0 * 10 + 4.0 * 5) / 15), "height": 7.0}
    summary.add(replace(chunk(1.0), metrics={"speed": MetricMean(9.0, 10)}))
    report = summary.due(train_iter=1, env_step=40)
    assert report is not None
    assert report.window.metrics == {"speed": 9.0}
    assert report.fields()["speed"] == 9.0
