"""The policy file is never partial, older than before, or of another run, whichever process dies at any time."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from remuda.policy.files import policy_file
from remuda.policy.files.policy_file import PolicyFileError, StaleEpoch, load, lock_path, publish, read_ref
from remuda.storage.lock import holding
from remuda.storage.untrusted import open_regular
from remuda.tests.policy.files.published import REF, STATE, never
from remuda.wire.messages import PolicyRef


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy_x_000001"


@pytest.fixture
def published(path: Path) -> Path:
    publish(path, STATE, REF, warn=never)
    return path


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# --- round trip
def test_what_is_published_is_what_is_loaded(published: Path) -> None:
    loaded = load(published)
    assert loaded is not None
    assert loaded.ref == read_ref(published) == REF
    assert loaded.state.keys() == STATE.keys()
    for name, array in STATE.items():
        assert loaded.state[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded.state[name], array)
    assert names(published.parent) == [published.name, f"{published.name}.lock"]


@pytest.mark.parametrize(
    ("known", "is_news"),
    [
        (PolicyRef(2, 4, 40), True),
        (PolicyRef(1, 99, 990), True),  # an older learner had published more
        (PolicyRef(2, 5, 50), False),
        (PolicyRef(2, 5, 0), False),
        (PolicyRef(3, 0, 0), False),
    ],
)
def test_only_what_is_newer_is_loaded(published: Path, known: PolicyRef, is_news: bool) -> None:
    assert (load(published, newer_than=known) is not None) is is_news


# --- fencing
@given(refs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_file_only_advances(tmp_path_factory: pytest.TempPathFactory, refs: list[tuple[int, int]]) -> None:
    path = tmp_path_factory.mktemp("order") / "policy"
    newest: tuple[int, int] | None = None
    for epoch, version in refs:
        try:
            publish(path, STATE, PolicyRef(epoch, version, 0), warn=never)
        except StaleEpoch:
            assert newest is not None
            assert (epoch, version) <= newest
        else:
            assert newest is None or (epoch, version) > newest
            newest = epoch, version
        there = read_ref(path)
        assert there is not None
        assert (there.epoch, there.version) == newest


def test_a_lock_that_is_never_released_costs_the_deadline_and_a_warning_that_names_its_holder(published: Path) -> None:
    warnings: list[str] = []
    with holding(lock_path(published), deadline_s=1.0):
        publish(published, STATE, PolicyRef(2, 6, 60), warn=warnings.append, lock_deadline_s=0.05)
        with pytest.raises(StaleEpoch):  # the fence holds without the lock
            publish(published, STATE, PolicyRef(1, 0, 0), warn=warnings.append, lock_deadline_s=0.05)
    assert read_ref(published) == PolicyRef(2, 6, 60)
    assert f":{os.getpid()}" in warnings[0]
    assert "without its lock" in warnings[0]


def test_reading_takes_no_lock(published: Path) -> None:
    with holding(lock_path(published), deadline_s=1.0):
        loaded = load(published, deadline_s=0.0)
    assert loaded is not None
    assert loaded.ref == REF


def test_a_file_system_without_locks_is_a_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock(path: Path, *, deadline_s: float) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(policy_file, "holding", no_lock)
    warnings: list[str] = []
    publish(path, STATE, REF, warn=warnings.append)
    assert read_ref(path) == REF
    assert "No locks available" in warnings[0]


# --- a failing disk (what must not be published, and files made to harm: tests/security/test_policy_files.py)
@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_disk_errors_keep_the_file(published: Path, monkeypatch: pytest.MonkeyPatch, failing: str, number: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            publish(published, STATE, PolicyRef(2, 6, 60), warn=never)
    assert read_ref(published) == REF
    assert names(published.parent) == [published.name, f"{published.name}.lock"]
    publish(published, STATE, PolicyRef(2, 6, 60), warn=never)  # space has returned
    assert read_ref(published) == PolicyRef(2, 6, 60)


# --- damage
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_bit_goes_unnoticed(published: Path, data: st.DataObject) -> None:
    content = bytearray(published.read_bytes())
    position = data.draw(st.integers(0, len(content) * 8 - 1))
    content[position // 8] ^= 1 << position % 8
    damaged = published.with_name("damaged")
    damaged.write_bytes(content)
    with pytest.raises(PolicyFileError, match="damaged"):
        load(damaged, deadline_s=0.0)


LARGE: dict[str, np.ndarray] = {"w": np.arange(20_000, dtype=np.float32), "v": np.zeros(2_048, np.float32)}
"""A tensor large enough to be condensed before the checksum, and a smaller one."""


@settings(deadline=None)
@given(data=st.data())
def test_no_overwritten_part_goes_unnoticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Up to 4 KiB of other bytes in one place, as from a bad sector or page."""
    path = tmp_path_factory.mktemp("large") / "policy"
    publish(path, LARGE, REF, warn=never)
    content = bytearray(path.read_bytes())
    body = 8 + int.from_bytes(content[:8], "little")
    start = data.draw(st.integers(body, len(content) - 1))
    junk = data.draw(st.binary(min_size=1, max_size=64)) * data.draw(st.integers(1, 64))
    junk = junk[: len(content) - start]
    assume(bytes(content[start : start + len(junk)]) != junk)
    content[start : start + len(junk)] = junk
    path.write_bytes(content)
    with pytest.raises(PolicyFileError, match="damaged"):
        load(path, deadline_s=0.0)


def test_every_truncation_is_noticed(published: Path) -> None:
    content = published.read_bytes()
    damaged = published.with_name("damaged")
    for length in range(len(content)):
        damaged.write_bytes(content[:length])
        with pytest.raises(PolicyFileError, match="damaged"):
            load(damaged, deadline_s=0.0)


def test_a_damaged_file_does_not_stop_the_next_publication(published: Path) -> None:
    published.write_bytes(published.read_bytes()[:20])
    warnings: list[str] = []
    publish(published, STATE, PolicyRef(2, 6, 60), warn=warnings.append)
    assert read_ref(published) == PolicyRef(2, 6, 60)
    assert "damaged" in warnings[0]


# --- waiting
def test_a_file_that_never_comes_is_an_error_after_the_deadline(path: Path) -> None:
    assert read_ref(path) is None
    with pytest.raises(PolicyFileError, match="No such file"):
        load(path, deadline_s=0.02)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE])
def test_a_file_replaced_meanwhile_is_reopened(published: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    failures = [OSError(number, "gone")] * 3

    def unlucky(path: Path) -> FileIO:
        if failures:
            raise failures.pop()
        return open_regular(path)

    monkeypatch.setattr(policy_file, "open_regular", unlucky)
    loaded = load(published, deadline_s=30.0)
    assert loaded is not None
    assert not failures
