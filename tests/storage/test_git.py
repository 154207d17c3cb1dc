"""The run folder tells which source it ran, and a run never fails for want of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from remuda.storage import git
from remuda.storage.git import record_git

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
    subprocess.run(("git", *arguments), cwd=cwd, env=_ENVIRONMENT, check=True, capture_output=True, timeout=30)


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


def test_staged_changes_are_in_the_diff_too(repository: Path, run_dir: Path) -> None:
    (repository / "train.py").write_text("lr = 3\n")
    run_git(repository, "add", "train.py")
    assert record_git(run_dir, repository) is None
    assert "+lr = 3" in (run_dir / "git_diff.txt").read_text()


def test_a_clean_tree_has_an_empty_diff(repository: Path, run_dir: Path) -> None:
    assert record_git(run_dir, repository) is None
    assert (run_dir / "git_diff.txt").read_bytes() == b""


def test_outside_a_repository_nothing_is_written(tmp_path: Path, run_dir: Path) -> None:
    assert record_git(run_dir, tmp_path) is None
    assert list(run_dir.iterdir()) == []


def test_a_repository_without_commits_is_a_warning(tmp_path: Path, run_dir: Path) -> None:
    run_git(tmp_path, "init", "--quiet")
    warning = record_git(run_dir, tmp_path)
    assert warning is not None
    assert str(tmp_path) in warning
    assert list(run_dir.iterdir()) == []


def test_git_missing_is_a_warning(repository: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    warning = record_git(run_dir, repository)
    assert warning is not None
    assert "git" in warning
    assert list(run_dir.iterdir()) == []


def test_git_that_hangs_is_a_warning(
    repository: Path, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(git, "_DEADLINE_S", 0.05)
    warning = record_git(run_dir, repository)
    assert warning is not None
    assert "timed out" in warning
    assert list(run_dir.iterdir()) == []


def test_a_repository_cannot_make_us_run_its_programs(repository: Path, run_dir: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {canary}\n")
    program.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "diff.evil.textconv", "diff.evil.command", "core.pager"):
        run_git(repository, "config", key, str(program))
    (repository / ".gitattributes").write_text("*.py diff=evil\n")
    (repository / "train.py").write_text("lr = 4\n")
    canary.unlink(missing_ok=True)
    assert record_git(run_dir, repository) is None
    assert not canary.exists()
    assert "+lr = 4" in (run_dir / "git_diff.txt").read_text()
