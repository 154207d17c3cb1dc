"""What kubectl says, and what is told when it fails. Programs that print what kubectl prints stand in."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from remuda.config.launching import KubernetesConfig, LaunchConfig
from remuda.deploy.kubernetes.launcher import Kubectl, KubectlError, KubernetesLauncher, end_forwarding
from remuda.deploy.launcher import LaunchError, LaunchRequest, WorkerCounts
from remuda.tests.deploy.conftest import Program
from remuda.tests.patience import until

Shell = Callable[[str], Path]
HERD = WorkerCounts(collectors=1, evaluators=1)


@pytest.fixture
def kubectl(program: Program) -> Shell:
    return partial(program, "kubectl")


def item(kind: str, role: str, *conditions: tuple[str, str, str], phase: str = "") -> dict[str, object]:
    told = [{"type": name, "status": status, "reason": "R", "message": text} for name, status, text in conditions]
    metadata = {"name": f"x-{role}", "labels": {"remuda.role": role}, "uid": "1"}
    return {"kind": kind, "metadata": metadata, "status": {"phase": phase, "conditions": told, "startTime": "t"}}


def printing(*items: dict[str, object]) -> str:
    return f"cat <<'X'\n{json.dumps({'items': list(items)})}\nX"


def test_jobs_and_pods(kubectl: Shell) -> None:
    noted = kubectl(
        printing(
            item("Pod", "head", ("Ready", "True", ""), phase="Running"),
            item("Pod", "collector", ("PodScheduled", "False", "0/3 nodes are available"), phase="Pending"),
            item("Job", "head", ("Complete", "True", "")),
            item("Job", "evaluator", ("Failed", "True", "too many")),
        )
    )
    ready, waiting, complete, failed = Kubectl("horses").objects("remuda-x")
    assert (ready.kind, ready.name, ready.role) == ("Pod", "x-head", "head")
    assert ready.condition("Ready")
    assert not ready.condition("PodScheduled", holds=False)
    assert (unmet := waiting.condition("PodScheduled", holds=False))
    assert unmet.message == "0/3 nodes are available"
    assert complete.condition("Complete")
    assert (why := failed.condition("Failed"))
    assert (why.reason, why.message) == ("R", "too many")
    assert noted.read_text() == ("--namespace=horses get jobs,pods --selector=remuda.launch=remuda-x --output=json\n")


@pytest.mark.parametrize("text", ["[]", "error"])
def test_what_is_no_answer_is_not_guessed_at(kubectl: Shell, text: str) -> None:
    kubectl(f"echo '{text}'")
    with pytest.raises(KubectlError, match="not understood"):
        Kubectl("horses").objects("remuda-x")


def test_an_error_is_told_in_its_own_words(kubectl: Shell) -> None:
    kubectl("echo 'The connection to the server was refused' >&2; exit 1")
    with pytest.raises(KubectlError, match="kubectl apply says: The connection to the server was refused"):
        Kubectl("horses").apply("{}")
    with pytest.raises(KubectlError, match="kubectl port-forward says: The connection to the server was refused"):
        Kubectl("horses").forward("x-head", 5555)


def test_a_forwarded_port_lives_on_however_much_is_printed_of_its_connections(kubectl: Shell, tmp_path: Path) -> None:
    """It would stand still once the pipe is full."""
    over = tmp_path / "over"
    more = "for each in $(seq 20000); do echo 'Handling connection for 41234'; done"
    kubectl(f"echo 'Forwarding from 127.0.0.1:41234 -> 5555'; {more}; touch {over}; exec sleep 600")
    process, port = Kubectl("horses").forward("x-head", 5555)
    try:
        until(over.exists, "all of it is printed")
        assert (port, process.poll()) == (41_234, None)
    finally:
        end_forwarding(process)


def launcher(tmp_path: Path, said: list[str] | None = None) -> KubernetesLauncher:
    settings = KubernetesConfig(image="x", claim="runs", poll_interval_s=0.01)
    say = (lambda text: None) if said is None else said.append
    return KubernetesLauncher(LaunchRequest(tmp_path / "runs", "x", LaunchConfig(kubernetes=settings), say=say))


def test_a_dry_run_asks_nobody_and_shows_no_secret(kubectl: Shell, tmp_path: Path) -> None:
    noted = kubectl("exit 1")
    text = launcher(tmp_path).planned(HERD)
    assert text.count("kind: Job\n") == 3
    assert "(made when it is launched)" in text
    assert not noted.exists()


def test_a_profile_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="profile a local run"):
        KubernetesLauncher(LaunchRequest(tmp_path / "runs", profile=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_failed_for_good_ends_the_launch_and_everything_is_removed(kubectl: Shell, tmp_path: Path) -> None:
    failed = printing(item("Job", "head", ("Failed", "True", "Job has reached the specified backoff limit")))
    noted = kubectl(f'case "$2" in get) {failed}\n;; logs) echo "no room at the inn";; esac')
    with launcher(tmp_path) as one, pytest.raises(LaunchError, match="backoff limit\nno room at the inn"):
        one.start(HERD, given_up=lambda: False)
    verbs = [line.split()[1] for line in noted.read_text().splitlines()]
    assert verbs == ["apply", "get", "logs", "delete"]


def test_whoever_gives_up_is_not_kept_waiting(kubectl: Shell, tmp_path: Path) -> None:
    waits = printing(item("Pod", "head", ("PodScheduled", "False", "0/3 nodes are available")))
    noted = kubectl(f'case "$2" in get) {waits}\n;; esac')
    said: list[str] = []
    answers = iter([False, True])
    with launcher(tmp_path, said) as one, pytest.raises(LaunchError, match="asked to end before"):
        one.start(HERD, given_up=lambda: next(answers))
    assert "coordinator's pod x-head waits: 0/3 nodes are available" in said
    assert noted.read_text().splitlines()[-1].split()[1] == "delete"
