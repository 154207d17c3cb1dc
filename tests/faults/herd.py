"""A herd of real processes in one folder: started, killed and watched, and at the end nothing of it may be left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from remuda.buffer.chunk import read_meta
from remuda.client.checking import with_agents
from remuda.client.client import Client
from remuda.config.load import load_config
from remuda.tests.faults.network import Between
from remuda.tests.faults.sizes import LONG_STEPS, PAUSE_S
from remuda.tests.parallel import user_folder
from remuda.tests.parallel.reading import Joined, index, joined, texts
from remuda.tests.parallel.user_folder import CONFIG, UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.popen import Popen
from remuda.tests.warm.program import REMUDA
from remuda.training.journal import RunJournal
from remuda.training.run_snapshot import RunSnapshot
from remuda.training.snapshot import LedgerSnapshot
from remuda.wire import connection_file
from remuda.wire.messages import OVER, ExperimentStatus, IndexedChunk, Role, Status, WorkerStatus
from remuda.worker.serve import HAND_IN_S

LEFTOVERS = (
    ".owner",
    ".begun_*",
    ".coordinator",
    "connection.json",
    ".seen_*",
    "remuda-worker-*",
    "*.tmp*",
    ".*.tmp*",
    "*-wal",
    "*-shm",
    "*-journal",
)
"""Files that nobody needs once everybody is gone."""
CHUNK, VECTOR = 32, 4
IN_WORK = 2 * (CHUNK + VECTOR - 1)
"""What a killed collector may have taken and not announced: a chunk being filled, one being written. Each ends with the
vector's step that fills it, which may bring all but one of its environments' steps too many."""
LONG_RUN: dict[str, dict[str, object]] = {
    "env": {"kwargs": {"pause_s": PAUSE_S}},
    "stop": {"max_env_steps": LONG_STEPS},
    "evaluator": {**CONFIG["evaluator"], "interval_env_steps": LONG_STEPS // 2},
}
"""A run in whose course somebody can die."""
ENDLESS: dict[str, dict[str, object]] = {
    **user_folder.ENDLESS,
    "evaluator": {**CONFIG["evaluator"], "interval_env_steps": 20_000},
    "buffer": {**CONFIG["buffer"], "capacity": 500_000},
}
"""A run without an end of its own, of which no chunk is evicted."""
ENV = {name: value for name, value in os.environ.items() if not name.startswith("REMUDA_")} | {"REMUDA_PAGE": "0"}


@dataclass
class Herd:
    """One runs folder with its coordinator and its workers; each process can be told by the folder in its command."""

    root: Path
    limits: str | None = None
    """What `python -m remuda.coordinator --limit` takes, with commas between; None: the verb, with users' limits."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of every process, beside those of the test."""
    coordinator_timeout_s: float | None = None
    """How long workers wait for a silent coordinator; None: as long as users' do."""
    network: Between | None = None
    """What lies between its workers and its coordinator; running. None: nothing."""
    options: tuple[str, ...] = ()
    """More options of the coordinator's command."""
    runs: Path = field(init=False)
    elsewhere: Path = field(init=False)
    """The folder of workers that do not see the runs folder."""
    started: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.runs = self.root / "runs"
        self.elsewhere = self.root / "elsewhere"

    # --- processes ---

    @property
    def connection_file(self) -> Path:
        """Where the coordinator says how it is to be reached."""
        return self.runs / "connection.json"

    @property
    def workers_file(self) -> Path:
        """The connection file that workers are given."""
        return self.connection_file if self.network is None else self.root / "workers.json"

    def coordinator(self, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start one, by the same command every time; returns once it answers."""
        process = self.launch_coordinator(env)
        until(lambda: process.poll() is not None or self._answers(process.pid), "the coordinator answers")
        assert process.poll() is None, self.said()
        if self.network is not None:
            found = connection_file.read(self.connection_file)
            connection_file.write(self.workers_file, self.network.stand_before(found, self.root / "workers.keys"))
        return process

    def launch_coordinator(self, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start one that may die before it answers."""
        verb = [REMUDA, "coordinator"]
        if self.limits is not None:
            verb = [sys.executable, "-m", "remuda.coordinator", "--persistent"]
            verb += [part for limit in self.limits.split(",") for part in ("--limit", limit)]
        own = ("--runs-dir", self.runs, "--connection-file", self.connection_file, *self.options)
        return self.start("coordinator", *verb, *own, env=env)

    def workers(
        self, *, collectors: int = 2, evaluators: int = 1, learners: int = 1, inference: int = 0
    ) -> subprocess.Popen[bytes]:
        """Start a nanny with workers of several roles: as several `remuda worker`, with torch imported once."""
        counts = ("--collectors", collectors, "--evaluators", evaluators, "--learners", learners)
        helpers = ("--inference", inference)
        own = ("--connection-file", self.workers_file, "--runs-dir", self.runs, *self._patience)
        return self.start("nanny", sys.executable, "-m", "remuda.deploy.nanny", *counts, *helpers, *own)

    def hidden(
        self,
        *,
        collectors: int = 0,
        evaluators: int = 0,
        learners: int = 0,
        reanalyzers: int = 0,
        hand_in_s: float = HAND_IN_S,
        same_host: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a nanny with a copy of the connection file in a folder of its own, which is its home and its working
        directory, too. The copy is one for another host, which names no runs folder, unless `same_host`."""
        self.elsewhere.mkdir(exist_ok=True)
        file = self.elsewhere / "given.json"
        found = connection_file.read(self.connection_file)
        connection_file.write(file, found if same_host else msgspec.structs.replace(found, runs_dir=""))
        counts = ("--collectors", collectors, "--evaluators", evaluators, "--learners", learners)
        more = ("--reanalyzers", reanalyzers, "--hand-in", hand_in_s, "--connection-file", file, *self._patience)
        command = (sys.executable, "-m", "remuda.deploy.nanny", *counts, *more)
        home = {"HOME": str(self.elsewhere), "TMPDIR": str(self.elsewhere)}
        return self.start("hidden", *command, env=home, cwd=self.elsewhere)

    def stream_server(self) -> psutil.Process | None:
        """The stream server, if it runs."""
        for process in psutil.process_iter():
            if _told_of(process, "remuda.worker.stores.server.service") and _told_of(process, str(self.runs)):
                return process
        return None

    def worker(self, role: Role, count: int = 1) -> subprocess.Popen[bytes]:
        """Start `remuda worker`."""
        own = ("--connection-file", self.workers_file, "--runs-dir", self.runs, *self._patience)
        return self.start(role, REMUDA, "worker", role, "--count", count, *own)

    def gather(self, *, inference: int = 0) -> subprocess.Popen[bytes]:
        """Start a coordinator and a nanny with the four workers that an experiment wants, and inference workers;
        returns the coordinator once all of them have joined."""
        coordinator = self.coordinator()
        self.workers(inference=inference)
        self.wait_members(4 + inference)
        return coordinator

    def start(
        self, name: str, *command: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process of this herd; what it says goes to `<number>-<name>.err`."""
        with (self.root / f"{len(self.started)}-{name}.err").open("wb") as err:
            process = Popen(
                [os.fspath(part) if isinstance(part, Path) else str(part) for part in command],
                cwd=cwd or self.root,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                env={**ENV, **self.env, "TMPDIR": str(self.root), "COLUMNS": "200", **(env or {})},
            )
        self.started.append(process)
        return process

    def said(self) -> str:
        """What all its processes have printed."""
        logs = sorted(self.root.glob("*.err"), key=lambda path: int(path.name.split("-")[0]))
        return "\n".join(f"--- {path.name} ---\n{path.read_text(errors='replace')}" for path in logs)

    def family(self) -> list[psutil.Process]:
        """Every process of it that lives."""
        places = (str(self.runs), str(self.workers_file), str(self.elsewhere))
        return [process for process in psutil.process_iter() if any(_told_of(process, place) for place in places)]

    # --- what it is asked ---

    def client(self) -> Client:
        return Client(self.connection_file)

    def status(self) -> Status:
        with self.client() as client:
            return client.status()

    def experiment(self, name: str) -> ExperimentStatus:
        with self.client() as client:
            return client.experiment(name)

    def members(self, role: Role | None = None) -> list[WorkerStatus]:
        """The registered workers."""
        return [worker for worker in self.status().workers if role in (None, worker.role)]

    def worker_of(self, role: Role, name: str) -> WorkerStatus:
        """The first worker of a role that works for an experiment; waited for, as after a restart of the coordinator a
        worker may be there before it has its work again."""
        found: list[WorkerStatus] = []

        def works(client: Client) -> bool:
            experiment = client.experiment(name).id
            workers = client.status().workers
            found.extend(each for each in workers if (each.role, each.experiment) == (role, experiment))
            return bool(found)

        self.wait_until(works, f"a {role} works for {name}\n{self.said()}")
        return found[0]

    def submit(
        self,
        config: UserFolder | Path,
        name: str = "horse",
        priority: int = 0,
        *overrides: str,
        resume: bool = False,
        by: Path | None = None,
    ) -> Path:
        """Hand a config, or a user's, in under this name, changed by `--set` overrides; returns the run folder.
        `by`: the connection file of somebody who was invited."""
        path = config if isinstance(config, Path) else config.config
        loaded = with_agents(load_config(path, overrides=[f"name={name}", *overrides]).config)
        on_exists: Literal["resume", "error"] = "resume" if resume else "error"
        with Client(by or self.connection_file) as client:
            return Path(client.submit(loaded, run_dir=name, priority=priority, on_exists=on_exists).run_dir)

    def wait_members(self, count: int) -> None:
        self.wait_until(
            lambda client: len(client.status().workers) >= count, f"{count} workers are there\n{self.said()}"
        )

    def wait_env_step(self, name: str, env_step: int) -> None:
        what = f"{name} is at {env_step}\n{self.said()}"
        self.wait_until(lambda client: client.experiment(name).env_step >= env_step, what)

    def wait_until(self, condition: Callable[[Client], object], what: str) -> None:
        """Ask again and again, in one conversation: to begin one costs either side ten times as much as a request."""
        with self.client() as client:
            until(lambda: condition(client), what)

    def kill_worker(self, role: Role, name: str) -> WorkerStatus:
        """Kill the first worker of a role that works for an experiment; returns it once its next incarnation works for
        one."""
        killed = self.worker_of(role, name)
        kill(killed.pid)

        def works(client: Client) -> bool:
            found = [worker for worker in client.status().workers if worker.uuid == killed.uuid]
            return bool(found) and found[0].incarnation > killed.incarnation and found[0].state == "busy"

        self.wait_until(works, f"the {role} works again\n{self.said()}")
        return killed

    def kill_coordinator(self, coordinator: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Kill it and start the next; returns that one once all workers that were there are there again."""
        count = len(self.members())
        coordinator.kill()
        coordinator.wait()
        following = self.coordinator()
        self.wait_members(count)
        return following

    def wait_over(self, name: str, state: str = "finished") -> ExperimentStatus:
        """Wait until an experiment is over; it must have ended so."""
        self.wait_until(lambda client: client.experiment(name).state in OVER, f"the end of {name}")
        status = self.experiment(name)
        assert status.state == state, f"{status.state}: {status.reason}\n{self.said()}"
        return status

    def stop(self, name: str = "horse") -> ExperimentStatus:
        """Stop a run; returns once it is over."""
        with self.client() as client:
            client.stop(name)
        return self.wait_over(name, "stopped")

    # --- the end ---

    def shut_down(self) -> None:
        """End it as a user would; all that live must go, with the exit code of success, and nothing may be left."""
        living = [process for process in self.started if process.poll() is None]
        with self.client() as client:
            client.shutdown()
        for process in living:
            assert process.wait(HANG_S) == 0, self.said()
        self.nothing_left()

    def incarnations(self, role: Role | None = None) -> list[Joined]:
        """Every incarnation of a worker that is in the logs of its coordinators."""
        logs = sorted(self.root.glob("*-coordinator.err"), key=lambda path: int(path.name.split("-")[0]))
        by_pid = {one.pid: one for log in logs for one in joined(log)}
        return [one for one in by_pid.values() if role in (None, one.role)]

    def nothing_left(self) -> None:
        """No process, and no file that only living ones need."""
        until(lambda: not self.family(), "every process is gone")
        left = [path for pattern in LEFTOVERS for path in self.root.rglob(pattern)]
        assert left == [], left

    def kill_all(self) -> None:
        """SIGKILL for everybody who lives; returns once they are dead."""
        signal_all(self.family(), signal.SIGKILL)
        for started in self.started:
            started.wait()
        until(lambda: not self.family(), "everybody is dead")

    def end(self) -> None:
        """Whatever a test has left running."""
        signal_all(self.family(), signal.SIGKILL)
        for started in self.started:
            started.kill()
            started.wait()

    @property
    def _patience(self) -> tuple[object, ...]:
        given = self.coordinator_timeout_s
        return () if given is None else ("--coordinator-timeout", given)

    def _answers(self, pid: int) -> bool:
        try:
            return bool(json.loads(self.connection_file.read_text())["pid"] == pid)
        except (OSError, ValueError):
            return False


def customized(place: Path, code: str) -> dict[str, str]:
    """Write a sitecustomize.py; returns the environment of processes that run the code at their start."""
    place.mkdir()
    (place / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))}


def commander(run: Path, start: str = "") -> list[str]:
    """What the commander's log says."""
    return texts(run / "log" / "commander" / "commander_logger.txt", start)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that must be there."""
    os.kill(pid, number)


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to all who are still there: some may end because of others, before it is their turn."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


@dataclass(frozen=True)
class Journal:
    """A run's journal, read while no coordinator has it."""

    snapshot: RunSnapshot
    chunks: Sequence[IndexedChunk]

    @classmethod
    def of(cls, run: Path, policy: str = "") -> Journal:
        with contextlib.closing(RunJournal(run / "journal.sqlite", policy=policy)) as journal:
            found = journal.read()
        assert found is not None
        return cls(found.snapshot, found.chunks)


def assert_exact(
    herd: Herd,
    run: Path,
    user: UserFolder | None,
    *,
    lost_at_most: int = 0,
    all_kept: bool = True,
    alone: bool = True,
    policies: Sequence[str] = ("",),
) -> int:
    """As assert_exact_run, and no step was lost or counted twice; returns env_step.

    `user`: whose environments counted their steps; None where they do not. `lost_at_most`: environment steps that
    killed collectors may have taken without announcing them. `policies`: the names of several, which have all counted
    the same chunks. For `all_kept` and `alone` see assert_exact_run. Once the herd is shut down."""
    (env_step,) = {assert_exact_run(run, all_kept=all_kept, alone=alone, policy=policy) for policy in policies}
    first, *others = [Journal.of(run, policy).snapshot.experiment.replay.ledger.counted for policy in policies]
    assert all(other == first for other in others), "a chunk counts for all policies or for none"
    if user is not None:
        taken = sum(user.steps(one.pid) for one in herd.incarnations("collector"))
        assert env_step <= taken <= env_step + lost_at_most, f"{env_step} counted, {taken} taken"
    return env_step


def assert_exact_run(run: Path, *, all_kept: bool = True, alone: bool = True, policy: str = "") -> int:
    """Counters of the run, or of one of its policies, are the unique accepted chunks, and nothing else lies in data/;
    returns env_step.

    `all_kept`: no chunk of the run was evicted, so the headers of the payload files say what was collected in all.
    `alone`: its collectors had no other run before, whose chunks they numbered. Once no coordinator has the run."""
    data = run / "data" / policy
    env_step = index(run, policy)["checkpoints"][-1]["env_step"]
    journal = Journal.of(run, policy)
    ledger = journal.snapshot.experiment.replay.ledger
    assert ledger.env_steps == env_step
    incarnations = _numbers_of_incarnations(ledger)
    listed_chunks = sum(len(one) for one in incarnations)
    if ledger.has_forgotten:  # the leases of before it was resumed
        assert listed_chunks <= ledger.chunks
    else:
        assert listed_chunks == ledger.chunks
    for one in incarnations:
        assert len(one) == len(set(one)), "chunks are counted under two leases"
        assert not alone or sorted(one) == [*range(len(one))], "chunks between others are missing"
    files = {path.name for path in data.iterdir()}
    listed = [chunk.meta.file for chunk in journal.chunks]
    assert len(listed) == len(set(listed))
    assert files == set(listed), "data/ holds what the journal lists"
    if all_kept:
        metas = [read_meta(data / file) for file in files]
        assert len({meta.chunk for meta in metas}) == len(metas) == ledger.chunks
        assert sum(meta.env_steps for meta in metas) == env_step
    return env_step


def _numbers_of_incarnations(ledger: LedgerSnapshot) -> list[list[int]]:
    """Of the chunks that were counted, whatever lease they came under: a late one comes under a lease that is over."""
    incarnations: dict[tuple[str, int], list[int]] = {}
    for lease in ledger.counted:
        gaps = {number for gap in lease.gaps for number in range(*gap)}
        numbers = [number for number in range(lease.high_water + 1) if number not in gaps]
        incarnations.setdefault((lease.worker, lease.incarnation), []).extend(numbers)
    return list(incarnations.values())


def _told_of(process: psutil.Process, place: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(place in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False
