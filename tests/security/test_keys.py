"""Keys of real processes: who gets in, who is told what, and that no secret is told to anybody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace
from zmq.utils import z85

from remuda.tests.cli.terminal import Ended, Terminal
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import ENDLESS, Herd, assert_exact
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.program import REMUDA
from remuda.wire import connection_file
from remuda.wire.keys.folder import KEY_FILE
from remuda.wire.keys.secret_file import read_secret

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Elsewhere:
    """A user who has a copy of the connection file, and cannot see the coordinator's keys."""

    herd: Herd
    terminal: Terminal
    file: Path
    key: Path

    def remuda(self, *arguments: object) -> Ended:
        return self.terminal.remuda(*arguments, "--connection-file", self.file)

    def keys(self, *arguments: object) -> Ended:
        """What the operator types."""
        ended = self.terminal.remuda("keys", *arguments, "--runs-dir", self.herd.runs)
        assert ended.code == 0, ended.err
        return ended

    @property
    def public(self) -> str:
        return read_secret(self.key).public


@pytest.fixture
def alice(
    herds: Herds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Elsewhere:
    """Alice has made a key; a coordinator runs."""
    herd = herds()
    herd.coordinator()
    user = Elsewhere(herd, Terminal(monkeypatch, capsys), tmp_path / "alice" / "copy.json", tmp_path / "alice.key")
    user.file.parent.mkdir()
    found = connection_file.read(herd.connection_file)
    connection_file.write(user.file, replace(found, keys_dir=str(tmp_path / "nowhere")))
    assert user.terminal.remuda("keys", "new", "alice", "--file", user.key).code == 0
    monkeypatch.setenv(KEY_FILE, str(user.key))
    return user


def test_a_user_is_let_in_by_the_operator_with_one_right_and_out_again(alice: Elsewhere) -> None:
    """At each step she is told what to do, with exit code 3."""
    asked = f"`remuda keys add alice {alice.public} --right viewer`"
    refused = alice.remuda("status")
    assert refused.code == 3
    assert asked in refused.err
    alice.keys("add", "alice", alice.public, "--right", "viewer")
    assert alice.remuda("status", "--json").code == 0
    for verb in (("shutdown",), ("stop", "x")):
        forbidden = alice.remuda(*verb)
        assert forbidden.code == 3
        assert "the key alice has the right viewer, which does not allow" in forbidden.err
    alice.keys("revoke", "alice")

    def is_out() -> bool:
        ended = alice.remuda("status")
        assert ended.code in (0, 3)
        return ended.code == 3 and asked in ended.err

    until(is_out, "her key counts no more")
    refusals = json.loads(alice.terminal.remuda("status", "--json", "--runs-dir", alice.herd.runs).out)["coordinator"][
        "refusals"
    ]
    assert refusals["forbidden"] == 2
    assert refusals["unknown_key"] >= 2
    assert "refused " in alice.herd.said()
    a_worker_that_is_not_known_ends_and_says_what_to_do(alice)
    a_rotated_key_of_the_coordinator_counts_from_its_next_start(alice.herd, alice.terminal)
    alice.herd.shut_down()
    no_coordinator_starts_with_keys_that_others_can_read(alice)


def a_worker_that_is_not_known_ends_and_says_what_to_do(alice: Elsewhere) -> None:
    process = alice.herd.start(
        "stranger", REMUDA, "worker", "collector", "--connection-file", alice.file, env={KEY_FILE: str(alice.key)}
    )
    assert process.wait(HANG_S) == 3
    assert f"remuda keys add alice {alice.public} --right worker" in alice.herd.said()
    assert alice.herd.members() == []


def no_coordinator_starts_with_keys_that_others_can_read(alice: Elsewhere) -> None:
    secret = alice.herd.runs / ".keys" / "coordinator"
    for path, mode, private in ((secret, 0o644, 0o600), (secret.parent, 0o755, 0o700)):
        path.chmod(mode)
        ended = alice.terminal.remuda("coordinator", "--runs-dir", alice.herd.runs)
        assert ended.code == 2
        assert f"{path} has mode {mode:04o}, so other users can open it: run `chmod {private:o}" in ended.err
        path.chmod(private)


def a_rotated_key_of_the_coordinator_counts_from_its_next_start(herd: Herd, terminal: Terminal) -> None:
    """Until then the commands of its user go on."""
    former = connection_file.read(herd.connection_file).server_key
    rotated = terminal.remuda("keys", "rotate", "coordinator", "--runs-dir", herd.runs)
    assert rotated.code == 0
    assert terminal.remuda("status", "--runs-dir", herd.runs).code == 0
    herd.shut_down()
    herd.coordinator()
    assert connection_file.read(herd.connection_file).server_key == rotated.out.strip() != former
    assert terminal.remuda("status", "--runs-dir", herd.runs).code == 0


def forms(secret: bytes) -> Iterable[bytes]:
    """How a secret key might be written somewhere."""
    return (secret, secret.hex().encode(), secret.hex().upper().encode(), z85.encode(secret), repr(secret).encode())


def told_to(processes: Iterable[psutil.Process]) -> bytes:
    """The arguments and the environment of these processes, as the system shows them."""
    told = b""
    for process in processes:
        for part in ("cmdline", "environ"):
            with open(f"/proc/{process.pid}/{part}", "rb") as file:
                told += file.read()
    return told


def test_a_rotated_key_costs_nothing_and_no_secret_is_told_to_anybody(
    tmp_path: Path, herds: Herds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user = UserFolder.make(tmp_path / "user", ENDLESS)
    herd = herds()
    herd.gather()
    folder = herd.runs / ".keys"
    secrets = [read_secret(folder / name).secret for name in ("coordinator", "operator", "worker")]
    run = herd.submit(user)
    herd.wait_env_step("horse", 300)
    family = herd.family()
    assert len(family) >= 6, "the coordinator, the nanny and its workers"
    told = told_to(family)
    assert Terminal(monkeypatch, capsys).remuda("keys", "rotate", "worker", "--runs-dir", herd.runs).code == 0
    secrets.append(read_secret(folder / "worker").secret)
    before = herd.experiment("horse").env_step
    herd.wait_env_step("horse", before + 200)
    herd.stop()
    assert len(herd.members()) == 4, "with the workers that it had"
    status = json.dumps([worker.uuid for worker in herd.members()])
    herd.shut_down()
    assert_exact(herd, run, user)
    told += status.encode() + herd.said().encode()
    for path in [*run.rglob("*"), *herd.runs.glob("*"), *herd.root.glob("*")]:
        if path.is_file():
            told += path.read_bytes()
    for secret in secrets:
        assert not [form for form in forms(secret) if form in told]
    assert re.search(r"[0-9a-f]{64}", folder.joinpath("operator").read_text()), "where secrets are, they are found"
