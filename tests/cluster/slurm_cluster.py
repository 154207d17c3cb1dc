"""A real Slurm on this machine: munged, slurmctld, and a slurmd for each of its nodes, in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import psutil

from remuda.tests.patience import HANG_S, until
from remuda.tests.ports import free_ports

NODES = ("n1", "n2", "n3")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
CORES = 16
"""That each node says to have: jobs of a test wait for each other only where that is tested."""
BLIND_NODE = "n4"
"""A node on which the folder `unseen` is another, empty one."""
KILL_WAIT_S = 10
"""From SIGTERM to SIGKILL."""
_APART = ("unshare", "--mount", "--propagation", "private")
_SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_CONF = """
ClusterName=remuda
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=0,preempt_send_user_signal
ReturnToService=2
KillWait={kill_wait}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""
_NODE = "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=8000"
_PARTITIONS = """
PartitionName=main Nodes=n1,n2,n3 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=15
PartitionName=urgent Nodes=n1,n2,n3 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=blind Nodes=n4 MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=15
"""


def missing_programs() -> list[str]:
    """What has to be installed first."""
    return [program for program in PROGRAMS if shutil.which(program, path=_SEARCHED) is None]


@dataclass(frozen=True)
class SlurmCluster:
    """A cluster that runs; `environment` has what its commands need."""

    folder: Path
    environment: dict[str, str]

    @property
    def unseen(self) -> Path:
        """A folder that all nodes see but those of the partition `blind`."""
        return self.folder / "unseen"

    @property
    def has_blind_node(self) -> bool:
        """Whether there is such a node: it needs a mount namespace, which root can make."""
        return (self.folder / f"slurmd.{BLIND_NODE}.pid").exists()

    def says(self, *command: str) -> str:
        """What a command of Slurm prints; the test fails if the command does."""
        ended = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, f"{command}: {ended.stderr}"
        return ended.stdout.strip()

    def jobs(self, name: str, *states: str) -> list[str]:
        """The ids of jobs whose name ends so, in these states (all that are not over without)."""
        wanted = f"--states={','.join(states)}" if states else "--states=PENDING,RUNNING"
        lines = self.says("squeue", "--array", "--noheader", wanted, "--format=%i|%j").splitlines()
        return [id for id, _, job in (line.partition("|") for line in lines) if job.strip().endswith(name)]

    def describe(self) -> str:
        """For a test that fails: all jobs, and the last lines of the controller's log."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            return self.says("squeue", "--array", "--states=all") + "\n" + _tail(self.folder / "slurmctld.log")
        return _tail(self.folder / "slurmctld.log")


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Generator[SlurmCluster]:
    """Start a cluster in this folder, whose path must be short (sockets), and end all of it afterwards."""
    folder.mkdir(parents=True)
    (folder / "state").mkdir()
    (folder / "unseen").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    conf = folder / "slurm.conf"
    conf.write_text(_configuration(folder))
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": _SEARCHED}
    cluster = SlurmCluster(folder, environment)
    try:
        _start(cluster)
        until(lambda: _idle_nodes(cluster) == len(NODES), "all nodes of Slurm")
        yield cluster
    finally:
        _end(cluster)


def _configuration(folder: Path) -> str:
    host, user = socket.gethostname().partition(".")[0], pwd.getpwuid(os.geteuid()).pw_name
    names = (*NODES, BLIND_NODE)
    ports = free_ports(1 + len(names))
    general = _CONF.format(host=host, port=ports[0], user=user, folder=folder, kill_wait=KILL_WAIT_S)
    nodes = [
        _NODE.format(node=node, host=host, port=port, cores=CORES) for node, port in zip(names, ports[1:], strict=True)
    ]
    return general + "\n".join(nodes) + _PARTITIONS


def _start(cluster: SlurmCluster) -> None:
    folder = cluster.folder
    places = {"socket": "munge.socket", "key-file": "munge.key", "log-file": "munged.log", "pid-file": "munged.pid"}
    places["seed-file"] = "munged.seed"
    options = [f"--{option}={folder / name}" for option, name in places.items()]
    _daemon(cluster, "munged", *options, "--num-threads=2")
    _daemon(cluster, "slurmctld")
    for node in NODES:
        _daemon(cluster, "slurmd", "-N", node)
    if _can_hide():
        blind = f"mount -t tmpfs tmpfs {cluster.unseen} && exec slurmd -N {BLIND_NODE}"
        _daemon(cluster, *_APART, "sh", "-c", blind)


def _can_hide() -> bool:
    """Whether a process may have mounts of its own here."""
    tried = subprocess.run([*_APART, "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False)
    return tried.returncode == 0


def _daemon(cluster: SlurmCluster, *command: str) -> None:
    """Start a program that puts itself into the background. Its output goes to a file: a pipe would stay open."""
    said = cluster.folder / f"{command[0]}.out"
    with said.open("ab") as output:
        ended = subprocess.run(
            command, env=cluster.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            timeout=HANG_S, check=False, cwd=cluster.folder,
        )  # fmt: skip
    assert ended.returncode == 0, f"{command} failed: {said.read_text()}"


def _idle_nodes(cluster: SlurmCluster) -> int:
    listed = subprocess.run(
        ["sinfo", "--Node", "--noheader", "--partition=main", "--format=%T"],
        env=cluster.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return listed.stdout.split().count("idle")


def _end(cluster: SlurmCluster) -> None:
    """End the jobs first, then the daemons, by force what does not end. Only processes that belong to this folder."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            ["scancel", "--state=PENDING", "--user", pwd.getpwuid(os.geteuid()).pw_name],
            env=cluster.environment, timeout=30, check=False,
        )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGKILL):
        found = _daemons(cluster.folder) + _of_jobs(cluster.folder)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        psutil.wait_procs(found, timeout=15)


def _daemons(folder: Path) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for file in sorted(folder.glob("*.pid")):
        with contextlib.suppress(ValueError, psutil.NoSuchProcess):
            found.append(psutil.Process(int(file.read_text())))
    return found


def _of_jobs(folder: Path) -> list[psutil.Process]:
    """Processes that jobs of this cluster have left, and the steps that hold them."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            environment = process.environ()
            of_job = "SLURM_JOB_ID" in environment or process.name() == "slurmstepd"
            if of_job and environment.get("SLURM_CONF") == f"{folder}/slurm.conf":
                found.append(process)
    return found


def _tail(file: Path, lines: int = 30) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
    return ""
