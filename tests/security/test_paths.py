"""35. Names that lead out of a folder, or forge a line: refused wherever they come from, and nothing is written."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from remuda.buffer.chunk import ChunkError, delete_chunks, read_chunk, write_chunk
from remuda.client.client import Client
from remuda.config.schema import ExperimentConfig
from remuda.storage.existing_folder import OnExists
from remuda.storage.run_folder import RunFolder
from remuda.tests.buffer.chunks import cartpole_columns, meta_of
from remuda.tests.faults.conftest import Herds
from remuda.tests.worker.leases import small_config
from remuda.wire.codec import CodecError, Envelope, check
from remuda.wire.conversation import RefusedError
from remuda.wire.messages import PROTOCOL_VERSION, LogPiece, LogRequest, Register

OUTSIDE = ("../x", "/tmp/x", "a/../../x", "..", ".", "a/../..", "\0", "x\0/y")
FORGING = ("a\nb", "\x1b[2Jx", "a\x07", "a\u2028b", "../x", "/x", "a b", "", "x" * 300)


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.processes
def test_no_run_folder_is_made_outside(herds: Herds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no repository, which would be asked for its state each time
    herd = herds()
    herd.coordinator()
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine").write_text("of somebody else")
    with herd.client() as client:
        places = (*OUTSIDE, str(tmp_path / "x"), f"{herd.runs}/../../x", str(herd.runs))
        for run_dir, on_exists in itertools.product(places, get_args(OnExists)):
            with pytest.raises(RefusedError) as refused:
                client.submit(small_config(), run_dir=run_dir, on_exists=on_exists)
            assert refused.value.code in ("exists", "invalid"), run_dir
        assert client.status().experiments == []
    assert {path.name for path in tmp_path.iterdir()} == {"x", herd.root.name}
    assert {path.name for path in herd.runs.iterdir() if not path.name.startswith(".")} <= {
        "connection.json",
        "coordinator.sqlite",
        "coordinator.sqlite-wal",
    }
    assert (tmp_path / "x" / "mine").read_text() == "of somebody else"
    herd.shut_down()


@pytest.mark.parametrize("name", FORGING)
def test_the_names_of_experiments_and_workers_are_plain_words(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError):
        ExperimentConfig.model_validate({"name": name, "env": {"id": "CartPole-v1"}})
    with pytest.raises(CodecError):
        check(Envelope(1, 0, 1, Register(name, 1, "collector", "here", 1, PROTOCOL_VERSION, "0")))
    with pytest.raises(ValueError, match="cannot be part of a file name"):
        RunFolder(tmp_path).worker_log("collector", name, 1)


@pytest.mark.parametrize("link", ["to a file", "dangling"])
def test_a_link_in_data_is_neither_followed_nor_removed_with_its_target(tmp_path: Path, link: str) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    elsewhere.mkdir()
    meta = write_chunk(elsewhere, meta_of(0, 5), cartpole_columns(5))
    target = {"to a file": elsewhere / meta.file, "dangling": elsewhere / "no"}[link]
    (data / meta.file).symlink_to(target)
    with pytest.raises(ChunkError, match="symbolic link"):
        read_chunk(data / meta.file, meta)
    delete_chunks(data, [meta.file])
    assert tree(tmp_path) == {"data", "elsewhere", f"elsewhere/{meta.file}"}


def test_nothing_but_payloads_is_deleted_on_anybodys_word(tmp_path: Path) -> None:
    for file in ("../x", "/etc/passwd", "x", "a/b", f"../{meta_of(0, 1).file}"):
        with pytest.raises(ChunkError, match="wrong name"):
            delete_chunks(tmp_path, [file])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Something that nobody may read over the coordinator."""
    path = tmp_path / "secret.txt"
    path.write_text("a secret\n")
    return path


@pytest.mark.processes
def test_a_log_is_one_of_the_run_and_no_link_out_of_it(tmp_path: Path, herds: Herds, written: Path) -> None:
    """Who may read logs may read nothing else, whatever a worker has put into the folder of logs."""
    herd = herds()
    herd.coordinator()
    run = herd.submit(_config(tmp_path))
    (run / "log" / "collector").mkdir(exist_ok=True)
    links = ("collector/0123abcd-x_000001_logger.txt", "learner/learner_logger.txt")
    for link in links:
        (run / "log" / link).parent.mkdir(exist_ok=True)
        (run / "log" / link).unlink(missing_ok=True)
        (run / "log" / link).symlink_to(written)
    os.mkfifo(run / "log" / "collector" / "0123abce-x_000001_logger.txt")
    with herd.client() as client:
        for source in ("collector", "learner"):
            assert "secret" not in "".join(piece.text for piece in _logs(client, source))
        for source in ("../../secret.txt", "/etc/passwd", "collector/../../x", "learner/learner_logger.txt", "0123"):
            with pytest.raises(RefusedError, match="there is no log"):
                _logs(client, source)
        client.stop("horse")
    herd.wait_over("horse", "stopped")
    herd.shut_down()


def _config(folder: Path) -> Path:
    path = folder / "horse.yaml"
    path.write_text("name: horse\nenv: {id: CartPole-v1}\n")
    return path


def _logs(client: Client, source: str) -> list[LogPiece]:
    return client.read_log(LogRequest("horse", source)).pieces
