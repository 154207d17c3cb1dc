"""Whole runs on real Ray: over a node that is killed, workers that are killed, and users who give up."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from remuda.buffer.chunk import read_meta
from remuda.tests.cluster.ray_cluster import (
    RayCluster,
    end_ray,
    nothing_left_of_ray,
    ray_cluster,
    ray_processes,
    short_folder,
)
from remuda.tests.parallel.command import Command, Ended
from remuda.tests.parallel.conftest import wait_until_held
from remuda.tests.parallel.reading import Joined, joined, pids
from remuda.tests.parallel.user_folder import ENDLESS, HELD, UserFolder
from remuda.tests.patience import until, until_ended

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'remuda[ray]'"),
    pytest.mark.xdist_group("ray"),
]

ON_RAY = "launch: {on: ray}\n"
IN_PADDOCKS = "launch: {on: ray, ray: {collector: {num_cpus: 0, custom: {paddock: 1}}}}\n"
CHUNK, VECTOR = 32, 4


class Stable:
    """Starts runs on Ray, and ends what a test has left running."""

    def __init__(self) -> None:
        self._before = ray_processes()
        self.place = short_folder("remuda-ray-test-")
        self._commands: list[Command] = []

    def launch(self, user: UserFolder, *options: object) -> Command:
        scratch = self.place / f"s{len(self._commands)}"
        run = ("--run-dir", self.run)
        self._commands.append(Command(scratch, user.root, "launch", user.config, *run, *options))
        return self._commands[-1]

    def user(self, more: str, changes: dict[str, dict[str, object]] | None = None) -> UserFolder:
        """Whose config has one line more than for this machine alone."""
        user = UserFolder.make(self.place / "user", changes)
        with user.config.open("a") as file:
            file.write(more)
        return user

    @property
    def run(self) -> Path:
        return self.place / "run"

    def joined(self, role: str) -> list[Joined]:
        log = self.run / "log" / "coordinator_logger.txt"
        return [one for one in joined(log) if one.role == role] if log.exists() else []

    def is_back(self, role: str) -> bool:
        """Whether a worker of this role works in its second process."""
        return any(one.incarnation == 2 for one in self.joined(role))

    @property
    def is_ended(self) -> bool:
        """Whether nothing of Ray is there that was not there before."""
        return nothing_left_of_ray(self._before)

    def nothing_is_left(self, command: Command) -> None:
        until(lambda: self.is_ended and not command.family(), "the end of all that was started")
        assert [path.name for path in command.leftovers() if path.name != "ray"] == []

    def end(self) -> None:
        for command in self._commands:
            command.end()
        end_ray(self._before)
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture
def stable() -> Generator[Stable]:
    stable = Stable()
    try:
        yield stable
    finally:
        stable.end()


# --- a node is killed ---
@dataclass(frozen=True)
class Survived:
    """A run of which a node with a collector was killed."""

    stable: Stable
    user: UserFolder
    ended: Ended
    lost: list[Joined]
    """The collectors of that node."""
    killed_node: int
    nodes: list[int | None]
    """Where they went on."""
    secrets: list[str]
    told: str
    """What Ray's tables and logs, and the list of processes, held while it went on."""

    @property
    def env_step(self) -> int:
        [env_step] = re.findall(r"^env_step (\d+), ", self.ended.out, re.MULTILINE)
        return int(env_step)


@pytest.fixture(scope="module")
def survived() -> Generator[Survived]:
    stable = Stable()
    try:
        with ray_cluster([{"CPU": 2}, {"paddock": 2}, {"paddock": 2}]) as cluster:
            yield _survive(stable, cluster)
    finally:
        stable.end()


def _survive(stable: Stable, cluster: RayCluster) -> Survived:
    user = stable.user(IN_PADDOCKS, HELD)
    user.hold()
    command = stable.launch(user, "--set", f"launch.ray.address={json.dumps(cluster.address)}")
    wait_until_held(command, stable.run, user)
    assert command.process.poll() is None, command.ended().err
    collectors = stable.joined("collector")
    node = cluster.node_of(actor_of(collectors[0]))
    lost = [one for one in collectors if cluster.node_of(actor_of(one)) == node]
    assert node
    secrets = [*_secrets(command.scratch), *_secrets(cluster.folder)]
    cluster.ask(f"kill {node}")

    def back() -> set[str]:
        return {one.uuid for one in stable.joined("collector") if one.incarnation == 2}

    until(lambda: back() == {one.uuid for one in lost}, "the lost collectors are back")
    nodes = [cluster.node_of(actor_of(one)) for one in lost]
    told = "\n".join([cluster.ask("known"), *_texts_below(cluster.folder / "ray"), *_processes()])
    user.release()
    return Survived(stable, user, command.ended(), lost, node, nodes, secrets, told)


def actor_of(one: Joined) -> str:
    """The name that Ray knows it by."""
    return f"{one.role}-{one.uuid[:8]}"


def _secrets(folder: Path) -> list[str]:
    """All secret keys in files below a folder."""
    files = [
        path for path in folder.rglob("*") if path.is_file() and (path.parent.name == ".keys" or path.name == "key")
    ]
    found = [json.loads(path.read_text())["secret"] for path in files if path.name not in ("authorized", ".lock")]
    return [*found, *(bytes.fromhex(secret).decode("latin-1") for secret in found)]


