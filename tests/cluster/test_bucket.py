"""A run moves between two hosts that share nothing but a bucket, while the first host is cut off and alive."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from remuda.storage.bucket.address import read_mark
from remuda.tests.cluster.hosts import Hosts, can_make_hosts
from remuda.tests.faults.herd import assert_exact_run
from remuda.tests.parallel.s3 import RUNS, environment_of, run_in, s3_server, with_environment
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.program import REMUDA

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not can_make_hosts(), reason="needs root and iproute2, for network namespaces"),
]
PORT = 9000
ADDRESS = f"{RUNS}/horse"


def test_a_run_moves_between_two_hosts_by_a_bucket_alone(tmp_path: Path) -> None:
    """Host 1 has the bucket. The cable of host 2 is pulled, and host 3 continues the run, with a home of its own. When
    the cable is back, host 2 ships nothing more and its run ends; the run of host 3 is exact to the end."""
    user = UserFolder.make(tmp_path / "user", {"env": {"kwargs": {"pause_s": 0.003}}})
    with user.config.open("a") as file:
        file.write("storage: {ship_interval_s: 1}\n")
    with Hosts() as hosts:

        def command(number: int, *arguments: object) -> subprocess.Popen[str]:
            home = tmp_path / f"host{number}"
            home.mkdir()
            known = {**environment_of(hosts.address(1), PORT, home), "HOME": str(home), "TMPDIR": str(home)}
            full = with_environment([str(REMUDA), *map(str, arguments)], {**known, "REMUDA_PAGE": "0"})
            return subprocess.Popen(
                hosts.command(number, *full), cwd=user.root, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

        with s3_server(
            hosts.address(1), PORT, tmp_path / "server.log", rate=0.02, on_host=lambda *words: hosts.command(1, *words)
        ):
            first = command(2, "launch", user.config, "--set", "stop.max_env_steps=1000000", "--run-dir", ADDRESS)
            there = run_in(tmp_path / "host2", "horse")
            until(lambda: (mark := read_mark(there)) is not None and mark.number >= 4, "generations of the first host")
            hosts.cut(2)
            more = ("--set", "stop.max_env_steps=4000")
            second = command(3, "launch", user.config, *more, "--resume", "--run-dir", ADDRESS)
            _, said = second.communicate(timeout=HANG_S)
            assert second.returncode == 0, said
            assert "restored generation 1/" in said
            hosts.mend(2)
            _, said = first.communicate(timeout=HANG_S)
            assert first.returncode == 1, said
            assert "continued from the bucket by another process" in said
            here = run_in(tmp_path / "host3", "horse")
            env_step = assert_exact_run(here, alone=False)
            assert env_step >= 4_000
            fetch = command(1, "fetch", ADDRESS, tmp_path / "copy")
            fetch.communicate(timeout=HANG_S)
            assert fetch.returncode == 0
            assert assert_exact_run(tmp_path / "copy", alone=False) == env_step
