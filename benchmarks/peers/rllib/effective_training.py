"""RLlib: the share of environment steps that IMPALA keeps while somebody is killed by a schedule.

A Ray cluster of three nodes, emulated on this machine: the algorithm, its learner and the env runner for evaluations
are on the first, two env runners on the others, each of which has room for both. Recovery is as RLlib's pages on fault
tolerance recommend: `restart_failed_env_runners`, and Tune with FailureConfig(max_failures=-1) and checkpoints, which
starts the algorithm again where it or its learner dies. The user's script, which holds Tune and the schedule, is not
killed. The environment is the one of Remuda's herd; a checkpoint is saved every three seconds, as there.

Steps are `num_env_steps_sampled_lifetime`, which falls back to the checkpoint's where one is loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

PATIENCE = {
    "RAY_raylet_start_wait_time_s": "150",
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_gcs_server_request_timeout_seconds": "120",
    "RAY_worker_register_timeout_seconds": "150",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}
os.environ.update(PATIENCE)  # read by Ray when it is imported, and by its processes

import ray  # noqa: E402
from ray import tune  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from ray.rllib.algorithms.impala import IMPALA, IMPALAConfig  # noqa: E402
from ray.tune import Callback, CheckpointConfig, FailureConfig, RunConfig, Stopper  # noqa: E402

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ROOM = "paddock"
HEAD, OTHER = {"num_cpus": 4}, {"num_cpus": 0, "resources": {ROOM: 2}}
STORE_BYTES = 100 << 20
WARM_UP_ENV_STEPS = 10_000
REPLACED_AFTER_S = 10.0
ITERATION_S = 1.0
CHECKPOINT_ITERATIONS = 3
EVALUATION_ITERATIONS = 10
EPISODES = 5


class Told(Callback):
    """Writes down how many steps the run has, and when. Ray copies it, so it holds nothing but a path."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def on_trial_result(self, iteration, trials, trial, result, **info) -> None:
        """Called in the process of Tune."""
        steps = result["env_runners"].get("num_env_steps_sampled_lifetime", 0)  # the first results have none
        with self.file.open("a") as file:
            print(time.monotonic(), int(steps), file=file)


class Over(Stopper):
    """Ends Tune once a file is there."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, trial_id: str, result: dict) -> bool:
        return self.file.exists()

    def stop_all(self) -> bool:
        return self.file.exists()


class Seen:
    """What was written down."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def env_steps(self) -> int:
        """The newest number."""
        return self._at(math.inf)

    def gained(self, begin_s: float, end_s: float) -> int:
        """Steps between two moments, by what was known then."""
        return self._at(end_s) - self._at(begin_s)

    def _at(self, when_s: float) -> int:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        known = [int(steps) for at_s, steps in map(str.split, lines) if float(at_s) <= when_s]
        return known[-1] if known else 0


class Nodes:
    """The cluster, and who lives on it."""

    def __init__(self, pids: Path) -> None:
        self._pids = pids
        self._cluster = Cluster(initialize_head=False, shutdown_at_exit=True)
        self._others = []
        self._add(HEAD)
        for _ in range(2):
            self._others.append(self._add(OTHER))
        ray.init(address=self._cluster.address, log_to_driver=False, logging_level="error")

    def hit(self, role: str, choice: float) -> bool:
        """Kill somebody; False where nobody of this role is there."""
        if role == "node":
            return self._lose_node(choice)
        there = sorted(self._of_role(role), key=lambda process: process.pid)
        if there:
            there[int(choice * len(there))].send_signal(signal.SIGKILL)
        return bool(there)

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()

    def _add(self, size: dict):
        names = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
        with ExitStack() as held:
            sockets = [held.enter_context(socket.create_server(("", 0))) for _ in names]
            ports = {name: each.getsockname()[1] for name, each in zip(names, sockets, strict=True)}
        return self._cluster.add_node(object_store_memory=STORE_BYTES, include_dashboard=False, **ports, **size)

    def _lose_node(self, choice: float) -> bool:
        runners = {process.pid for process in self._of_role("collector")}
        actors = ray._private.state.actors().values()
        ids = {actor["Address"]["NodeID"] for actor in actors if actor["State"] == "ALIVE" and actor["Pid"] in runners}
        nodes = [node for node in self._others if node.node_id in ids]
        if not nodes:
            return False
        node = nodes[int(choice * len(nodes))]
        self._others.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        threading.Timer(REPLACED_AFTER_S, lambda: self._others.append(self._add(OTHER))).start()
        return True

    def _of_role(self, role: str) -> list[psutil.Process]:
        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                title = " ".join(process.cmdline())
                if not title.startswith("ray::") or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if role in ("collector", "evaluator"):
                    if (self._pids / role / str(process.pid)).exists():
                        found.append(process)
                elif {"coordinator": "ray::IMPALA.", "learner": "ray::_WrappedExecutable"}[role] in title:
                    found.append(process)
        return found