def _texts_below(folder: Path) -> Iterator[str]:
    yield from (path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


def _processes() -> Iterator[str]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            yield f"{process.cmdline()} {process.environ()}"


def test_a_run_survives_the_loss_of_a_node_with_exact_counters_and_tells_no_secret(survived: Survived) -> None:
    assert survived.ended.code == 0, survived.ended.err
    assert "horse finished: max_env_steps" in survived.ended.out
    assert survived.env_step >= 3_000
    assert len(survived.lost) == 1, "two collectors were spread over two nodes that both have room for both"
    assert None not in survived.nodes
    assert survived.killed_node not in survived.nodes
    joined = survived.stable.joined
    assert [len(joined(role)) for role in ("learner", "evaluator", "collector")] == [1, 1, 3]
    metas = [read_meta(path) for path in (survived.stable.run / "data").iterdir()]
    (one,) = survived.lost
    assert f"ray: {actor_of(one)} ended with the loss of its process" in survived.ended.err
    assert {1, 2} <= {meta.chunk.incarnation for meta in metas if meta.chunk.worker == one.uuid}
    assert max(Counter(meta.chunk for meta in metas).values()) == 1
    assert sum(meta.env_steps for meta in metas) == survived.env_step
    taken = sum(map(survived.user.steps, pids(survived.stable.run, "collector")))
    assert survived.env_step <= taken <= survived.env_step + CHUNK + VECTOR, "at most a chunk"
    assert len(survived.secrets) >= 2 * (3 + 4), "the coordinator's three, and one of each actor"
    assert actor_of(one) in survived.told, "what is searched is what Ray knows"
    assert not [number for number, secret in enumerate(survived.secrets) if secret in survived.told]


# --- a Ray of its own ---
def test_who_is_killed_is_started_again_and_nothing_is_left_at_the_end(stable: Stable) -> None:
    user = stable.user(ON_RAY, HELD)
    user.hold()
    command = stable.launch(user)
    wait_until_held(command, stable.run, user)
    assert command.process.poll() is None, command.ended().err
    for role in ("collector", "learner"):
        psutil.Process(stable.joined(role)[0].pid).kill()
        until(partial(stable.is_back, role), f"the {role} is back")
    psutil.Process(stable.joined("evaluator")[0].pid).terminate()
    until(partial(stable.is_back, "evaluator"), "the evaluator is back")
    coordinator = command.coordinator_pid
    psutil.Process(coordinator).kill()
    until(lambda: command.coordinator_pid != coordinator, "the next coordinator")
    assert command.process.poll() is None, command.ended().err
    user.release()
    ended = command.ended()
    assert ended.code == 0, ended.err
    assert "horse finished: max_env_steps" in ended.out
    assert "ray: joined a cluster of 1 node" in ended.err
    assert f"ray: {actor_of(stable.joined('evaluator')[0])} ended with a request to end" in ended.err
    assert "the coordinator ended with signal 9 (SIGKILL); starting it again" in ended.err
    assert {one.incarnation for one in stable.joined("collector")} == {1, 2}, "nobody else was started again"
    stable.nothing_is_left(command)


def test_one_ctrl_c_saves_and_two_end_at_once(stable: Stable) -> None:
    user = stable.user(ON_RAY, ENDLESS)
    command = stable.launch(user)
    until(lambda: stable.joined("learner") and len(stable.joined("collector")) == 2, "a run that goes on")
    command.process.send_signal(signal.SIGINT)
    ended = command.ended()
    assert ended.code == 0, ended.err
    assert "horse stopped; best return" in ended.out
    stable.nothing_is_left(command)
    again = stable.launch(user, "--resume")
    until(lambda: len(stable.joined("learner")) == 2, "the run goes on")
    until_ended(again.process, signal.SIGINT)
    stable.nothing_is_left(again)


def test_a_launch_that_is_killed_takes_all_of_it_along(stable: Stable) -> None:
    command = stable.launch(stable.user(ON_RAY, ENDLESS))
    until(lambda: stable.joined("learner"), "a run that goes on")
    command.process.kill()
    until(lambda: not command.family(), "the end of coordinator and herd")
    until(lambda: stable.is_ended, "the end of Ray")
    assert command.process.wait() == -signal.SIGKILL, "it was killed, and did not end by itself before"


# --- what cannot be ---
def test_workers_without_a_place_are_told_what_they_need(stable: Stable, monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_cluster([{"CPU": 4}]) as cluster:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        command = stable.launch(stable.user(IN_PADDOCKS))
        error = command.scratch.with_suffix(".err")
        until(
            lambda: " s for a place: it needs paddock 1; free in the cluster: paddock 0" in error.read_text(), "a line"
        )
        assert command.process.poll() is None
        cluster.ask('add {"paddock": 2}')
        ended = command.ended()
        assert ended.code == 0, ended.err


def test_a_cluster_that_is_not_there_is_a_sentence(stable: Stable) -> None:
    command = stable.launch(stable.user(ON_RAY), "--set", "launch.ray.address=127.0.0.1:1")
    ended = command.ended()
    assert ended.code == 1
    assert "Ray at 127.0.0.1:1: " in ended.err
    assert "Traceback" not in ended.err
    assert not os.path.exists(stable.run)
    stable.nothing_is_left(command)
