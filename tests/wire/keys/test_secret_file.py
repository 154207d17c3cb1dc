"""The file of a secret key: private, whole, and never quoted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from remuda.wire.keys.pair import new_pair
from remuda.wire.keys.secret_file import KeyFileError, read_secret, write_secret

PAIR = new_pair("alice")


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_what_is_written_is_read_and_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_secret(tmp_path / "new", PAIR)
        write_secret(tmp_path / "again", PAIR)
        write_secret(tmp_path / "again", PAIR, replace=True)
    finally:
        os.umask(before)
    for path in (tmp_path / "new", tmp_path / "again"):
        assert read_secret(path) == PAIR
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_is_not_overwritten_by_mistake(tmp_path: Path) -> None:
    write_secret(tmp_path / "key", PAIR)
    with pytest.raises(FileExistsError):
        write_secret(tmp_path / "key", new_pair("bob"))
    assert read_secret(tmp_path / "key") == PAIR


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    write_secret(tmp_path / "key", PAIR)
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(KeyFileError, match="mode 0640"):
        read_secret(tmp_path / "key")


def content(**changed: object) -> bytes:
    return msgspec.json.encode({"name": "alice", "public": PAIR.public, "secret": PAIR.secret.hex()} | changed)


WRONG = {
    "empty": b"",
    "cut off": content()[:-3],
    "a line end in the secret": content(secret=PAIR.secret.hex() + "\n"),
    "another public key": content(public=new_pair("bob").public),
    "no hexadecimal number": content(secret=PAIR.secret.hex().upper() + "x"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)  # their text differs from process to process
def test_a_damaged_key_is_refused_and_the_secret_is_not_quoted(tmp_path: Path, wrong: bytes) -> None:
    with pytest.raises(KeyFileError) as caught:
        read_secret(put(tmp_path / "key", wrong))
    assert PAIR.secret.hex()[:16] not in str(caught.value).lower()
    assert caught.value.__cause__ is None, "nor in a traceback"


def test_a_missing_key_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read: No such file"):
        read_secret(tmp_path / "key")
