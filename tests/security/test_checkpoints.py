"""19. Checkpoints made to harm: what they would run or take is refused, before it happens."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remuda.policy.files.checkpoint_file import MOST_DEEP, CheckpointError, encode, read, require_plain_pickle
from remuda.tests.patience import HANG_S
from remuda.wire.messages import Counters

MOST_BYTES = 20 << 20


def with_pickle(path: Path, content: bytes) -> Path:
    """A checkpoint whose pickle is replaced by this one."""
    buffer = io.BytesIO()
    torch.save({"model": torch.zeros(3)}, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as target:
        for member in source.infolist():
            is_pickle = member.filename.endswith("data.pkl")
            target.writestr(member.filename, content if is_pickle else source.read(member))
    return path


def number(value: int) -> bytes:
    return b"\x8a\x08" + value.to_bytes(8, "little")


def doubled(innermost: bytes, levels: int) -> bytes:
    """A tuple of two, each of which is a tuple of two, each of which …: four bytes per level."""
    return innermost + b"".join(b"q\x01h\x01\x86" for _ in range(levels))


HARMFUL = {
    "memory by a number": b"\x80\x02cbuiltins\nbytearray\n" + number(1 << 40) + b"\x85R.",
    "a storage of that size": b"\x80\x02ctorch.storage\nUntypedStorage\n" + number(1 << 40) + b"\x85R.",
    "a function": b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.",
    "a function by its stack": b"\x80\x04\x8c\x05posix\x8c\x06system\x93X\x04\0\0\0true\x85R.",
    "a key that unfolds": b"\x80\x02}" + doubled(b"K\x01", 60) + b"K\x00s.",
    "a list that unfolds": b"\x80\x02" + b"]q\x01" + b"".join(b"](h\x01h\x01eq\x01" for _ in range(60)) + b".",
    "a list that holds itself": b"\x80\x02]q\x01h\x01a.",
    "lists in lists": b"\x80\x02" + b"]" * 5_000 + b"a" * 4_999 + b".",
    "no end": b"\x80\x02}",
    "an operation of nobody": b"\x80\x02\xff.",
}


@pytest.mark.parametrize("content", HARMFUL.values(), ids=HARMFUL)
@pytest.mark.timeout(HANG_S)
def test_a_pickle_that_would_take_much_or_run_something_is_not_read(tmp_path: Path, content: bytes) -> None:
    path = with_pickle(tmp_path / "iteration_0.pth.tar", content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="iteration_0"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


PLAIN: dict[str, Callable[[], object]] = {
    "tensors of every dtype": lambda: [
        torch.zeros(2, dtype=each) for each in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
    ],
    "an optimizer": lambda: torch.optim.Adam([torch.nn.Parameter(torch.ones(2))]).state_dict(),
    "a network": lambda: torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict(),
    "bytes, sets, numbers": lambda: [b"\0\xff" * 9, {1, 2}, 2**70, 1.5, None, True, "é", (1, (2, 3)), 3j],
    "many numbers": lambda: list(range(100_000)),
    "a generator's state": lambda: [torch.get_rng_state(), np.random.default_rng(1).bit_generator.state],
}


@pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN)
def test_what_a_loop_may_save_is_read(tmp_path: Path, make: Callable[[], Any]) -> None:
    (tmp_path / "x").write_bytes(encode({"own": make()}, Counters()))
    assert "own" in read(tmp_path / "x")


def test_the_bounds_are_those_that_it_names() -> None:
    def lists(levels: int) -> bytes:
        return b"\x80\x02" + b"]" * levels + b"a" * (levels - 1) + b"."

    require_plain_pickle(lists(MOST_DEEP))
    with pytest.raises(ValueError, match=f"deeper than {MOST_DEEP} levels"):
        require_plain_pickle(lists(MOST_DEEP + 1))
    require_plain_pickle(b"\x80\x02" + doubled(b"K\x01", 18) + b".")
    with pytest.raises(ValueError, match="unfolds to more than"):
        require_plain_pickle(b"\x80\x02" + doubled(b"K\x01", 20) + b".")
