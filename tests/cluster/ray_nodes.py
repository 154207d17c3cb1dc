"""`python -m remuda.tests.cluster.ray_nodes SIZES`: a Ray cluster of several nodes here, until its input ends.

Each size is a node's resources as JSON; the first is the head's. It reads a command per line and answers each with a
line of JSON. Ray is imported in this process and not in pytest's.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

from remuda.tests.ports import free_ports

STORE_BYTES = 100 << 20


class Nodes:
    """Nodes by number, in the order in which they were started; 0 is the head."""

    def __init__(self, sizes: list[dict[str, float]]) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        self._ray: Any = import_module("ray")
        cluster: Any = import_module("ray.cluster_utils")
        self._cluster = cluster.Cluster(initialize_head=False, shutdown_at_exit=True)
        self._nodes: list[Any] = []
        for size in sizes:
            self._start(size)
        self.address = str(self._cluster.address)
        self._ray.init(address=self.address, log_to_driver=False, logging_level="error")

    def kill(self, number: str) -> bool:
        """Kill a node with all its processes, as a power cut does."""
        self._cluster.remove_node(self._nodes[int(number)], allow_graceful=False)
        return True

    def add(self, size: str) -> int:
        """Start another node; returns its number."""
        self._start(json.loads(size))
        return len(self._nodes) - 1

    def _start(self, size: dict[str, float]) -> None:
        custom = {name: number for name, number in size.items() if name != "CPU"}
        settings = {"object_store_memory": STORE_BYTES, "include_dashboard": False, **_agent_ports()}
        self._nodes.append(self._cluster.add_node(num_cpus=int(size.get("CPU", 0)), resources=custom, **settings))

    def actors(self) -> dict[str, tuple[int, int]]:
        """Node and process of each actor that lives, by name."""
        numbers = {node.node_id: number for number, node in enumerate(self._nodes)}
        table: dict[str, Any] = import_module("ray._private.state").actors()
        return {
            actor["Name"]: (numbers[actor["Address"]["NodeID"]], actor["Pid"])
            for actor in table.values()
            if actor["State"] == "ALIVE"
        }

    def known(self) -> str:
        """All that Ray's own tables say of actors and jobs."""
        state: Any = import_module("ray._private.state")
        return repr((state.actors(), state.jobs(), state.nodes()))

    def close(self) -> None:
        """End all of it."""
        self._ray.shutdown()
        self._cluster.shutdown()


def _agent_ports() -> dict[str, int]:
    """Free ports for a node's agents. A node that has to wait for what they choose gives up after 15 s."""
    names = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
    return dict(zip(names, free_ports(len(names)), strict=True))


def main() -> None:
    """Entry point."""
    nodes = Nodes([json.loads(size) for size in sys.argv[1:]])
    try:
        print(json.dumps(nodes.address), flush=True)
        for line in sys.stdin:
            name, *arguments = line.strip().split(" ", 1)
            print(json.dumps(getattr(nodes, name)(*arguments)), flush=True)
    finally:
        nodes.close()


if __name__ == "__main__":
    main()