def make_env(config):
    """The paced CartPole; its first step tells which role its process has."""
    sys.path.insert(0, str(CONFIGS))
    import gymnasium
    from paced_cartpole import make_env as paced

    class Known(gymnasium.Wrapper):
        told = False

        def step(self, action):
            if not self.told:
                self.told = True
                folder = Path(config["pids"]) / config["role"]
                folder.mkdir(parents=True, exist_ok=True)
                (folder / str(os.getpid())).touch()
            return self.env.step(action)

    return Known(paced())


def config_of(pids: Path) -> IMPALAConfig:
    """The settings; `pids` is where env runners tell their roles."""
    own = {"pids": str(pids)}
    tune.register_env("paced", make_env)
    return (
        IMPALAConfig()
        .environment("paced", env_config={**own, "role": "collector"})
        .env_runners(
            num_env_runners=2,
            num_envs_per_env_runner=4,
            num_cpus_per_env_runner=0,
            custom_resources_per_env_runner={ROOM: 1},
        )
        .learners(num_learners=1)
        .evaluation(
            evaluation_interval=EVALUATION_ITERATIONS,
            evaluation_num_env_runners=1,
            evaluation_duration=EPISODES,
            evaluation_parallel_to_training=True,
            evaluation_config={
                "explore": False,
                "env_config": {**own, "role": "evaluator"},
                "num_cpus_per_env_runner": 1,
                "custom_resources_per_env_runner": {},
            },
        )
        .fault_tolerance(restart_failed_env_runners=True)
        .reporting(min_time_s_per_iteration=ITERATION_S)
        .debugging(seed=0, log_level="ERROR")
    )


def carry_out(plan: dict, seen: Seen, nodes: Nodes, over: Path, result: dict) -> None:
    """In a thread beside Tune: leave it in peace, kill by the schedule, leave it in peace."""
    while seen.env_steps < WARM_UP_ENV_STEPS:
        time.sleep(0.1)
    begin_s, peace_s, duration_s = time.monotonic(), plan["peace_s"], plan["duration_s"]
    for kill in plan["kills"]:
        while time.monotonic() < begin_s + peace_s + kill["at_s"]:
            time.sleep(0.05)
        while not nodes.hit(kill["role"], kill["choice"]):
            time.sleep(0.05)
        at_s = time.monotonic() - begin_s
        print(f"{at_s:8.1f} s  {kill['role']:12} at {seen.env_steps} steps", file=sys.stderr, flush=True)
    again_s = begin_s + peace_s + duration_s
    while time.monotonic() < again_s + peace_s:
        time.sleep(0.05)
    killed = seen.gained(begin_s + peace_s, again_s) / duration_s
    peace = (seen.gained(begin_s, begin_s + peace_s) + seen.gained(again_s, again_s + peace_s)) / (2 * peace_s)
    result.update(value=killed / peace, killed_steps_per_s=killed, peace_steps_per_s=peace)
    over.touch()


def main() -> None:
    """Print one JSON line: the share, and env steps per second with kills and without."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", help="JSON: peace_s, duration_s, and kills with at_s, role and choice")
    plan = json.loads(parser.parse_args().plan)
    folder, result = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp")), {}
    os.environ["TMPDIR"] = os.environ["RAY_TMPDIR"] = str(folder)
    with contextlib.redirect_stdout(sys.stderr):
        nodes = Nodes(folder / "pids")
        told, over = folder / "told.txt", folder / "over"
        arguments = (plan, Seen(told), nodes, over, result)
        threading.Thread(target=carry_out, args=arguments, daemon=True).start()
        try:
            tune.Tuner(
                IMPALA,
                param_space=config_of(folder / "pids"),
                run_config=RunConfig(
                    stop=Over(over),
                    callbacks=[Told(told)],
                    storage_path=str(folder / "results"),
                    failure_config=FailureConfig(max_failures=-1),
                    checkpoint_config=CheckpointConfig(checkpoint_frequency=CHECKPOINT_ITERATIONS, num_to_keep=5),
                    verbose=0,
                ),
            ).fit()
        finally:
            nodes.close()
            shutil.rmtree(folder, ignore_errors=True)
    if not result:
        sys.exit("Tune has ended before the plan was carried out")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
