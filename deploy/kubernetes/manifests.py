"""The objects of a launch on Kubernetes: from settings to manifests. Reads nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from remuda.config.launching import KubernetesConfig
from remuda.deploy.job import CONNECTION_FILE
from remuda.deploy.launcher import LaunchError, LaunchRequest, WorkerCounts

Value: TypeAlias = "Mapping[str, Value] | Sequence[Value] | str | int | float | bool"
Manifest: TypeAlias = Mapping[str, Value]
GRACE_S = 30
"""From SIGTERM to SIGKILL. A job of Remuda has ended after 25 s."""
KEPT_S = 86_400
"""Seconds that Kubernetes keeps a finished job without a removal."""
KEYS_AT, CONNECTION_AT = "/etc/remuda/keys", "/etc/remuda/connection"
LAUNCH_LABEL = "remuda.launch"
ROLE_LABEL = "remuda.role"
KEY_FILES = ("authorized", "coordinator", "operator", "worker")
"""Files of a folder of keys."""
NOT_SHOWN = "(made when it is launched)"
_STARTING_S, _STALLED_S = 600, 3_600
"""Seconds for the coordinator to read the journals of all runs, and to drain (docs/monitoring.md)."""


@dataclass(frozen=True)
class KubernetesPlan:
    """Inputs for the manifests of a launch."""

    request: LaunchRequest
    name: str
    """The beginning of all names, see `object_name`."""

    def __post_init__(self) -> None:
        """Raises LaunchError for a missing required setting."""
        missing = [name for name in ("image", "claim") if getattr(self._settings, name) is None]
        if missing:
            raise LaunchError(
                f"launch.kubernetes.{' and launch.kubernetes.'.join(missing)} must be set, see docs/cluster.md"
            )

    @property
    def _settings(self) -> KubernetesConfig:
        return self.request.settings.kubernetes

    @property
    def own_dir(self) -> Path:
        """The folder of this launch, on the shared volume."""
        return self.request.runs_dir / ".launches" / self.name

    @property
    def host(self) -> str:
        """Host name of the coordinator for pods on any node."""
        return f"{self.name}-head.{self._settings.namespace}.svc"

    def manifests(
        self, workers: WorkerCounts, keys: Mapping[str, str] | None = None, connection: str | None = None
    ) -> list[Manifest]:
        """Return all objects. `keys`: the files of the keys by name; `connection`: the connection file, with a key, of
        workers without the volume. Without these arguments the Secrets have the names alone."""
        shown: Mapping[str, str] = dict.fromkeys(KEY_FILES, NOT_SHOWN) if keys is None else keys
        first = [self._secret("keys", shown)]
        if not self._settings.workers_mount:
            first += [self._secret("connection", {CONNECTION_FILE: connection or NOT_SHOWN}), self._service()]
        return [
            *first,
            self._head(workers.learners),
            *(self._workers(role, count) for role, count in workers.of_roles.items() if count),
        ]

    def _secret(self, kind: str, content: Mapping[str, str]) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self._metadata(f"{self.name}-{kind}", kind),
            "type": "Opaque",
            "stringData": content,
        }

    def _service(self) -> Manifest:
        """Lead workers without the volume to the coordinator: they cannot read the pod's address."""
        ports = {"coordinator": self._settings.port, "files": self._settings.stream_port}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(f"{self.name}-head", "head"),
            "spec": {
                "selector": self._labels("head"),
                "ports": [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()],
            },
        }

    def _head(self, learners: int) -> Manifest:
        settings = self._settings
        limits = [part for limit in self.request.limits for part in ("--limit", limit)]
        addresses = ["--bind", f"tcp://0.0.0.0:{settings.port}", "--stream-port", str(settings.stream_port)]
        addresses += ["--http", f"0.0.0.0:{settings.http_port}"]
        health: Manifest = {"httpGet": {"path": "/health", "port": "http"}}
        container: Manifest = {
            **self._container("head", ["--keys", KEYS_AT, "--learners", str(learners), *addresses, *limits]),
            "ports": [
                {"name": "coordinator", "containerPort": settings.port},
                {"name": "files", "containerPort": settings.stream_port},
                {"name": "http", "containerPort": settings.http_port},
            ],
            "startupProbe": {**health, "periodSeconds": 5, "failureThreshold": _STARTING_S // 5},
            "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 2},
            "livenessProbe": {**health, "periodSeconds": 30, "failureThreshold": _STALLED_S // 30},
            "resources": _resources(settings.learner_cpus, settings.learner_memory_mib, settings.learner_gpus),
            "volumeMounts": [*self._mounts(), {"name": "keys", "mountPath": KEYS_AT, "readOnly": True}],
        }
        keys: Manifest = {"name": "keys", "secret": {"secretName": f"{self.name}-keys"}}
        return self._job("head", 1, container, [*self._volumes(), keys])

    def _workers(self, role: str, count: int) -> Manifest:
        settings = self._settings
        brought = [] if settings.workers_mount else ["--brought", CONNECTION_AT]
        mounts, volumes = self._mounts(), self._volumes()
        if brought:
            mounts = [{"name": "connection", "mountPath": CONNECTION_AT, "readOnly": True}]
            volumes = [{"name": "connection", "secret": {"secretName": f"{self.name}-connection"}}]
        container: Manifest = {
            **self._container(role, ["--count", "1", *brought]),
            "resources": _resources(settings.cpus_per_worker, settings.memory_mib_per_worker, 0),
            "volumeMounts": mounts,
        }
        return self._job(role, count, container, volumes)

    def _container(self, kind: str, arguments: Sequence[str]) -> Manifest:
        patience = ["--coordinator-timeout", f"{self.request.settings.coordinator_timeout_s:g}"]
        places = ["--own-dir", str(self.own_dir), "--runs-dir", str(self.request.runs_dir)]
        command = ["python", "-P", "-m", "remuda.deploy.job", kind, *places]
        return {
            "name": kind,
            "image": self._settings.image or "",
            "command": [*command, *arguments, *patience],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }

    def _job(self, kind: str, count: int, container: Manifest, volumes: Sequence[Manifest]) -> Manifest:
        """Return a job that restarts failed pods. Evictions do not count as failures."""
        settings = self._settings
        user = {"runAsNonRoot": True, "runAsUser": settings.user, "runAsGroup": settings.user, "fsGroup": settings.user}
        pod: Manifest = {
            "restartPolicy": "Never",  # a pod that has failed is replaced, maybe on another node
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {**user, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": volumes,
        }
        if settings.node_selector:
            pod = {**pod, "nodeSelector": settings.node_selector}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(f"{self.name}-{kind}", kind),
            "spec": {
                "completionMode": "Indexed",
                "completions": count,
                "parallelism": count,
                "backoffLimit": settings.max_replacements,
                "ttlSecondsAfterFinished": KEPT_S,
                "podFailurePolicy": {
                    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
                },
                "template": {"metadata": {"labels": self._labels(kind)}, "spec": pod},
            },
        }

    def _mounts(self) -> list[Manifest]:
        return [{"name": "runs", "mountPath": str(self.request.runs_dir)}]

    def _volumes(self) -> list[Manifest]:
        return [{"name": "runs", "persistentVolumeClaim": {"claimName": self._settings.claim or ""}}]

    def _metadata(self, name: str, kind: str) -> Manifest:
        return {"name": name, "namespace": self._settings.namespace, "labels": self._labels(kind)}

    def _labels(self, kind: str) -> Manifest:
        return {"app.kubernetes.io/name": "remuda", LAUNCH_LABEL: self.name, ROLE_LABEL: kind}


def object_name(experiment: str, id: str) -> str:
    """Return the common beginning of all object names, `remuda-<experiment>-<id>`, in characters
    allowed by Kubernetes."""
    slug = re.sub(r"[^a-z0-9]+", "-", experiment.lower()).strip("-")[:30].strip("-")
    return f"remuda-{slug or 'run'}-{id}"


def as_yaml(manifests: Sequence[Manifest]) -> str:
    """Return all manifests as one file for `kubectl apply -f`."""
    return yaml.dump_all(manifests, Dumper=_WithoutAnchors, sort_keys=False)


class _WithoutAnchors(yaml.SafeDumper):
    """Writes repeated parts in full, for people."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _resources(cpus: float, memory_mib: int, gpus: int) -> Manifest:
    """Return the requested amounts, equal to the limits."""
    amount = {"cpu": f"{cpus:g}", "memory": f"{memory_mib}Mi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {"requests": amount, "limits": amount}
