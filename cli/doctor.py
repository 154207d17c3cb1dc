"""`remuda doctor`: checks packages, cores, memory and GPUs, and the file system of the runs folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from remuda.cli.errors import RunFailedError
from remuda.cli.options import DEFAULT_RUNS_DIR, AsJson, RunsDir

EXAMPLE = "remuda doctor --runs-dir /shared/runs"
NEEDED = ("gymnasium", "msgspec", "numpy", "pydantic", "pyzmq", "torch")
EXTRAS = {"ale-py": "atari", "matplotlib": "plot", "imageio-ffmpeg": "video", "mujoco": "mujoco", "box2d": "box2d"}
"""Packages for some environments or commands, with the extra that installs the package."""
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "fuse", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p")
LEAST_FREE_BYTES = 1 << 30
LEAST_OPEN_FILES = 1_024

Verdict = Literal["ok", "note", "wrong"]


@dataclass(frozen=True)
class Finding:
    """Result of a check."""

    what: str
    verdict: Verdict
    said: str


def doctor(runs_dir: RunsDir = DEFAULT_RUNS_DIR, as_json: AsJson = False) -> None:
    """Check whether Remuda works on this machine; exit code 1 if something will not work."""
    there = runs_dir.absolute()
    folder = next(path for path in (there, *there.parents) if path.exists())
    findings = [
        *_packages(),
        _replay(),
        _search(),
        _cores(),
        _memory(),
        _gpus(),
        _open_files(),
        *_file_system(folder),
        _attempt("locks", lambda: _locks(folder)),
        _attempt("journal", lambda: _journal(folder)),
    ]
    if as_json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode([asdict(finding) for finding in findings]), indent=2).decode())
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            print(f"{finding.verdict:5}  {finding.what:{width}}  {finding.said}")
    wrong = [finding.what for finding in findings if finding.verdict == "wrong"]
    if wrong:
        raise RunFailedError(f"will not work: {', '.join(wrong)}")


def _packages() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    for package in ("remuda", *NEEDED):
        try:
            yield Finding(package, "ok", version(package))
        except PackageNotFoundError:
            yield Finding(package, "wrong", f"not installed: pip install {package}")
    for package, extra in EXTRAS.items():
        try:
            yield Finding(package, "ok", version(package))
        except PackageNotFoundError:
            yield Finding(package, "note", f"not installed; if you need it: pip install 'remuda[{extra}]'")


def _replay() -> Finding:
    from remuda.buffer.sum_tree import COMPILED

    if COMPILED:
        return Finding("replay", "ok", "sum tree and gathering are compiled")
    said = "in numpy, since there was no C compiler; with one, prioritized batches take half the time"
    return Finding("replay", "note", said)


def _search() -> Finding:
    from remuda.policy.algorithms.muzero.search.search import COMPILED

    if COMPILED:
        return Finding("search", "ok", "MuZero's search trees are compiled")
    return Finding("search", "note", "MuZero searches in numpy, since there was no C compiler; with one it is faster")


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = f"{usable} of {os.cpu_count()} may be used"
    quota = _cgroup_cores()
    if quota is not None and quota < usable:
        return Finding("cores", "note", f"{said}, and the cgroup limit is {quota:g}: start no more processes than that")
    return Finding("cores", "ok", said)


def _cgroup_cores() -> float | None:
    """Return the limit of the control group for processor time, in cores; None without a limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    return Finding("memory", "ok", f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free")


def _gpus() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("GPUs", "note", "torch finds none: keep learner.device at cpu")
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return Finding("GPUs", "ok", ", ".join(f"cuda:{number} {name}" for number, name in enumerate(names)))


def _open_files() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < LEAST_OPEN_FILES:
        return Finding("open files", "note", f"at most {soft}: a coordinator with many workers needs ulimit -n {hard}")
    return Finding("open files", "ok", f"at most {soft}")


def _file_system(folder: Path) -> Iterator[Finding]:
    import psutil

    mounts = [p for p in psutil.disk_partitions(all=True) if folder.is_relative_to(p.mountpoint)]
    mount = max(mounts, key=lambda p: len(p.mountpoint), default=None)
    kind = "unknown" if mount is None else mount.fstype
    free_bytes = psutil.disk_usage(os.fspath(folder)).free
    said = f"{folder} is on {kind}, {free_bytes / 2**30:.1f} GiB free"
    enough = free_bytes >= LEAST_FREE_BYTES
    yield Finding("runs folder", "ok" if enough else "note", said if enough else f"{said}: that is not much")
    if mount is not None and any(kind.startswith(name) for name in NETWORK_FILE_SYSTEMS):
        local_locks = "nolock" in mount.opts or "local_lock" in mount.opts
        yield Finding(
            "network",
            "note",
            "locks work only within a host here: a second coordinator on another host is noticed only by the time at "
            "which the first one last confirmed its lock"
            if local_locks
            else "a network file system: workers on other hosts can share it if they see the same path",
        )


def _locks(folder: Path) -> Finding:
    """Check that a lock on one open file excludes another open file."""
    from tempfile import TemporaryDirectory

    from remuda.storage.lock import FolderOwnedError, Ownership

    with TemporaryDirectory(dir=folder, prefix=".remuda-doctor-") as place:
        first = Ownership(Path(place) / "lock")
        try:
            Ownership(Path(place) / "lock").release()
        except FolderOwnedError:
            return Finding("locks", "ok", "exclusive")
        finally:
            first.release()
    return Finding("locks", "wrong", f"the file system of {folder} lets two processes hold one lock: use another one")


def _journal(folder: Path) -> Finding:
    """Check SQLite's write-ahead log in a folder, and measure the coordinator's commits per second."""
    import time
    from tempfile import TemporaryDirectory

    from remuda.training.journal_database import open_database

    turns = 200
    with TemporaryDirectory(dir=folder, prefix=".remuda-doctor-") as place:
        database = open_database(Path(place) / "journal.sqlite", "create table turn (body blob);")
        started_s = time.perf_counter()
        for _ in range(turns):
            database.execute("insert into turn values (?)", (bytes(4_096),))
        per_s = turns / (time.perf_counter() - started_s)
        database.close()
    return Finding("journal", "ok", f"can write {per_s:.0f} turns of the coordinator per second")


def _attempt(what: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:  # any error of the file system is the result of this check
        return Finding(what, "wrong", f"{type(error).__name__}: {error}")
