"""The tree is the promised one, and no way of asking for a folder mixes two runs."""

from __future__ import annotations

import contextlib
import errno
import os
from datetime import datetime
from pathlib import Path

import pytest

from remuda.storage import existing_folder
from remuda.storage.existing_folder import Mode, OnExists, RunFolderError, check, prepare, submitted_folder
from remuda.storage.run_folder import RunFolder

NOW = datetime(2026, 8, 21, 11, 26, 24)


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def a_run(root: Path, mode: Mode = "serial") -> RunFolder:
    run = prepare(root, "error", mode=mode, now=NOW)
    run.config_json.write_text("{}")
    run.progress.write_text("old")
    return run


COMMON = ["ckpt", "data", "log", "log/buffer", "log/collector", "log/evaluator", "log/learner", "model"]
FOLDERS: dict[Mode, list[str]] = {
    "serial": [*COMMON, "log/serial"],
    "parallel": [
        *COMMON,
        "log/buffer/buffer_tb_logger",
        "log/commander",
        "log/commander/commander_tb_logger",
        "log/learner/learner_tb_logger",
        "policy",
    ],
}


@pytest.mark.parametrize("mode", FOLDERS)
def test_the_folders_of_a_run(tmp_path: Path, mode: Mode) -> None:
    prepare(tmp_path / "a" / "run", "error", mode=mode, now=NOW)
    assert tree(tmp_path / "a" / "run") == sorted(FOLDERS[mode])


@pytest.mark.parametrize("on_exists", ["error", "force", "rename"])
def test_an_empty_folder_is_a_new_one(tmp_path: Path, on_exists: OnExists) -> None:
    (tmp_path / "run").mkdir()
    assert prepare(tmp_path / "run", on_exists, mode="serial", now=NOW).root == tmp_path / "run"
    assert not (tmp_path / "run" / ".replaced").exists()


def test_error_refuses_a_run_says_what_can_be_done_and_changes_nothing(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    before = tree(tmp_path)
    with pytest.raises(RunFolderError) as caught:
        prepare(run.root, "error", mode="parallel", now=NOW)
    assert tree(tmp_path) == before
    for part in (str(run.root), "--resume", "--force", "--on-exists rename", 'on_exists="resume"'):
        assert part in str(caught.value)


@pytest.mark.parametrize("on_exists", ["error", "resume", "force", "rename"])
def test_a_file_in_its_place_is_never_touched(tmp_path: Path, on_exists: OnExists) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(RunFolderError, match="is not a directory"):
        prepare(tmp_path / "run", on_exists, mode="serial", now=NOW)
    assert (tmp_path / "run").read_text() == "mine"


def test_resume_keeps_everything_and_makes_what_is_missing(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "parallel")
    run.data.rmdir()
    assert prepare(run.root, "resume", mode="parallel", now=NOW) == run
    assert run.progress.read_text() == "old"
    assert run.data.is_dir()


@pytest.mark.parametrize("make", [False, True])
def test_resume_of_nothing_is_refused(tmp_path: Path, make: bool) -> None:
    if make:
        (tmp_path / "run").mkdir()
    with pytest.raises(RunFolderError, match="there is no run"):
        prepare(tmp_path / "run", "resume", mode="serial", now=NOW)
    assert (tmp_path / "run").exists() == make


@pytest.mark.parametrize(
    ("on_exists", "said"), [("error", "is not empty and is not a run folder"), ("resume", r"no config\.json")]
)
def test_a_folder_of_other_files_is_refused_and_stays(tmp_path: Path, on_exists: OnExists, said: str) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match=said) as caught:
        prepare(tmp_path, on_exists, mode="serial", now=NOW)
    assert "--force" not in str(caught.value), "which would move the files away"
    assert tree(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize(("started", "resumed"), [("serial", "parallel"), ("parallel", "serial")])
def test_resume_does_not_mix_the_modes(tmp_path: Path, started: Mode, resumed: Mode) -> None:
    run = a_run(tmp_path / "run", started)
    before = tree(run.root)
    with pytest.raises(RunFolderError, match=f"started in {started} mode"):
        prepare(run.root, "resume", mode=resumed, now=NOW)
    assert tree(run.root) == before


def test_force_starts_over_and_loses_nothing(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "parallel")
    (run.data / "chunk").write_bytes(b"x")
    was = tree(run.root)
    prepare(run.root, "force", mode="serial", now=NOW)
    assert not run.config_json.exists()
    assert list(run.data.iterdir()) == []
    assert run.serial_tb.is_dir()
    assert tree(run.root / ".replaced" / "260821_112624") == was
    assert (run.root / ".replaced" / "260821_112624" / "data" / "chunk").read_bytes() == b"x"


@pytest.mark.parametrize("also", [(), ("config.json",), ("log/x", "ckpt/y")])
def test_force_moves_nothing_away_that_is_no_run(tmp_path: Path, also: tuple[str, ...]) -> None:
    """A home, or a project that has a config.json of its own."""
    for name in ("thesis.tex", *also):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    before = tree(tmp_path)
    with pytest.raises(RunFolderError, match=r"is not a run folder .*thesis\.tex.*choose another folder"):
        prepare(tmp_path, "force", mode="serial", now=NOW)
    assert tree(tmp_path) == before


def test_force_starts_over_where_a_run_died_before_it_had_a_config(tmp_path: Path) -> None:
    run = prepare(tmp_path / "run", "error", mode="parallel", now=NOW, by="x")
    run.owner.touch()
    run.journal.touch()
    prepare(run.root, "force", mode="serial", now=NOW)
    assert (run.root / ".replaced" / "260821_112624" / "journal.sqlite").exists()


@pytest.mark.parametrize("half", [1, 2, 6, 11])
def test_force_goes_on_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: int) -> None:
    run = a_run(tmp_path / "run", "parallel")
    moved = 0
    rename = os.rename

    def dying(source: Path, target: Path) -> None:
        nonlocal moved
        moved += 1
        if moved == half:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(os, "rename", dying)
        prepare(run.root, "force", mode="serial", now=NOW)
    prepare(run.root, "force", mode="serial", now=NOW)
    assert not run.config_json.exists()
    assert not run.progress.exists()


