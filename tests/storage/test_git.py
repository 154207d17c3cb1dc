"""The run folder tells which source it ran, and a run never fails for want of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from remuda.storage import git
from remuda.storage.git import capture_git, record_git, write_git
from remuda.tests.patience import HANG_S
from remuda.wire.codec import Envelope, check
from remuda.wire.messages import MAX_DIFF_BYTES, Submit

_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", ""),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def run_git(cwd: Path, *arguments: str) -> None:
    subprocess.run(("git", *arguments), cwd=cwd, env=_ENVIRONMENT, check=True, capture_output=True, timeout=HANG_S)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    run_git(folder, "init", "--quiet")
    (folder / "train.py").write_text("lr = 1\n")
    run_git(folder, "add", "train.py")
    run_git(folder, "commit", "--quiet", "-m", "the first commit")
    return folder


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_commit_and_changes_are_recorded(repository: Path, run_dir: Path) -> None:
    (repository / "train.py").write_text("lr = 2\n")
    (repository / "sub").mkdir()
    assert record_git(run_dir, repository / "sub") is None
    log = (run_dir / "git_log.txt").read_text().split("\n")
    assert log[0].endswith("-dirty")
    assert log[1] == ""
    assert "the first commit" in "\n".join(log)
    diff = (run_dir / "git_diff.txt").read_text()
    assert "-lr = 1" in diff
    assert "+lr = 2" in diff
    assert len(list(run_dir.iterdir())) == 2


def test_outside_a_repository_nothing_is_written(tmp_path: Path, run_dir: Path) -> None:
    assert record_git(run_dir, tmp_path) is None
    assert list(run_dir.iterdir()) == []


def test_a_repository_without_commits_is_a_warning(tmp_path: Path, run_dir: Path) -> None:
    run_git(tmp_path, "init", "--quiet")
    warning = record_git(run_dir, tmp_path)
    assert warning is not None
    assert str(tmp_path) in warning
    assert list(run_dir.iterdir()) == []


def test_git_that_is_missing_or_hangs_is_a_warning(
    repository: Path, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    assert "git" in str(record_git(run_dir, repository)), "missing"
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{_ENVIRONMENT['PATH']}")
    monkeypatch.setattr(git, "_DEADLINE_S", 0.05)
    warning = record_git(run_dir, repository)
    assert warning is not None
    assert "took longer than" in warning
    assert list(run_dir.iterdir()) == []


def _evil(tmp_path: Path) -> Callable[[str], str]:
    """Programs that leave a mark when they are run; for gpg a commit seems signed by one of them."""
    (tmp_path / "ran").mkdir()

    def named(name: str) -> str:
        program = tmp_path / f"evil-{name}"
        program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran' / name}\ncat 2> /dev/null\n")
        program.chmod(0o755)
        return str(program)

    return named


def _set(repository: Path, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        run_git(repository, "config", key, value)


def _sign_last_commit(repository: Path) -> None:
    """A signature that is none: git shows it to gpg all the same."""
    commit = ("git", "cat-file", "commit", "HEAD")
    read = subprocess.run(commit, cwd=repository, env=_ENVIRONMENT, check=True, capture_output=True, timeout=HANG_S)
    head, message = read.stdout.split(b"\n\n", 1)
    signed = head + b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n -----END PGP SIGNATURE-----\n\n" + message
    store = ("git", "hash-object", "-t", "commit", "-w", "--stdin")
    name = subprocess.run(
        store, cwd=repository, env=_ENVIRONMENT, check=True, capture_output=True, timeout=HANG_S, input=signed
    )
    run_git(repository, "update-ref", "HEAD", name.stdout.decode().strip())


def test_a_repository_cannot_make_us_run_its_programs(repository: Path, run_dir: Path, tmp_path: Path) -> None:
    evil = _evil(tmp_path)
    run_git(repository, "init", "--quiet", "sub")
    (repository / "sub" / "x.py").write_text("x = 1\n")
    run_git(repository / "sub", "add", "x.py")
    run_git(repository / "sub", "commit", "--quiet", "-m", "sub")
    (repository / ".gitattributes").write_text("*.py diff=evil filter=ev.il\n*.txt filter=long\n")
    (repository / "notes.txt").write_text("a\n")
    run_git(repository, "add", ".")
    run_git(repository, "commit", "--quiet", "-m", "the second commit")
    _sign_last_commit(repository)
    (repository / "sub" / "x.py").write_text("x = 2\n")
    (repository / "train.py").write_text("lr = 4\n")
    (repository / "notes.txt").write_text("b\n")
    _set(repository / "sub", {"core.fsmonitor": evil("fsmonitor-of-submodule")})
    for key in ("core.fsmonitor", "diff.external", "diff.evil.textconv", "diff.evil.command", "core.pager"):
        _set(repository, {key: evil(key)})
    _set(repository, {"log.showSignature": "true", "gpg.program": evil("gpg"), "format.pretty": "%G? %s"})
    _set(repository, {"filter.ev.il.clean": evil("filter"), "filter.ev.il.required": "true"})
    _set(repository, {"filter.long.process": evil("filter-process"), "diff.submodule": "diff"})
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.symlink_to(evil("hook"))

    assert record_git(run_dir, repository) is None

    assert sorted(mark.name for mark in (tmp_path / "ran").iterdir()) == []
    assert "+lr = 4" in (run_dir / "git_diff.txt").read_text()
    assert "the second commit" in (run_dir / "git_log.txt").read_text()


def test_a_filter_that_cannot_be_blanked_means_no_question(repository: Path, run_dir: Path, tmp_path: Path) -> None:
    evil = _evil(tmp_path)
    (repository / ".gitattributes").write_text("*.py filter=a=b\n")
    (repository / "train.py").write_text("lr = 4\n")
    with open(repository / ".git" / "config", "a") as config:
        config.write(f'[filter "a=b"]\n\tclean = {evil("filter")}\n')
    warning = record_git(run_dir, repository)
    assert warning is not None
    assert '"="' in warning
    assert list((tmp_path / "ran").iterdir()) == list(run_dir.iterdir()) == []


def test_a_missing_object_is_not_fetched(repository: Path, run_dir: Path, tmp_path: Path) -> None:
    evil = _evil(tmp_path)
    run_git(repository, "commit", "--quiet", "--allow-empty", "-m", "the second commit")
    blob = subprocess.run(
        ("git", "rev-parse", "HEAD:train.py"),
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    ).stdout.strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (repository / "train.py").write_text("lr = 4\n")
    _set(repository, {"core.repositoryformatversion": "1", "extensions.partialClone": "origin"})
    _set(repository, {"remote.origin.promisor": "true", "remote.origin.url": str(tmp_path)})
    _set(repository, {"remote.origin.uploadpack": evil("uploadpack")})
    assert record_git(run_dir, repository) is not None
    assert list((tmp_path / "ran").iterdir()) == []


def test_a_change_that_is_long_is_cut(repository: Path, run_dir: Path) -> None:
    (repository / "train.py").write_text(("x" * 79 + "\n") * 10_000)
    state = capture_git(repository)
    assert state is not None
    check(Envelope(id=1, reply_to=0, floor=0, message=Submit("a", "{}", "a", git=state)))
    assert write_git(run_dir, state) is None
    diff = (run_dir / "git_diff.txt").read_bytes()
    assert len(diff) == MAX_DIFF_BYTES
    assert diff.endswith(b"cut here: longer than what is recorded\n")
