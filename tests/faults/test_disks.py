"""Disks that are full or refuse, a policy lock that is never released, and output that nobody takes."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.config.load import load_config
from remuda.learner.publisher import RETRY_S
from remuda.policy.files.policy_file import load, lock_path, read_ref
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import ENDLESS, Herd, assert_exact, customized
from remuda.tests.faults.sizes import LONG, within
from remuda.tests.parallel.reading import policy_file, records
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.popen import Popen
from remuda.tests.warm.program import REMUDA
from remuda.wire.messages import PolicyRef

pytestmark = pytest.mark.processes


@pytest.fixture
def tight(tmp_path: Path) -> Generator[Path]:
    """A file system of 24 MiB inside a runs folder; skips where nobody may mount one (test_bulkheads and
    test_run_threads in tests/coordinator/disk show the same without)."""
    place = tmp_path / "herd0" / "runs" / "tight"
    place.mkdir(parents=True)
    mount: list[str | Path] = ["mount", "-t", "tmpfs", "-o", "size=24m", "remuda-test", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    ballast.write(b"\0" * size)
            except OSError:
                continue


def test_a_run_on_a_full_disk_waits_for_room_and_holds_up_no_other(tmp_path: Path, tight: Path, herds: Herds) -> None:
    """22. Nothing that was acknowledged is lost, over a killed coordinator, too; the run goes on by itself."""
    herd = herds()
    users = {"sick": UserFolder.make(tmp_path / "sick", ENDLESS), "well": UserFolder.make(tmp_path / "well")}
    former = herd.coordinator()
    herd.workers(collectors=4, evaluators=2, learners=2)
    herd.wait_members(8)
    with herd.client() as client:
        config = load_config(users["sick"].config, overrides=["name=sick"]).config
        sick = Path(client.submit(config, run_dir="tight/sick").run_dir)
    herd.wait_env_step("sick", 500)
    fill(tight / "ballast")

    def is_held_up() -> bool:
        return "held up: its disk refuses" in (herd.experiment("sick").waiting_for or "")

    until(is_held_up, "the status says so")
    well = herd.submit(users["well"], "well")
    herd.wait_over("well")
    until(lambda: not (well / ".owner").exists(), "the files of the other run are closed")
    assert "is held up, and no other run is: its disk refuses" in herd.said()
    former.kill()
    former.wait()
    herd.coordinator()
    until(is_held_up, "the next one knows it")
    before = herd.experiment("sick").env_step
    (tight / "ballast").unlink()
    herd.wait_env_step("sick", before + 1_000)
    herd.stop("sick")
    herd.shut_down()
    assert "is lost" not in herd.said()
    lost = 100 * (len(herd.incarnations("collector")) - 4)
    assert_exact(herd, sick, users["sick"], alone=False, lost_at_most=lost)
    assert_exact(herd, well, users["well"], alone=False)


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
LOCK_DEADLINE_S = 5.0


class Publishing:
    """A run that publishes its policy."""

    def __init__(self, herd: Herd, run: Path) -> None:
        self.herd, self.run = herd, run

    @property
    def ref(self) -> PolicyRef:
        found = read_ref(policy_file(self.run))
        assert found is not None
        return found

    def warnings(self, part: str) -> list[str]:
        log = self.run / "log" / "learner" / "learner_logger.txt"
        return [record.text for record in records(log) if record.level == "WARNING" and part in record.text]

    def publishes(self) -> None:
        before = self.ref
        until(lambda: self.ref > before, "it publishes")

    def is_refused(self, file: Path, number: int, failing: str) -> None:
        """The old policy stays whole, and is tried again at growing pauses; collectors go on meanwhile."""
        complaints, begin_s = len(self.warnings("cannot be written")), time.monotonic()
        file.with_suffix(".new").write_text(f"{number} {failing}")
        file.with_suffix(".new").rename(file)
        until(lambda: len(self.warnings("cannot be written")) > complaints, "it complains")  # and writes no more
        before, begun = self.ref, self.herd.experiment("horse").env_step
        self.herd.wait_env_step("horse", begun + 100)
        until(lambda: len(self.warnings("cannot be written")) >= complaints + 3, "it has tried again")
        loaded, told = load(policy_file(self.run)), self.warnings("cannot be written")[complaints:]
        lasted_s = time.monotonic() - begin_s
        file.unlink()
        self.publishes()
        assert loaded is not None
        assert loaded.ref == before
        at_s = itertools.accumulate(itertools.chain(RETRY_S, itertools.repeat(RETRY_S[-1])))
        assert len(told) <= 1 + sum(1 for _ in itertools.takewhile(lambda at: at < lasted_s, at_s))
        assert all(os.strerror(number) in text and "trying again" in text for text in told)

    def waits_for_its_lock(self) -> None:
        """A frozen reader holds it: after the deadline it publishes without, and the warning names the process."""
        begin_s, lock = time.monotonic(), str(lock_path(policy_file(self.run)))
        with subprocess.Popen([sys.executable, "-S", "-c", FREEZES, lock], stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "held\n"
            self.publishes()
            waited_s = time.monotonic() - begin_s
            until(lambda: self.warnings("without its lock"), "it says so")
            told = self.warnings("without its lock")
            os.kill(reader.pid, signal.SIGKILL)
        self.publishes()
        print(f"23: published after {waited_s:.1f} s with a deadline of {LOCK_DEADLINE_S} s")
        assert waited_s >= LOCK_DEADLINE_S - 1
        assert within(waited_s, LOCK_DEADLINE_S + 1)
        assert all(f":{reader.pid} " in text for text in told)


def test_a_disk_that_refuses_policies_and_a_lock_that_stays_hold_up_nobody(tmp_path: Path, herds: Herds) -> None:
    """22, 23."""
    sick = tmp_path / "sick"
    user = UserFolder.make(tmp_path / "user", ENDLESS)
    herd = herds(env={**customized(tmp_path / "site", SICK), "SICK": str(sick)})
    herd.gather()
    seen = Publishing(herd, herd.submit(user))
    herd.wait_env_step("horse", 500)
    for number, failing in ((errno.EROFS, "replace"), (errno.EIO, "fsync"), (errno.ENOSPC, "fsync"))[
        : 3 if LONG else 1
    ]:
        seen.is_refused(sick, number, failing)
    seen.waits_for_its_lock()
    herd.stop()
    herd.shut_down()
    assert_exact(herd, seen.run, user)
    assert not list((seen.run / "policy").glob(".*"))


@pytest.mark.parametrize("output", ["a full disk", "a reader that is gone"])
def test_a_coordinator_whose_own_output_nobody_takes_serves_on(tmp_path: Path, herds: Herds, output: str) -> None:
    herd = herds()
    herd.runs.mkdir()
    if output == "a full disk":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, stderr = os.pipe()
        os.close(reading)
    command = [REMUDA, "coordinator", "--runs-dir", herd.runs, "--connection-file", herd.connection_file]
    process = Popen([*map(str, command)], stderr=stderr, stdin=subprocess.DEVNULL, env={**os.environ})
    os.close(stderr)
    herd.started.append(process)
    until(herd.connection_file.exists, "it listens")
    user = UserFolder.make(tmp_path / "user")
    for name in ("one", "two"):
        herd.submit(user, name)  # each says a line
    assert [each.state for each in herd.status().experiments] == ["queued", "queued"]
    with herd.client() as client:
        client.shutdown()
    assert process.wait(HANG_S) == 0
