"""Run folders as finished runs leave them behind, with as many points as one likes, made in seconds.

The files of a run are those of `docs/run-folder.md` that are read to show it: settings, table, time series, list of
checkpoints, commander's log. Tables and series are written as blocks of bytes, in which numpy changes the numbers of a
record that the program's own writer has made. Runs with the same seed share these two by hard links, so that a
hundred runs need no more disk than a few.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import to_builtins
from numpy.typing import NDArray

from remuda.config.dump import write_configs
from remuda.config.load import load_settings
from remuda.logbook.lines import TextLog
from remuda.logbook.progress import ProgressColumns, ProgressFile
from remuda.logbook.series import FORMAT, Begin, Evaluation, Interval, Usage
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import prepare
from remuda.storage.record_file import packed
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord

Bytes = NDArray[np.uint8]

SEEDS = 5
"""Runs of each variant."""
PER_INTERVAL = 100
"""Evaluations between two intervals of a series, each PAST_S long."""
STEPS = 4_000
"""Environment steps between two points."""
UPDATES = 1_000
PAST_S = 60.0
NOW_S = 1.7e9
_EXPERIMENT = "f20e48af-0000-4000-8000-000000000009"
_MARK_S, _MARK_RETURN, _MARK_STD, _MARK_TIME_S = 11.25, 22.5, 33.125, 44.75
"""Numbers of the records that are replaced."""
_MARK_STEP, _MARK_ITER = 0x7A11_22B3, 0x7B44_55C6
_TABLE_BYTES = 10 << 20
"""Of a table that are made at a time, about."""


def made(runs_dir: Path, runs: int, points: int) -> list[str]:
    """Make so many finished runs, each with this number of rows in progress.txt and of evaluations in its time series:
    a multiple of PER_INTERVAL. Returns their names."""
    if points % PER_INTERVAL:
        raise ValueError(f"{points} points: take a multiple of {PER_INTERVAL}")
    firsts: dict[int, RunFolder] = {}
    names: list[str] = []
    for number in range(runs):
        variant, seed = divmod(number, SEEDS)
        rate = round(1e-4 * (variant + 1), 6)
        names.append(f"cartpole_lr{rate:g}_s{seed}")
        folder = _folder(runs_dir / names[-1], rate, seed, points)
        if seed not in firsts:
            firsts[seed] = folder
            write_table(folder.progress, points, seed)
            write_series(folder.series, points, seed)
        else:
            for file in ("progress", "series"):
                os.link(getattr(firsts[seed], file), getattr(folder, file))
    return names


def returns(points: int, seed: int) -> NDArray[np.float64]:
    """float64 [points]: a noisy curve from 20 to 480."""
    rng = np.random.default_rng(seed)
    progress = np.linspace(0.0, 1.0, points)
    curve: NDArray[np.float64] = 20.0 + 460.0 * progress**0.5 + rng.normal(0.0, 10.0, points)
    return curve.clip(0.0, 999.0)


def _folder(root: Path, rate: float, seed: int, points: int) -> RunFolder:
    """Everything but the table and the series."""
    folder = prepare(root, "error", mode="parallel", now=datetime(2026, 1, 1, tzinfo=UTC))
    settings = {
        "name": "cartpole",
        "seed": seed,
        "env": {"id": "CartPole-v1"},
        "policy": {"type": "dqn"},
        "learner": {"learning_rate": rate},
        "stop": {"max_env_steps": STEPS * points},
    }
    loaded = load_settings(settings, folder=root.parent)
    write_configs(folder.root, loaded.config, loaded.provenance)
    (folder.policy / f"policy_{_EXPERIMENT}_000001").write_bytes(b"")
    index = CheckpointIndex(folder.ckpt)
    for train_iter, reward in ((0, 20.0), (UPDATES * points, 400.0 + seed)):
        file = f"iteration_{train_iter}.pth.tar"
        (folder.ckpt / file).write_bytes(b"")
        step, created = STEPS * points if train_iter else 0, "2026-01-01T00:00:00+00:00"
        index.add(CheckpointRecord(train_iter, step, PAST_S, None, file, "0" * 64, created))
        index.set_reward(train_iter, reward, best=train_iter > 0)
    log = TextLog(folder.commander_log)
    log.info(f"the run is over after {PAST_S:.1f} s: max_env_steps; env_step has reached max_env_steps")
    log.close()
    return folder


# --- progress.txt ---


def write_table(path: Path, rows: int, seed: int) -> None:
    """A progress.txt with the columns of a run that evaluates elsewhere: those of evaluations are nan."""
    ProgressFile(path, ProgressColumns(["LossQ", "QVals"])).close()
    columns = path.read_text(encoding="utf-8").rstrip("\n").split("\t")
    means = returns(rows, seed)
    numbers = np.arange(1, rows + 1)
    at_a_time = max(_TABLE_BYTES // (12 * len(columns)), 1)
    with path.open("ab") as file:
        for begin in range(0, rows, at_a_time):
            part = slice(begin, min(begin + at_a_time, rows))
            of = {
                "Epoch": _digits(numbers[part], 8),
                "TotalEnvInteracts": _digits(STEPS * numbers[part], 11),
                "Time": _decimal(0.6 * numbers[part]),
                **{name: _decimal(means[part]) for name in columns if name.endswith("EpRet") and "Test" not in name},
                "EpLen": _decimal(means[part]),
                "LossQ": _decimal(1.0 / numbers[part]),
                "QVals": _decimal(means[part] / 10.0),
            }
            nan = np.tile(np.frombuffer(b"nan", np.uint8), (part.stop - part.start, 1))
            cells = [cell for name in columns for cell in (of.get(name, nan), _column(b"\t", len(nan)))]
            cells[-1] = _column(b"\n", len(nan))
            file.write(np.concatenate(cells, axis=1).tobytes())


def _column(byte: bytes, rows: int) -> Bytes:
    return np.full((rows, 1), byte[0], np.uint8)


def _digits(values: NDArray[np.int64], width: int) -> Bytes:
    """uint8 [n, width]: each number with leading zeros."""
    found = np.empty((len(values), width), np.uint8)
    rest = values.astype(np.int64)
    for at in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        found[:, at] = digit + ord("0")
    return found


def _decimal(values: NDArray[np.floating[Any]]) -> Bytes:
    """uint8 [n, 14]: seven digits, a point, six digits."""
    digits = _digits(np.rint(values * 1e6).astype(np.int64), 13)
    return np.concatenate([digits[:, :7], _column(b".", len(values)), digits[:, 7:]], axis=1)


# --- log/series.msgpack ---


def write_series(path: Path, evaluations: int, seed: int) -> None:
    """A time series with an interval after each PER_INTERVAL evaluations."""
    one, after = packed(to_builtins(_evaluation())), packed(to_builtins(_interval()))
    blocks = evaluations // PER_INTERVAL
    block = np.frombuffer(one * PER_INTERVAL + after, np.uint8)
    data = np.tile(block, (blocks, 1))
    means = returns(evaluations, seed).reshape(blocks, PER_INTERVAL)
    number = np.arange(1, evaluations + 1).reshape(blocks, PER_INTERVAL)
    wall_s = number * (PAST_S / PER_INTERVAL)
    floats = [(_MARK_TIME_S, NOW_S + wall_s), (_MARK_S, wall_s), (_MARK_RETURN, means), (_MARK_STD, means / 20.0)]
    for at in range(PER_INTERVAL):
        for mark, values in floats:
            _put(data, at * len(one) + _place(one, mark), values[:, at].astype(">f8"))
        _put(data, at * len(one) + _place(one, _MARK_STEP), (STEPS * number[:, at]).astype(">u4"))
        _put(data, at * len(one) + _place(one, _MARK_ITER), (UPDATES * number[:, at]).astype(">u4"))
    begin = PER_INTERVAL * len(one)
    for mark, values in floats[:3]:
        _put(data, begin + _place(after, mark), values[:, -1].astype(">f8"))
    _put(data, begin + _place(after, _MARK_STEP), (STEPS * number[:, -1]).astype(">u4"))
    _put(data, begin + _place(after, _MARK_ITER), (UPDATES * number[:, -1]).astype(">u4"))
    with path.open("wb") as file:
        file.write(packed(to_builtins(Begin(format=FORMAT, time_s=NOW_S))))
        file.write(data.data)


def _put(data: Bytes, at: int, values: NDArray[np.generic]) -> None:
    data[:, at : at + values.itemsize] = values.view(np.uint8).reshape(len(data), -1)


def _place(record: bytes, mark: float) -> int:
    """Where the bytes of this number stand."""
    return record.index(packed(mark)) + 1


def _evaluation() -> Evaluation:
    return Evaluation(
        time_s=_MARK_TIME_S,
        wall_s=_MARK_S,
        env_step=_MARK_STEP,
        train_iter=_MARK_ITER,
        checkpoint="iteration_10000000.pth.tar",
        episodes=10,
        return_mean=_MARK_RETURN,
        return_std=_MARK_STD,
        duration_s=1.5,
        best=False,
    )


def _interval() -> Interval:
    shares = {"work": 0.5, "env": 0.0, "wait_data": 0.25, "wait_policy": 0.0, "wait_credit": 0.125, "wait_other": 0.125}
    roles = [Usage(role, count, 0.5, 200.0, **shares) for role, count in (("learner", 1), ("collector", 8))]
    return Interval(
        time_s=_MARK_TIME_S,
        wall_s=_MARK_S,
        past_s=PAST_S,
        env_step=_MARK_STEP,
        train_iter=_MARK_ITER,
        episode=1_000,
        policy_version=100_000,
        env_steps_per_s=6_666.0,
        train_iters_per_s=1_666.0,
        episodes=100,
        return_mean=_MARK_RETURN,
        buffer_rows=100_000,
        policy_lag=1,
        samples_per_insert=8.0,
        events_left_out=0,
        roles=roles,
        workers=[],
    )
