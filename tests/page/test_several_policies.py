"""Runs with several policies: each has curves, checkpoints and logs of its own, and the run is all of them together."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from remuda.config.dump import write_configs
from remuda.config.load import load_settings
from remuda.page.commands import RequestedEvaluation, outcome
from remuda.page.coordinator_link import CoordinatorLink
from remuda.page.curves import Quantity
from remuda.page.run_ids import UnknownRunError
from remuda.page.run_rows import live_row
from remuda.page.views import Views
from remuda.storage.existing_folder import prepare
from remuda.storage.run_folder import PolicyFolder
from remuda.tests.client.statuses import status as experiment
from remuda.tests.page.folders import (
    WORKER,
    evaluation,
    event,
    interval,
    say,
    settings,
    write_checkpoints,
    write_progress,
    write_series,
)
from remuda.wire.messages import PolicyStatus

RETURNS = {"hunted": (1.0, 2.0), "hunter": (5.0, 4.0)}


@pytest.fixture
def views(tmp_path: Path) -> Generator[Views]:
    """Of a run that is over; its policies differ in their returns."""
    runs = tmp_path / "runs"
    runs.mkdir()
    root = prepare(
        runs / "pong", "error", mode="parallel", now=datetime(2026, 1, 1, tzinfo=UTC), policies=sorted(RETURNS)
    ).root
    policies = {"hunted": {"agents": ["a*"]}, "hunter": {"agents": ["b*"]}}
    env = {"kind": "pettingzoo", "make": "game:make"}
    loaded = load_settings(settings("pong", env=env, policies=policies), folder=runs)
    write_configs(root, loaded.config, loaded.provenance)
    for name, returns in RETURNS.items():
        folder = PolicyFolder(root, name)
        write_checkpoints(folder, returns)
        joined = event(0.0, "worker_joined", "learner", WORKER, f"{name}'s learner")
        write_series(folder, [joined, evaluation(0.0, returns[0]), interval(60.0), evaluation(60.0, returns[1])])
        write_progress(folder, [(100, 0.5, 1.0)], header=f"TotalEnvInteracts Loss{name} Time")
        say(folder.commander_log, f"of {name}", "the run is over after 60.0 s: max_env_steps; it has them")
    made = Views(runs, CoordinatorLink(None))
    yield made
    made.close()


def test_a_policy_is_named_behind_its_run(views: Views) -> None:
    assert views.ids.each_policy("pong") == ["pong//hunted", "pong//hunter"]
    assert views.ids.each_policy("pong//hunter") == ["pong//hunter"]
    assert views.ids.folder("pong//hunter").ckpt == views.ids.runs_dir / "pong" / "ckpt" / "hunter"
    for wrong in ("pong//", "pong//owl", "pong//learner", "pong//../hunter", "pong//hunter/x", "owl//hunter"):
        with pytest.raises(UnknownRunError):
            views.ids.folder(wrong)


def test_the_run_is_the_sum_of_what_they_have_learned_and_their_mean_return(views: Views) -> None:
    row = views.row("pong")
    assert (row.state, row.env_step, row.train_iter) == ("finished", 80, 20)
    assert (row.last_return, row.best_return) == (3.0, 3.5)
    assert [(each.run, each.train_iter, each.last_return, each.best_return) for each in row.policies] == [
        ("pong//hunted", 10, 2.0, 2.0),
        ("pong//hunter", 10, 4.0, 5.0),
    ]
    assert views.row("pong//hunter") == row


def test_each_has_a_curve(views: Views) -> None:
    (found,) = views.curves(["pong"], [Quantity("evaluation/return_mean", "env_step")], 100).charts
    assert [(each.run, each.name, each.last) for each in found.runs] == [
        ("pong//hunted", "pong, hunted", [1.0, 2.0]),
        ("pong//hunter", "pong, hunter", [5.0, 4.0]),
    ]
    (own,) = views.curves(["pong//hunter"], [Quantity("progress/Losshunter", "env_step")], 100).charts
    assert own.runs[0].last == [0.5]
    assert found.groups == [], "they are no seeds of each other"


def test_a_coordinator_s_numbers_go_before_those_of_the_folder(views: Views) -> None:
    of = [PolicyStatus(name, 7, 3, 2, 1.5, best, 0.5, 1, None) for name, best in (("hunted", 2.0), ("hunter", 4.0))]
    row = live_row(views.row("pong"), experiment(name="pong", state="running", policies=of))
    assert (row.best_return, [(each.run, each.policy_lag) for each in row.policies]) == (
        3.0,
        [("pong//hunted", 1), ("pong//hunter", 1)],
    )


def test_an_evaluation_of_all_together_names_each() -> None:
    asked = RequestedEvaluation(id="e1", run="pong", train_iter="best", episodes=3, deterministic=True, began_s=0.0)
    told = '{"policies": {"hunted": {"reward_mean": 1.0}, "hunter": {"reward_mean": 4.0}}, "each": []}'
    found = outcome(asked, 0, told, "")
    assert (found.state, found.return_mean, found.message) == ("done", 2.5, "returns: hunted 1, hunter 4")