@pytest.mark.parametrize("run_dir", ["..", ".", "a/..", "/r/runs", "/r/runs2/a", "/etc"])
def test_a_submitted_folder_elsewhere_is_refused(run_dir: str) -> None:
    assert submitted_folder(Path("/r/runs"), "x/../a").is_relative_to("/r/runs")
    with pytest.raises(RunFolderError, match="is not in the coordinator's runs folder /r/runs"):
        submitted_folder(Path("/r/runs"), run_dir)


@pytest.mark.parametrize("on_exists", ["error", "resume", "force", "rename"])
def test_a_full_disk_is_found_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_exists: OnExists) -> None:
    root = a_run(tmp_path / "a" / "run").root if on_exists != "error" else tmp_path / "a" / "run"
    before = tree(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    place = root if on_exists != "error" else tmp_path
    with pytest.raises(RunFolderError, match=rf"cannot be made: No space left on device \(in {place}\); make room"):
        check(root, on_exists, mode="serial")
    assert tree(tmp_path) == before


def test_rename_leaves_the_old_run_alone(tmp_path: Path) -> None:
    old = a_run(tmp_path / "run")
    before = tree(old.root)
    names = [prepare(old.root, "rename", mode="serial", now=NOW).root.name for _ in range(3)]
    assert names == ["run_260821_112624", "run_260821_112624_2", "run_260821_112624_3"]
    assert tree(old.root) == before


def test_of_two_runs_at_once_on_one_folder_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both saw an empty folder; the second arrives after the first has made its log folder."""
    first = prepare(tmp_path / "run", "error", mode="serial", now=NOW)

    def nothing_yet(root: Path) -> list[str]:
        return []

    monkeypatch.setattr(existing_folder, "_entries", nothing_yet)
    with pytest.raises(RunFolderError, match="taken by another run"):
        prepare(first.root, "error", mode="serial", now=NOW)


@pytest.mark.parametrize("on_exists", ["error", "force"])
def test_who_has_begun_and_died_goes_on_where_it_was(tmp_path: Path, on_exists: OnExists) -> None:
    root = tmp_path / "run"
    root.mkdir()
    RunFolder(root).beginner("me").touch()  # the first that is made
    run = prepare(root, on_exists, mode="parallel", now=NOW, by="me")
    before = tree(root)
    assert run.root == root
    assert prepare(root, on_exists, mode="parallel", now=NOW, by="me") == run
    assert tree(root) == before
    run.beginner("me").unlink()
    assert before == sorted([*tree(root), ".begun_me"])


def test_who_has_begun_beside_a_folder_goes_on_there(tmp_path: Path) -> None:
    """Whenever it comes again; another submission of that name gets a folder of its own."""
    a_run(tmp_path / "[a] run", mode="parallel")
    a_run(tmp_path / "[a] run_of_another", mode="parallel")
    run = prepare(tmp_path / "[a] run", "rename", mode="parallel", now=NOW, by="me")
    assert run.root.name == "[a] run_260821_112624"
    before = tree(tmp_path)
    later = datetime(2026, 8, 21, 11, 26, 31)
    assert prepare(tmp_path / "[a] run", "rename", mode="parallel", now=later, by="me") == run
    assert tree(tmp_path) == before
    other = prepare(tmp_path / "[a] run", "rename", mode="parallel", now=NOW, by="another")
    assert other.root.name == "[a] run_260821_112624_2"
    run.index.write_text("{}")  # something has come of it
    assert prepare(tmp_path / "[a] run", "rename", mode="parallel", now=later, by="me").root.name.endswith("_112631")


def test_nobody_goes_on_where_another_has_begun_or_something_has_come_of_it(tmp_path: Path) -> None:
    run = prepare(tmp_path / "run", "error", mode="parallel", now=NOW, by="me")
    with pytest.raises(RunFolderError, match="is not empty"):
        prepare(run.root, "error", mode="parallel", now=NOW, by="another")
    run.index.write_text("{}")
    with pytest.raises(RunFolderError, match="is not empty"):
        prepare(run.root, "error", mode="parallel", now=NOW, by="me")
