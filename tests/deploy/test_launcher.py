"""`launch.on`: this machine, a launcher of the user's own, or one that an installed package offers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from remuda.config.launching import ENGINES, LaunchConfig
from remuda.config.user_code import UserCodeError
from remuda.deploy.launcher import Launcher, LaunchRequest, find_launcher, make_launcher
from remuda.deploy.local import LocalLauncher

MINE = """
from remuda.deploy.local import LocalLauncher

class Mine(LocalLauncher):
    pass

class Broken:
    def __init__(self, request):
        raise ValueError("no cluster here")

class Half:
    def __init__(self, request):
        pass

    @property
    def connection_file(self):
        raise ValueError("nothing is started")

    def start(self, workers, *, given_up):
        pass

    planned = check = kill = stop = __enter__ = __exit__ = start
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_launchers.py").write_text(MINE)
    return tmp_path


def request(folder: Path, on: str) -> LaunchRequest:
    return LaunchRequest(folder / "runs", "horse", LaunchConfig(on=on))


def test_local_is_this_machine() -> None:
    assert find_launcher("local", source_dir=None) is LocalLauncher


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_with_settings_has_a_launcher(engine: str) -> None:
    kind: object = find_launcher(engine, source_dir=None)
    assert Launcher in getattr(kind, "__mro__", ())


def test_one_of_the_users_own_is_found_in_the_configs_folder(folder: Path) -> None:
    with make_launcher(request(folder, "my_launchers:Mine"), source_dir=str(folder)) as mine:
        assert type(mine).__name__ == "Mine"


def test_an_installed_package_offers_one_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "site" / "mine-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[remuda.launchers]\nhtcondor = my_launchers:Mine\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    found: object = find_launcher("htcondor", source_dir=str(folder))
    assert getattr(found, "__name__", None) == "Mine"


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        ("locall", r"launch\.on: should be one of local, slurm, ray, .*or module:Class, not locall"),
        ("my_launchers:Yours", r"has no class 'Yours'"),
        ("no_launchers:Mine", r"launch\.on = 'no_launchers:Mine' .*cannot be imported"),
        ("my_launchers:Broken", r"my_launchers:Broken: cannot be made: ValueError: no cluster here"),
        ("my_launchers:Half", r"my_launchers:Half: lacks wait_for_coordinator; remuda\.deploy\.launcher\.Launcher"),
    ],
)
def test_mistakes_are_told_before_anything_is_started(folder: Path, on: str, problem: str) -> None:
    with pytest.raises(UserCodeError, match=problem):
        make_launcher(request(folder, on), source_dir=str(folder))
    assert not (folder / "runs").exists()
