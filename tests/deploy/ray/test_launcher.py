"""`--on ray` without Ray: what is planned, what is missing, and what the user is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.config.launching import LaunchConfig
from remuda.deploy.launcher import LaunchError, LaunchRequest, WorkerCounts
from remuda.deploy.launchers import make_launcher
from remuda.deploy.ray.launcher import RayLauncher
from remuda.deploy.ray.plan import RayPlan


@pytest.fixture
def _ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.deploy.ray.launcher.find_spec", lambda name: object())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def request(folder: Path, **ray: object) -> LaunchRequest:
    return LaunchRequest(folder / "runs", "horse", LaunchConfig.model_validate({"on": "ray", "ray": ray}))


def test_a_missing_ray_is_told_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.deploy.ray.launcher.find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"pip install 'remuda\[ray\]'"):
        make_launcher(request(tmp_path), source_dir=None)


@pytest.mark.usefixtures("_ray")
def test_a_dry_run_shows_what_each_role_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = request(tmp_path, learner={"num_gpus": 1}, collector={"num_cpus": 0.5, "custom": {"paddock": 1}})
    launcher = make_launcher(given, source_dir=None)
    assert isinstance(launcher, RayLauncher)
    coordinator, *actors = launcher.planned(WorkerCounts(collectors=2, evaluators=1)).splitlines()
    assert coordinator.endswith(f"-m remuda.coordinator --runs-dir {tmp_path}/runs --bind NODE_IP:0")
    assert actors == [
        "actors of Ray at local:",
        "2 collector: num_cpus 0.5, paddock 1",
        "1 evaluator: num_cpus 1",
        "1 learner: num_cpus 1, num_gpus 1",
    ]
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert "actors of Ray at head:6379:" in launcher.planned(WorkerCounts(collectors=2, evaluators=1))


@pytest.mark.usefixtures("_ray")
def test_the_plan_comes_back_from_the_list_of_processes_as_it_was(tmp_path: Path) -> None:
    plan = RayPlan.of(request(tmp_path, address="auto"), WorkerCounts(collectors=3, evaluators=0, reanalyzers=2))
    assert plan.counts == {"collector": 3, "learner": 1, "reanalyzer": 2}
    assert RayPlan.model_validate_json(plan.model_dump_json()) == plan
