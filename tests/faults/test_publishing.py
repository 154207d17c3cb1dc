"""A run whose learner cannot publish for a while: the disk refuses, or a reader keeps the lock."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from remuda.learner.publisher import RETRY_S
from remuda.policy.files.policy_file import load, lock_path, read_ref
from remuda.tests.faults.herd import Herd, assert_exact, beside
from remuda.tests.faults.sizes import within
from remuda.tests.faults.test_processes import ENDLESS
from remuda.tests.parallel.reading import records
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import until
from remuda.wire.messages import PolicyRef

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a herd that publishes")]

LOCK_DEADLINE_S = 5.0
SICK = """
import os
from pathlib import Path

def sick(real, which, file_of):
    def replaced(*arguments, **named):
        path = Path(os.environ["SICK"])
        if "policy_" in file_of(*arguments) and path.exists():
            number, failing = path.read_text().split()
            if failing == which:
                raise OSError(int(number), os.strerror(int(number)))
        return real(*arguments, **named)
    return replaced

os.replace = sick(os.replace, "replace", lambda source, target: Path(target).name)
os.fsync = sick(os.fsync, "fsync", lambda descriptor: os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
"""
"""As sitecustomize of every process: while the file $SICK is there, it says how writing policies fails."""
FREEZES = """
import fcntl, os, signal, sys
with open(sys.argv[1], "rb") as file:
    fcntl.flock(file, fcntl.LOCK_SH)
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@dataclass
class Sickness:
    """What was seen while the disk refused."""

    before: PolicyRef
    still: PolicyRef
    whole: bool
    lasted_s: float
    complaints: list[str]
    after: PolicyRef


@dataclass
class Published:
    herd: Herd
    user: UserFolder
    run: Path
    sick: dict[str, Sickness] = field(default_factory=dict[str, Sickness])
    holder: int = 0
    waited_s: float = 0.0
    warnings: list[str] = field(default_factory=list[str])

    @property
    def file(self) -> Path:
        return next(path for path in (self.run / "policy").glob("policy_*") if path.suffix != ".lock")

    def ref(self) -> PolicyRef:
        found = read_ref(self.file)
        assert found is not None
        return found

    def said(self, part: str) -> list[str]:
        """Warnings in the learner's log."""
        log = self.run / "log" / "learner" / "learner_logger.txt"
        return [record.text for record in records(log) if record.level == "WARNING" and part in record.text]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    place = tmp_path_factory.mktemp("published")
    (place / "site").mkdir()
    (place / "site" / "sitecustomize.py").write_text(SICK)
    user = UserFolder.make(place / "user", ENDLESS)
    env = {"PYTHONPATH": beside(place / "site"), "SICK": str(place / "sick")}
    herd = Herd(place / "herd", env=env)
    try:
        herd.gather()
        seen = Published(herd, user, herd.submit(user))
        herd.wait_env_step("horse", 500)
        for number, failing in ((errno.EROFS, "replace"), (errno.EIO, "fsync"), (errno.ENOSPC, "fsync")):
            seen.sick[errno.errorcode[number]] = _sicken(seen, place / "sick", number, failing)
        _hold_the_lock(seen)
        with herd.client() as client:
            client.stop("horse")
        herd.wait_over("horse", "stopped")
        herd.shut_down()
        return seen
    finally:
        herd.end()


def _sicken(seen: Published, file: Path, number: int, failing: str) -> Sickness:
    complaints, begin_s = len(seen.said("cannot be written")), time.monotonic()
    (file.with_suffix(".new")).write_text(f"{number} {failing}")
    file.with_suffix(".new").rename(file)
    until(lambda: len(seen.said("cannot be written")) > complaints, "it complains")  # and writes no more
    before, begun = seen.ref(), seen.herd.experiment("horse").env_step

    def long_enough() -> bool:
        collected = seen.herd.experiment("horse").env_step - begun
        return collected > 100 and len(seen.said("cannot be written")) >= complaints + 3

    until(long_enough, "it has tried again, and collectors have gone on")
    loaded = load(seen.file)
    still, told = seen.ref(), seen.said("cannot be written")[complaints:]
    lasted_s = time.monotonic() - begin_s
    file.unlink()
    until(lambda: seen.ref() > still, "it publishes again")
    whole = loaded is not None and loaded.ref == still
    return Sickness(before, still, whole, lasted_s, told, seen.ref())


def _hold_the_lock(seen: Published) -> None:
    begin_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", FREEZES, str(lock_path(seen.file))], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "held\n"
        seen.holder = reader.pid
        before = seen.ref()
        until(lambda: seen.ref() > before, "it publishes all the same")
        seen.waited_s = time.monotonic() - begin_s
        until(lambda: seen.said("without its lock"), "it says so")
        seen.warnings = seen.said("without its lock")
        os.kill(reader.pid, signal.SIGKILL)
    before = seen.ref()
    until(lambda: seen.ref() > before, "it publishes as ever")


@pytest.mark.parametrize("error", ["EROFS", "EIO", "ENOSPC"])
def test_a_disk_that_refuses_policies_leaves_the_old_one_and_is_tried_again(published: Published, error: str) -> None:
    """22. Pauses grow, so few complaints; collectors go on with the policy there is, and so does the learner later."""
    sick = published.sick[error]
    assert sick.whole
    assert sick.still == sick.before
    assert sick.after > sick.still
    pauses_s = itertools.accumulate(itertools.chain(RETRY_S, itertools.repeat(RETRY_S[-1])))
    assert len(sick.complaints) <= 1 + sum(1 for _ in itertools.takewhile(lambda at_s: at_s < sick.lasted_s, pauses_s))
    assert all(os.strerror(getattr(errno, error)) in text and "trying again" in text for text in sick.complaints)


def test_a_frozen_reader_with_the_lock_is_waited_for_only_so_long(published: Published) -> None:
    """23. The lock's deadline; then it is published without, and the warning names the process."""
    print(f"23: published after {published.waited_s:.1f} s with a deadline of {LOCK_DEADLINE_S} s")
    assert published.waited_s >= LOCK_DEADLINE_S - 1
    assert within(published.waited_s, LOCK_DEADLINE_S + 1)
    assert all(f":{published.holder} " in text for text in published.warnings)


def test_its_counters_are_exact(published: Published) -> None:
    """Nothing was lost for it."""
    assert_exact(published.herd, published.run, published.user)
    assert not list((published.run / "policy").glob(".*"))
