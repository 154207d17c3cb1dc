"""`remuda fetch`: the copied files, and the messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.storage.bucket.address import LocalFolder
from remuda.storage.bucket.opening import open_run
from remuda.storage.bucket.shipper import Shipper
from remuda.storage.bucket.store import Retries, Store
from remuda.tests.cli.terminal import Terminal


@pytest.fixture
def herd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a coordinator with a run and a sweep of another."""
    monkeypatch.chdir(tmp_path)
    folder, address = LocalFolder(tmp_path / "local", has_runs=True), f"file://{tmp_path}/bucket/herd"
    store = Store.at(address, Retries())
    mark = open_run(store, address, folder, "resume", "one", print)
    for name in ("first/config.json", "sizes/small_s0/config.json", "sizes/sweep.json"):
        (folder.root / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.root / name).write_text("{}")
    Shipper(store, folder.root, mark, say=print).ship()
    return address


PLOT, EVALUATE = "plot 'the copy' -o 'the copy.png'\n", "evaluate '{folder}/the copy' -n 20 -d\n"


@pytest.mark.parametrize(
    ("below", "what", "files", "following"),
    [
        ("", "folder of runs", ["first/config.json", "sizes/small_s0/config.json", "sizes/sweep.json"], PLOT),
        ("/first", "run folder", ["config.json"], EVALUATE),
        ("/sizes", "folder of runs", ["small_s0/config.json", "sweep.json"], PLOT),
        ("/sizes/small_s0", "run folder", ["config.json"], EVALUATE),
    ],
)
def test_a_coordinators_address_gives_all_runs_and_the_name_of_a_run_this_run(
    terminal: Terminal, tmp_path: Path, herd: str, below: str, what: str, files: list[str], following: str
) -> None:
    ended = terminal.remuda("fetch", f"{herd}{below}", "the copy")
    copy = tmp_path / "the copy"
    assert ended.code == 0, ended.err
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()) == files
    assert ended.out.startswith(f"{what} {copy}: {len(files)} files of generation 1/1\n")
    assert f"\n  remuda {following.format(folder=tmp_path)}" in ended.out


@pytest.mark.parametrize(
    ("address", "target", "said"),
    [
        ("{herd}/second", "copy", "/herd/second holds no run"),
        ("{herd}/fir", "copy", "/herd/fir holds no run"),
        ("{herd}", "local", "local exists: name a new folder"),
        ("runs/first", "copy", "runs/first"),
    ],
)
def test_nothing_is_written_without_a_run_or_over_a_folder(
    terminal: Terminal, tmp_path: Path, herd: str, address: str, target: str, said: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    ended = terminal.remuda("fetch", address.format(herd=herd), target)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert sorted(tmp_path.rglob("*")) == before
