"""Stands in for kubectl and a cluster: runs the command of every container as a process of this machine.

It keeps what it is told in the folder $STAND_IN, does with jobs what Kubernetes promises (the head is ready once
/health says so; what is deleted gets SIGTERM, and SIGKILL after its grace period), and knows nothing of Remuda.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import yaml

FOLDER = Path(os.environ.get("STAND_IN", "nowhere"))
LABEL = "remuda.role"
_OF_A_SERVICE = re.compile(r"tcp://[a-z0-9-]+-head\.horses\.svc:")
"""An address that the cluster's own name server knows."""


def main() -> None:
    with (FOLDER / "arguments.txt").open("a") as file:
        file.write(json.dumps(sys.argv[1:]) + "\n")
    [namespace, verb, *arguments] = sys.argv[1:]
    assert namespace == "--namespace=horses"
    {"apply": apply, "get": get, "exec": read, "port-forward": forward, "delete": delete, "logs": logs}[verb](arguments)


def apply(arguments: list[str]) -> None:
    manifests: list[dict[str, Any]] = list(yaml.safe_load_all(sys.stdin.read()))
    secrets = FOLDER / "secrets"
    pods: dict[str, dict[str, Any]] = {}
    for each in manifests:
        if each["kind"] == "Secret":
            for name, content in each["stringData"].items():
                (secrets / each["metadata"]["name"]).mkdir(parents=True, exist_ok=True)
                found = _OF_A_SERVICE.sub("tcp://127.0.0.1:", content)
                (secrets / each["metadata"]["name"] / name).write_text(found)
        elif each["kind"] == "Job":
            for index in range(each["spec"]["completions"]):
                pods[f"{each['metadata']['name']}-{index}"] = _start(each, index)
    (FOLDER / "pods.json").write_text(json.dumps(pods))


def _start(job: dict[str, Any], index: int) -> dict[str, Any]:
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    given = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    places = {
        given[volume["name"]]: str(FOLDER / "secrets" / volume["secret"]["secretName"])
        for volume in pod["volumes"]
        if "secret" in volume
    }
    command = [sys.executable if part == "python" else places.get(part, part) for part in container["command"]]
    with (FOLDER / f"{job['metadata']['name']}-{index}.txt").open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    probe = container.get("readinessProbe", {}).get("httpGet", {})
    ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
    return {
        "pid": process.pid,
        "job": job["metadata"]["name"],
        "role": job["spec"]["template"]["metadata"]["labels"][LABEL],
        "health": [ports[probe["port"]], probe["path"]] if probe else [],
        "ports": sorted(ports.values()),
        "grace_s": pod["terminationGracePeriodSeconds"],
    }


def get(arguments: list[str]) -> None:
    items: list[dict[str, Any]] = []
    for name, pod in _pods().items():
        alive = _alive(pod["pid"])
        ready = alive and (not pod["health"] or _is_well(*pod["health"]))
        condition = {"type": "Ready", "status": str(ready), "reason": "", "message": ""}
        labels = {LABEL: pod["role"]}
        phase = "Running" if alive else "Succeeded"
        items.append(
            {
                "kind": "Pod",
                "metadata": {"name": name, "labels": labels},
                "status": {"phase": phase, "conditions": [condition]},
            }
        )
        complete = {"type": "Complete", "status": str(not alive)}
        items.append(
            {"kind": "Job", "metadata": {"name": pod["job"], "labels": labels}, "status": {"conditions": [complete]}}
        )
    print(json.dumps({"items": items}))


def read(arguments: list[str]) -> None:
    sys.stdout.write(Path(arguments[-1]).read_text())


def forward(arguments: list[str]) -> None:
    port = int(arguments[-1].removeprefix(":"))
    pod = _pods()[arguments[-2].removeprefix("pod/")]
    assert port in pod["ports"]
    print(f"Forwarding from 127.0.0.1:{port} -> {port}", flush=True)
    while True:
        signal.pause()


def delete(arguments: list[str]) -> None:
    pods = [pod for pod in _pods().values() if _alive(pod["pid"])]
    for pod in pods:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pod["pid"], signal.SIGTERM)
    end_s = time.monotonic() + max((pod["grace_s"] for pod in pods), default=0)
    while any(_alive(pod["pid"]) for pod in pods) and time.monotonic() < end_s:
        time.sleep(0.05)
    killed = [pod for pod in pods if _alive(pod["pid"])]
    for pod in killed:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pod["pid"], signal.SIGKILL)
    (FOLDER / "killed.json").write_text(json.dumps([pod["role"] for pod in killed]))
    (FOLDER / "pods.json").write_text("{}")


def logs(arguments: list[str]) -> None:
    for file in sorted(FOLDER.glob("remuda-*.txt")):
        print(file.read_text(errors="replace")[-2_000:])


def _pods() -> dict[str, dict[str, Any]]:
    file = FOLDER / "pods.json"
    found: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _is_well(port: int, path: str) -> bool:
    with contextlib.suppress(OSError), contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=5)) as asked:
        asked.request("GET", path)
        return asked.getresponse().status == 200
    return False


if __name__ == "__main__":
    main()
