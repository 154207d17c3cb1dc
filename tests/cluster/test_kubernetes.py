"""Kubernetes: the manifests by its published schemas, and a whole run with a stand-in for kubectl and the cluster."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from remuda.config.launching import KubernetesConfig, LaunchConfig
from remuda.deploy.kubernetes.manifests import KubernetesPlan, as_yaml
from remuda.deploy.launcher import LaunchRequest, WorkerCounts
from remuda.tests.cluster import kubectl_stand_in
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.reading import index, pids
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.ports import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

EVERY_ROLE = WorkerCounts(collectors=8, evaluators=2, reanalyzers=1)
SETTINGS = KubernetesConfig(image="example/remuda:1", claim="runs", learner_gpus=1, node_selector={"disk": "ssd"})
VERSIONS = ("1.31", "1.37")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_are_what_the_published_schemas_allow(version: str) -> None:
    validator: Any = pytest.importorskip("kubernetes_validate", reason="make cluster installs it")
    request = LaunchRequest(
        Path("/runs"), "Cart_Pole v2", LaunchConfig(kubernetes=SETTINGS), limits=["stuck_after_s=600"]
    )
    manifests = list(yaml.safe_load_all(as_yaml(KubernetesPlan(request, "remuda-x-1").manifests(EVERY_ROLE))))
    assert [each["kind"] for each in manifests] == ["Secret", "Job", "Job", "Job", "Job"]
    without = request.settings.model_copy(update={"kubernetes": SETTINGS.model_copy(update={"workers_mount": False})})
    request = LaunchRequest(request.runs_dir, request.name, without)
    apart = list(yaml.safe_load_all(as_yaml(KubernetesPlan(request, "remuda-x-1").manifests(EVERY_ROLE))))
    assert [each["kind"] for each in apart][:4] == ["Secret", "Secret", "Service", "Job"]
    for manifest in (*manifests[:3], *apart[2:5]):  # the other jobs differ in names alone
        validator.validate(manifest, version, strict=True)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the stand-in was told; it is first on the path."""
    folder = tmp_path / "stand_in"
    folder.mkdir()
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {kubectl_stand_in.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("STAND_IN", str(folder))
    return folder


@pytest.mark.parametrize("mounts", [True, False], ids=["with the volume", "without"])
def test_a_run_goes_to_its_end_and_keys_go_through_no_argument(stand_in: Path, tmp_path: Path, mounts: bool) -> None:
    user = UserFolder.make(tmp_path / "user")
    settings = {"image": "x", "claim": "runs", "namespace": "horses", "poll_interval_s": 0.5}
    names = ("port", "http_port", "stream_port")
    settings |= {**dict(zip(names, free_ports(len(names)), strict=True)), "workers_mount": mounts}
    with user.config.open("a") as file:
        file.write(f"launch: {{on: kubernetes, kubernetes: {json.dumps(settings)}}}\n")
    run = tmp_path / "runs" / "horse"
    command = Command(tmp_path / "scratch", user.root, "launch", user.config, "--run-dir", run)
    try:
        ended = command.ended()
        printed = "\n".join(path.read_text() for path in stand_in.glob("remuda-*.txt"))
        assert ended.code == 0, ended.err + printed
        assert "horse finished: max_env_steps" in ended.out
        assert index(run)["checkpoints"][-1]["env_step"] == sum(map(user.steps, pids(run, "collector")))
        told = (stand_in / "arguments.txt").read_text()
        files = [path for path in stand_in.glob("secrets/*-keys/*") if path.name != "authorized"]
        secrets = [json.loads(path.read_text())["secret"] for path in files]
        assert (run / "vars.pkl").exists() == mounts, "no pickle crosses a socket"
        assert len(secrets) == 3
        assert not any(secret in told + ended.out + ended.err + printed for secret in secrets)
        assert json.loads((stand_in / "killed.json").read_text()) == [], "all ended in order, within 30 s"
        assert command.leftovers() == []
    finally:
        command.end()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                if process.environ().get("STAND_IN") == str(stand_in) and process.pid != os.getpid():
                    process.kill()
