"""Everything that turns bytes of others into objects: what it is given, and the errors that it may raise."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from pydantic import ValidationError

from remuda.buffer.chunk import AnyPayload, ChunkError, Column, read_chunk, read_meta, reanalysis_name, write_chunk
from remuda.client.plots.runs import PlotError, find_runs
from remuda.client.sweeps.record import SweepFileError, read_sweep
from remuda.collector.steps import StepsError, read_steps
from remuda.config.dump import changed_settings
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.config.readers import parse_override
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.disk.runs_folder import RunsFolder, known_runs, unrecoverable_run
from remuda.learner.ranks import parts
from remuda.logbook.progress import JsonLinesSink
from remuda.logbook.series import SeriesError, read_series
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.policy_file import PolicyFileError, load, publish, read_ref
from remuda.policy.ranks import RankLostError
from remuda.storage.bucket.address import BucketError
from remuda.storage.bucket.generation import File, Generation, Part, decoded, encoded
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.lock import FolderOwnedError
from remuda.storage.notes import Notes, read_notes, write_notes
from remuda.storage.run_folder import RunFolder
from remuda.storage.tensor_file import fingerprint, in_file_order
from remuda.storage.untrusted import read_bounded
from remuda.tests.buffer.chunks import WORKER, cartpole_columns, meta_of
from remuda.tests.collector.parts import write_part
from remuda.training.journal import RunJournal
from remuda.training.journal_database import JournalError
from remuda.wire import connection_file
from remuda.wire.codec import OF_COORDINATORS, OF_STRANGERS, OF_WORKERS, CodecError, decode
from remuda.wire.connection_file import ConnectionFile, ConnectionFileError
from remuda.wire.keys import authorized
from remuda.wire.keys.pair import new_pair
from remuda.wire.keys.secret_file import KeyFileError, read_secret, write_secret
from remuda.wire.messages import PROTOCOL_VERSION, CheckpointRecord, Grant, PolicyRef, Reanalysis, ReanalysisId

LENGTH_BYTES = 3
"""Before each frame in the bytes that stand for a message."""


@dataclass(frozen=True)
class Decoder:
    """One format: how an honest file of it is made, and how it is read."""

    name: str
    file: str
    """What the file is called."""
    refuses: tuple[type[Exception], ...]
    """The errors that it promises; it may raise no other."""
    make: Callable[[Path], None]
    """Writes an honest file to this path."""
    read: Callable[[Path], object]

    def honest(self, folder: Path) -> bytes:
        """The content of an honest file."""
        path = folder / self.file
        self.make(path)
        return path.read_bytes()

    def given(self, folder: Path, content: bytes) -> bool:
        """Read this content; whether it was taken for honest. Raises what the decoder must not raise."""
        path = folder / self.file
        path.write_bytes(content)
        path.chmod(0o600)
        return self.taken(path)

    def taken(self, path: Path) -> bool:
        """As `given`, for a file that is there."""
        try:
            self.read(path)
        except self.refuses:
            return False
        return True


@cache
def _onnx() -> tuple[bytes, bytes]:
    """An exported policy and its description."""
    from remuda.policy.files.exported_policies import description_of
    from remuda.tests.policy.export.cases import trained

    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.onnx"
        trained("ppo, continuous").export.write(path, "onnx")
        return path.read_bytes(), description_of(path).read_bytes()


def _exported(path: Path) -> None:
    path.write_bytes(_onnx()[1])


def _read_exported(path: Path) -> None:
    from remuda.policy.files.playable import exported_playable

    path.with_suffix("").write_bytes(_onnx()[0])
    exported_playable(path.with_suffix(""))


# --- messages ---
def packed(frames: list[bytes]) -> bytes:
    """The frames of a message as one string of bytes, each behind its length."""
    return b"".join(len(frame).to_bytes(LENGTH_BYTES, "big") + frame for frame in frames)


def unpacked(content: bytes) -> list[bytes]:
    """Frames of any bytes; a length that is too long takes what there is."""
    frames: list[bytes] = []
    while content and len(frames) < 30:
        length, content = int.from_bytes(content[:LENGTH_BYTES], "big"), content[LENGTH_BYTES:]
        frames.append(content[:length])
        content = content[length:]
    return frames


def _message(path: Path) -> None:
    from remuda.wire.codec import Envelope, encode
    from remuda.wire.messages import BatchRequest

    rows = np.arange(3)
    request = BatchRequest(1, 2, 1, 4, 32, 7, 11, rows, rows.astype(np.float32))
    path.write_bytes(packed([bytes(frame) for frame in encode(Envelope(5, 0, 4, request))]))


def _read_message(path: Path) -> None:
    frames = unpacked(path.read_bytes())
    for limits in (OF_STRANGERS, OF_WORKERS):
        with suppress(CodecError):
            decode(frames, limits)
    decode(frames, OF_COORDINATORS)


def _stream_message(path: Path) -> None:
    from remuda.wire.streams import Get, encode

    grant = Grant("/runs/x", "collector", WORKER, 1, "policy_x_000001", "0" * 64)
    path.write_bytes(packed([bytes(frame) for frame in encode(Get(2, grant, "policy", "x"))]))


def _read_stream_message(path: Path) -> None:
    from remuda.wire import streams

    frames = unpacked(path.read_bytes())
    with suppress(CodecError):
        streams.decode(frames, streams.of_server)
    streams.decode(frames, streams.of_workers)


def _ask(path: Path) -> None:
    from remuda.wire.inference import Ask, encode, forms

    arrays = {"inputs": np.ones((3, 2), np.float32), "legal": np.array([[True], [False], [True]])}
    ask = Ask(4, 0, 1, "policy", PolicyRef(1, 2, 30), forms(arrays))
    path.write_bytes(packed([bytes(frame) for frame in encode(ask, arrays)]))


def _read_ask(path: Path) -> None:
    from remuda.wire.inference import decode_answer, decode_ask

    frames = unpacked(path.read_bytes())
    with suppress(CodecError):
        decode_answer(frames)
    decode_ask(frames)


# --- keys and connections ---
def _rank_columns(path: Path) -> None:
    columns: dict[str, np.ndarray] = {
        "obs": np.ones((3, 2), np.float32),
        "action": np.arange(3),
        "done": np.array([True, False, True]),
    }
    path.write_bytes(parts.packed(columns).tobytes())


def _read_rank_columns(path: Path) -> object:
    return parts.unpacked(np.frombuffer(path.read_bytes(), np.uint8))


def _connection(path: Path) -> None:
    key = new_pair("coordinator").public
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    file = ConnectionFile(uuid, "tcp://127.0.0.1:4711", PROTOCOL_VERSION, "node-7", 123, 2, key, "/home/me/runs/.keys")
    connection_file.write(path, file)


def _secret(path: Path) -> None:
    write_secret(path, new_pair("operator"), replace=True)


def _authorized(path: Path) -> None:
    known = {new_pair(name).public: authorized.Identity(name, "viewer") for name in ("alice", "bob")}
    path.write_text(authorized.text_of(known))
    path.chmod(0o600)


# --- configs ---
YAML = "name: small\nenv: {id: CartPole-v1, kwargs: {a: [1, null, 'x']}}\npolicy: {hidden: [1, 2]}\nseed: 0x1f\n"
SETTINGS = '{"name": "small", "env": {"id": "E", "kwargs": {"a": [1, "]", {"b": null}]}}, "seed": 1}'
PYTHON = "exp_config = {'name': 'small', 'env': {'id': 'E', 'kwargs': {'a': (1, -2.5)}}, 'seed': 1}"


def _text(content: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(content)

    return write


def _config(path: Path) -> None:
    load_config(path, import_algorithm=False)


def _override(path: Path) -> None:
    parse_override(path.read_bytes().decode("utf-8", errors="surrogateescape"))


def _submitted(path: Path) -> None:
    """As a coordinator reads what a client submits."""
    ExperimentConfig.model_validate_json(path.read_bytes().decode("utf-8", errors="replace")[:200_000])


def _former_config(path: Path) -> None:
    """What is read of the config.json of a run that is resumed, shown as failed, or drawn."""
    config = ExperimentConfig.model_validate_json(SETTINGS)
    changed_settings(path.parent, config)
    unrecoverable_run("x", path.parent, ValueError("y"))
    (path.parent / "progress.txt").write_text("Epoch\n1\n")
    find_runs([path.parent])


# --- files of a run ---
STATE: dict[str, np.ndarray] = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(3, np.int64)}


def _never(warning: str) -> None:
    raise AssertionError(warning)


def _policy(path: Path) -> None:
    path.unlink(missing_ok=True)
    publish(path, STATE, PolicyRef(2, 5, 50), warn=_never)


def _read_policy(path: Path) -> None:
    with suppress(PolicyFileError):
        read_ref(path)
    load(path, deadline_s=0.0)


PAYLOAD = meta_of(7, 20)


def _payload(path: Path) -> None:
    write_chunk(path.parent, PAYLOAD, cartpole_columns(20))


def _read_payload(path: Path) -> None:
    """As it was announced, and as it says itself that it is."""
    with suppress(ChunkError):
        read_chunk(path, _with_size(PAYLOAD, path, cartpole_columns(20)))
    read_chunk(path, read_meta(path))


def _with_size(meta: AnyPayload, path: Path, columns: Mapping[str, Column]) -> AnyPayload:
    """What is announced of a file of this size whose columns are these."""
    size, checksum = os.lstat(path).st_size, fingerprint(in_file_order(columns))
    return msgspec.structs.replace(meta, payload_bytes=size, checksum=checksum)


_REANALYSIS_ID = ReanalysisId(WORKER, 2, 4)
REANALYSIS = Reanalysis(
    _REANALYSIS_ID, reanalysis_name(_REANALYSIS_ID), PAYLOAD.chunk, 60, 3, PolicyRef(1, 5, 500), 0, 0, 0.25
)


_ROOT_VALUES: dict[str, Column] = {"root_value": np.ones((3, 4), np.float32)}


def _reanalysis(path: Path) -> None:
    write_chunk(path.parent, REANALYSIS, _ROOT_VALUES)


def _read_reanalysis(path: Path) -> None:
    read_chunk(path, _with_size(REANALYSIS, path, _ROOT_VALUES))


def _checkpoint(path: Path) -> None:
    from remuda.learner.checkpoint import Progress, save
    from remuda.tests.policy.cases import config, dqn
    from remuda.wire.messages import Counters

    progress = Progress(Counters(640, 20, 3, 2, 1.5), PolicyRef(4, 2, 20), {"epsilon": 0.25}, best_reward=17.5)
    save(path, dqn(), progress, config=config(), rngs={"replay": np.random.default_rng(5)})


def _read_checkpoint(path: Path) -> None:
    from remuda.learner.checkpoint import load as load_checkpoint
    from remuda.learner.checkpoint import restore
    from remuda.policy.files.checkpoint_file import CheckpointError
    from remuda.tests.policy.cases import dqn

    try:
        restore(load_checkpoint(path), dqn())
    except CheckpointError as error:
        raise DocumentedError from error


class DocumentedError(Exception):
    """In the place of an error whose module imports torch."""


def _index(path: Path) -> None:
    path.unlink(missing_ok=True)
    index = CheckpointIndex(path.parent)
    for train_iter in (0, 50):
        name = f"iteration_{train_iter}.pth.tar"
        (path.parent / name).touch()
        index.add(CheckpointRecord(train_iter, 640, 1.5, None, name, "0" * 64, "2026-01-01T00:00:00+00:00"))
    index.set_reward(50, 1.0, best=True)


def _read_index(path: Path) -> None:
    CheckpointIndex(path.parent)


def _journal(path: Path) -> None:
    from remuda.tests.coordinator.configs import config
    from remuda.tests.coordinator.simulation import World

    world = World(config())
    world.herd(collectors=2)
    world.submit()
    taken = world.coordinator.journal_entries
    path.unlink(missing_ok=True)
    with closing(RunJournal(path)) as journal:

        def note(now_s: float) -> list[object]:
            news = taken(now_s)
            if news:
                journal.write(*news)
            return [*news]

        world.coordinator.journal_entries = note  # type: ignore[method-assign, assignment]
        for _ in range(15):
            world.step()


def _read_journal(path: Path) -> None:
    with closing(RunJournal(path)) as journal:
        journal.read()


def _runs(path: Path) -> None:
    path.unlink(missing_ok=True)
    with closing(RunsFolder(path.parent)) as folder:
        folder.begin("tcp://127.0.0.1:1")


def _read_runs(path: Path) -> None:
    known_runs(path.parent)
    with closing(RunsFolder(path.parent)) as folder:
        _ = folder.last_address
        folder.finished()
        folder.unfinished()


def _steps(path: Path) -> None:
    write_part(path.parent, chunks=3).rename(path)


def _series(path: Path) -> None:
    from remuda.storage.record_file import packed as record

    event = {"time_s": 1.0, "wall_s": 0.0, "env_step": 0, "train_iter": 0, "role": None, "worker": None}
    begins = record({"kind": "begin", "format": 1, "time_s": 1.0})
    path.write_bytes(begins + record({"kind": "event", **event, "event": "begins", "text": "x"}) * 3)


def _progress(path: Path) -> None:
    path.write_text("Epoch\tReturn\n" + "1\t2.5\n" * 3)


def _curves(path: Path) -> None:
    from remuda.logbook.curve_file import CurveFile
    from remuda.logbook.event_file import note_event

    for former in path.parent.glob("events.out.*"):
        former.unlink()
    with closing(CurveFile(path.parent, now_s=lambda: 1.0)) as curves:
        curves.append(note_event(1.0, "hello") * 600, {"learner_iter": 7})
        curves.path.rename(path)


def _read_curves(path: Path) -> None:
    from remuda.logbook.curve_file import CurveFile

    with closing(CurveFile(path.parent, now_s=lambda: 1.0)) as curves:
        curves.cut(lambda group: 3.0)
        curves.path.rename(path)


def _lines(path: Path) -> None:
    path.write_text(json.dumps({"env_step": 3.0}) + "\n")


def _read_lines(path: Path) -> None:
    JsonLinesSink(path, resumed_env_step=5).close()


def _sweep(path: Path) -> None:
    run = {"name": "a", "variant": "b", "seed": 1, "settings": {"x": [1, {"y": None}]}, "run_dir": "a"}
    path.write_text(json.dumps({"format": 1, "name": "s", "mode": "serial", "runs": [run]}))


def _generation(path: Path) -> None:
    file = File("ckpt/index.json", 0o600, (Part("0" * 64, 3, 1),))
    path.write_bytes(encoded(Generation(1, 1, "owner", "host", 0.0, (file,))))


def _notes(path: Path) -> None:
    write_notes(RunFolder(path.parent), Notes("a note\nof two lines", ["a tag", "another"]))


DECODERS = (
    Decoder("message", "message", (CodecError,), _message, _read_message),
    Decoder("stream message", "message", (CodecError,), _stream_message, _read_stream_message),
    Decoder("question to an inference worker", "message", (CodecError,), _ask, _read_ask),
    Decoder("columns of a learner rank", "message", (RankLostError,), _rank_columns, _read_rank_columns),
    Decoder("connection file", "connection.json", (ConnectionFileError,), _connection, connection_file.read),
    Decoder("secret key", "operator", (KeyFileError,), _secret, read_secret),
    Decoder("list of keys", "authorized", (KeyFileError,), _authorized, authorized.read),
    Decoder("config in YAML", "c.yaml", (ConfigError,), _text(YAML), _config),
    Decoder("config in JSON", "c.json", (ConfigError,), _text(SETTINGS), _config),
    Decoder("config in Python", "c.py", (ConfigError,), _text(PYTHON), _config),
    Decoder("override", "override", (ConfigError,), _text("env.kwargs={a: [1, 2]}"), _override),
    Decoder("submitted config", "submitted", (ValidationError,), _text(SETTINGS), _submitted),
    Decoder("config of a former run", "config.json", (PlotError,), _text(SETTINGS), _former_config),
    Decoder("policy file", "policy_x_000001", (PolicyFileError,), _policy, _read_policy),
    Decoder("payload", PAYLOAD.file, (ChunkError,), _payload, _read_payload),
    Decoder("reanalysis", REANALYSIS.file, (ChunkError,), _reanalysis, _read_reanalysis),
    Decoder("checkpoint", "iteration_20.pth.tar", (DocumentedError,), _checkpoint, _read_checkpoint),
    Decoder("description of an exported policy", "policy.onnx.json", (CheckpointError,), _exported, _read_exported),
    Decoder("list of checkpoints", "index.json", (CheckpointIndexError,), _index, _read_index),
    Decoder("journal", "journal.sqlite", (JournalError,), _journal, _read_journal),
    Decoder("list of runs", "coordinator.sqlite", (JournalError, FolderOwnedError), _runs, _read_runs),
    Decoder("steps", "collector_0_0.steps.msgpack", (StepsError, OSError), _steps, read_steps),
    Decoder("series", "series.msgpack", (SeriesError, OSError), _series, lambda path: [*read_series(path)]),
    Decoder("progress.txt", "progress.txt", (PlotError,), _progress, lambda path: find_runs([path.parent])),
    Decoder("curves", "events.out.tfevents.0000000001.x", (), _curves, _read_curves),
    Decoder("progress.jsonl", "progress.jsonl", (ValueError, OSError), _lines, _read_lines),
    Decoder("notes", "notes.json", (), _notes, lambda path: read_notes(RunFolder(path.parent))),
    Decoder(
        "generation in a bucket",
        "1.json",
        (BucketError, OSError),
        _generation,
        lambda path: decoded(read_bounded(path, most_bytes=1 << 20)),
    ),
    Decoder("sweep.json", "sweep.json", (SweepFileError,), _sweep, lambda path: read_sweep(path.parent)),
)
