"""The manifests of a launch on Kubernetes; tests/cluster/ checks them by the published schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.config.launching import KubernetesConfig, LaunchConfig
from remuda.deploy.job import TERM_S
from remuda.deploy.kubernetes.manifests import NOT_SHOWN, KubernetesPlan, as_yaml, object_name
from remuda.deploy.launcher import LaunchError, LaunchRequest, WorkerCounts

SETTINGS = KubernetesConfig(image="example/remuda:1", claim="shared", namespace="horses", learner_gpus=1)
COLLECTOR = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: remuda-horse-1-collector
  namespace: horses
  labels:
    app.kubernetes.io/name: remuda
    remuda.launch: remuda-horse-1
    remuda.role: collector
spec:
  completionMode: Indexed
  completions: 8
  parallelism: 8
  backoffLimit: 100
  ttlSecondsAfterFinished: 86400
  podFailurePolicy:
    rules:
    - action: Ignore
      onPodConditions:
      - type: DisruptionTarget
        status: 'True'
  template:
    metadata:
      labels:
        app.kubernetes.io/name: remuda
        remuda.launch: remuda-horse-1
        remuda.role: collector
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 30
      automountServiceAccountToken: false
      enableServiceLinks: false
      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        runAsGroup: 1000
        fsGroup: 1000
        seccompProfile:
          type: RuntimeDefault
      containers:
      - name: collector
        image: example/remuda:1
        command:
        - python
        - -P
        - -m
        - remuda.deploy.job
        - collector
        - --own-dir
        - /runs/.launches/remuda-horse-1
        - --runs-dir
        - /runs
        - --count
        - '1'
        - --coordinator-timeout
        - '3600'
        securityContext:
          allowPrivilegeEscalation: false
          capabilities:
            drop:
            - ALL
        resources:
          requests:
            cpu: '1'
            memory: 1024Mi
          limits:
            cpu: '1'
            memory: 1024Mi
        volumeMounts:
        - name: runs
          mountPath: /runs
      volumes:
      - name: runs
        persistentVolumeClaim:
          claimName: shared
"""


def manifests(settings: KubernetesConfig = SETTINGS, keys: dict[str, str] | None = None) -> dict[str, Any]:
    """By role."""
    request = LaunchRequest(Path("/runs"), "horse", LaunchConfig(kubernetes=settings), limits=["stuck_after_s=600"])
    found = KubernetesPlan(request, "remuda-horse-1").manifests(WorkerCounts(collectors=8, evaluators=2), keys)
    parsed: list[Any] = list(yaml.safe_load_all(as_yaml(found)))
    return {each["metadata"]["labels"]["remuda.role"]: each for each in parsed}


def head(settings: KubernetesConfig = SETTINGS) -> Any:
    [container] = manifests(settings)["head"]["spec"]["template"]["spec"]["containers"]
    return container


def test_the_job_of_the_collectors_word_for_word() -> None:
    assert yaml.safe_dump(manifests()["collector"], sort_keys=False) == COLLECTOR


def test_the_coordinator_listens_where_probes_and_the_forwarded_port_look() -> None:
    container = head()
    command = " ".join(container["command"])
    assert " --bind tcp://0.0.0.0:5555 --stream-port 5556 --http 0.0.0.0:9310 --limit stuck_after_s=600 " in command
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"coordinator": 5555, "files": 5556, "http": 9310}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    liveness = container["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 3_600, "a drain is not cut short"


def test_the_learner_gets_the_gpu_and_pods_their_node_and_time() -> None:
    chosen = SETTINGS.model_copy(update={"node_selector": {"disk": "ssd"}})
    assert head(chosen)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in str(manifests(chosen)["collector"])
    for role in ("head", "collector"):
        pod = manifests(chosen)[role]["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"disk": "ssd"}
        assert pod["terminationGracePeriodSeconds"] > TERM_S, "longer than the job takes to end"


def test_keys_are_in_the_secret_alone_and_shown_to_nobody() -> None:
    keys = {"authorized": "list", "coordinator": "s1", "operator": "s2", "worker": "s3"}
    found = manifests(keys=keys)
    assert found.pop("keys")["stringData"] == keys
    assert not any(secret in str(found) for secret in keys.values())
    assert set(manifests()["keys"]["stringData"].values()) == {NOT_SHOWN}


@pytest.mark.parametrize(
    ("experiment", "name"),
    [
        ("cartpole_dqn", "remuda-cartpole-dqn-1"),
        ("Pong.v5", "remuda-pong-v5-1"),
        ("___", "remuda-run-1"),
        ("x" * 100, f"remuda-{'x' * 30}-1"),
    ],
)
def test_names_are_what_kubernetes_allows(experiment: str, name: str) -> None:
    assert object_name(experiment, "1") == name
    longest = f"{object_name(experiment, '0' * 8)}-reanalyzer-99999"
    assert len(longest) <= 63


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (KubernetesConfig(claim="x"), r"launch\.kubernetes\.image must be set"),
        (KubernetesConfig(), r"launch\.kubernetes\.image and launch\.kubernetes\.claim must be set"),
    ],
)
def test_what_is_missing_is_named(settings: KubernetesConfig, said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        manifests(settings)


def test_workers_that_do_not_mount_the_volume_get_a_connection_file_and_a_way_to_the_coordinator() -> None:
    apart = SETTINGS.model_copy(update={"workers_mount": False})
    request = LaunchRequest(Path("/runs"), "horse", LaunchConfig(kubernetes=apart))
    plan = KubernetesPlan(request, "remuda-horse-1")
    made: list[Any] = list(yaml.safe_load_all(as_yaml(plan.manifests(WorkerCounts(8, 2), connection="how"))))
    _, secret, service, head, collector, _ = made
    assert secret["stringData"] == {"connection.json": "how"}
    assert secret["metadata"]["name"] == "remuda-horse-1-connection"
    assert f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc" == plan.host
    assert service["spec"]["selector"] == head["spec"]["template"]["metadata"]["labels"]
    [container] = head["spec"]["template"]["spec"]["containers"]
    of_head = {each["name"]: each["containerPort"] for each in container["ports"]}
    led = [(each["port"], of_head[each["targetPort"]]) for each in service["spec"]["ports"]]
    assert led == [(5555, 5555), (5556, 5556)]
    pod = collector["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "connection", "secret": {"secretName": "remuda-horse-1-connection"}}]
    [mount] = pod["containers"][0]["volumeMounts"]
    command = pod["containers"][0]["command"]
    assert command[command.index("--brought") + 1] == mount["mountPath"]
    assert "persistentVolumeClaim" in str(head)
    assert "how" not in as_yaml(plan.manifests(WorkerCounts(8, 2))), "--dry-run shows no secret"
