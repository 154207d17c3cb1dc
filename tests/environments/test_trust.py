"""Code that came with a folder, or that another user wrote, runs only for who says so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.rebuild import distrusted_environment, distrusted_model, trusted_source_dir

MAKE = EnvConfig(make="horse.stable:make")
ID = EnvConfig(id="CartPole-v1")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run" / "model").mkdir(parents=True)
    for name in ("config.json", "model/model.pt"):
        (tmp_path / "run" / name).touch()
    (tmp_path / "source").mkdir()
    return tmp_path / "run"


@pytest.fixture
def strangers(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    return run


def test_ones_own_folder_is_trusted(run: Path, tmp_path: Path) -> None:
    for env in (MAKE, ID, EnvConfig(id="horses:Horse-v1")):
        assert distrusted_environment(env, source_dir=str(tmp_path / "source"), run_dir=run) is None
    assert distrusted_environment(MAKE, source_dir=None, run_dir=run) is None
    assert distrusted_model(run / "model") is None


def test_what_another_users_config_names_is_not(strangers: Path, tmp_path: Path) -> None:
    for env, named in ((MAKE, "env.make = 'horse.stable:make'"), (EnvConfig(id="a:B-v1"), "env.id = 'a:B-v1'")):
        why = distrusted_environment(env, source_dir=str(tmp_path / "source"), run_dir=strangers)
        assert why is not None
        assert why.startswith(f"{strangers} belongs to another user (user id ")
        assert named in why
        assert "--trust-code (in Python: trust_code=True)" in why
    why = distrusted_model(strangers / "model")
    assert why is not None
    assert "TorchScript" in why


def test_one_file_of_another_user_is_enough(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def stat_of_stranger(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = stat(path, follow_symlinks=follow_symlinks)
        return found if path.name != "config.json" else os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))

    monkeypatch.setattr(Path, "stat", stat_of_stranger)
    why = distrusted_environment(MAKE, source_dir=None, run_dir=run)
    assert why is not None
    assert why.startswith(f"{run / 'config.json'} belongs to another user")


@pytest.mark.parametrize("inside", [".", "sub", "../run", "../link"])
def test_a_module_in_the_run_folder_is_not_trusted_even_if_the_folder_is_ones_own(run: Path, inside: str) -> None:
    (run.parent / "link").symlink_to(run)
    (run / inside / "horse").mkdir(parents=True)
    assert trusted_source_dir(str(run / inside), run_dir=run) is None
    why = distrusted_environment(MAKE, source_dir=str(run / inside), run_dir=run)
    assert why is not None
    assert "is in the run folder itself" in why


def test_one_that_is_installed_is_trusted_and_takes_nothing_from_the_run_folder(run: Path, tmp_path: Path) -> None:
    assert distrusted_environment(MAKE, source_dir=str(run), run_dir=run) is None
    assert trusted_source_dir(str(run), run_dir=run) is None
    assert trusted_source_dir(str(tmp_path / "source"), run_dir=run) == str(tmp_path / "source")


def test_nor_one_that_lies_there_by_a_longer_name_or_a_link(run: Path, tmp_path: Path) -> None:
    (run / "stable.py").touch()
    by_name = EnvConfig(make="run.stable:make")
    assert distrusted_environment(by_name, source_dir=str(tmp_path), run_dir=run) is not None
    (tmp_path / "source" / "horse.py").symlink_to(run / "stable.py")
    by_link = EnvConfig(make="horse:make")
    assert distrusted_environment(by_link, source_dir=str(tmp_path / "source"), run_dir=run) is not None


def test_nor_one_that_python_finds_there_by_its_path(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.chdir(run)
    by_id = EnvConfig(id="stable:Horse-v1")
    assert distrusted_environment(by_id, source_dir=None, run_dir=run) is None
    (run / "stable.py").touch()
    assert distrusted_environment(by_id, source_dir=None, run_dir=run) is not None
