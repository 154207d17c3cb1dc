"""The list of those who are let in: strict about its lines, and read again when it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.wire.keys.authorized import AuthorizedKeys, Grants, Identity, parse, read, text_of
from remuda.wire.keys.pair import new_pair
from remuda.wire.keys.secret_file import KeyFileError
from remuda.wire.messages import Grant

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
ALICE, BOB = Identity("alice", "viewer"), Identity("bob", "worker")
GRANT = Grant("/runs/x", "collector", "aaaaaaaa-0000-4000-8000-000000000001", 1, "policy_x")
OTHERS: dict[str, Any] = {
    "run_dir": "/runs/y",
    "role": "evaluator",
    "worker": "bbbbbbbb-0000-4000-8000-000000000001",
    "incarnation": 2,
    "policy_file": "policy_y",
    "seal": "",
}


def put(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    path.chmod(0o600)
    return path


def test_text_and_back() -> None:
    known = {A: ALICE, B: BOB}
    assert parse(text_of(known), "list") == known
    assert parse(f"# a comment\n\n  {A}\t viewer   alice  \n", "list") == {A: ALICE}
    assert parse("", "list") == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (A, "1 parts"),
        (f"{A[:-1]} viewer alice", "64 hexadecimal digits"),
        (f"{A} root alice", "no right: choose one of viewer, operator, worker"),
        (f"{A} viewer ../alice", "a name has letters"),
        (f"{A} worker carol\n{A} viewer alice", "stands there twice"),
        (f"{B} worker alice\n{A} viewer alice", "stands there twice"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(line: str, reason: str) -> None:
    with pytest.raises(KeyFileError, match=rf"list:{2 + line.count(chr(10))}: .*{reason}"):
        parse(f"# one\n{line}\n", "list")


def test_a_list_that_others_can_change_or_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "authorized", text_of({A: ALICE}))
    path.chmod(0o620)
    with pytest.raises(KeyFileError, match="mode 0620"):
        read(path)
    path.chmod(0o600)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(KeyFileError, match="not text"):
        read(path)
    path.unlink()
    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        read(path)


def test_a_change_is_noticed_and_tells_whose_keys_are_gone(tmp_path: Path) -> None:
    path = put(tmp_path / "authorized", text_of({A: ALICE, B: BOB}))
    authorized = AuthorizedKeys(path)
    authorized.look()
    assert authorized.look() == frozenset()
    put(path, text_of({A: Identity("alice", "operator"), C: BOB}))
    assert authorized.look() == {"alice", "bob"}, "another right, and another key"
    assert (authorized.who(A), authorized.who(B), authorized.who(C)) == (Identity("alice", "operator"), None, BOB)
    put(path, text_of({}))
    assert authorized.look() == {"alice", "bob"}
    assert authorized.who(A) is None


def test_a_key_that_was_just_added_is_known_at_its_first_knock(tmp_path: Path) -> None:
    path = put(tmp_path / "authorized", text_of({A: ALICE}))
    authorized = AuthorizedKeys(path)
    authorized.look()
    assert authorized.ask(B) is None
    put(path, text_of({A: ALICE, B: BOB}))
    assert authorized.who(B) is None
    assert authorized.ask(B) == BOB
    assert authorized.who(B) == BOB
    assert authorized.look() == frozenset(), "nobody lost a key"


def test_a_list_that_is_broken_while_it_is_used_leaves_the_former_one(tmp_path: Path) -> None:
    path = put(tmp_path / "authorized", text_of({A: ALICE}))
    authorized = AuthorizedKeys(path)
    authorized.look()
    put(path, "nonsense\n")
    assert authorized.ask(B) is None
    with pytest.raises(KeyFileError, match="1 parts"):
        authorized.look()
    assert authorized.look() == frozenset(), "one line for each change"
    assert authorized.who(A) == ALICE


def test_a_sealed_grant_is_genuine_also_after_a_restart() -> None:
    server = new_pair("coordinator")
    sealed = Grants(server).seal(GRANT)
    assert Grants(server).is_genuine(sealed)
    assert Grants(server).seal(sealed) == sealed


@pytest.mark.parametrize("field", Grant.__struct_fields__)
def test_a_change_of_any_field_breaks_the_seal(field: str) -> None:
    grants = Grants(new_pair("coordinator"))
    assert not grants.is_genuine(replace(grants.seal(GRANT), **{field: OTHERS[field]}))
