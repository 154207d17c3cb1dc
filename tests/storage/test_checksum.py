"""The checksum of arrays notices what disks and networks do to them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.storage.tensor_file import checksum

RNG = np.random.default_rng(0)
LARGE = RNG.integers(0, 256, 100_003, np.uint8)
"""Neither a multiple of 8 bytes nor of a block."""


def test_a_small_array_has_its_crc32() -> None:
    array = np.arange(1_000, dtype=np.float32)
    assert checksum(array, 7) == zlib.crc32(array.tobytes(), 7)


@given(st.integers(0, len(LARGE) - 1), st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_noticed(place: int, bit: int) -> None:
    damaged = LARGE.copy()
    damaged[place] ^= 1 << bit
    assert checksum(damaged, 0) != checksum(LARGE, 0)


@pytest.mark.parametrize("page", range(0, 24, 5))
@pytest.mark.parametrize("size", [512, 4_096])
def test_a_lost_page_is_noticed(page: int, size: int) -> None:
    damaged = LARGE.copy()
    damaged[page * size : (page + 1) * size] = 0
    assert checksum(damaged, 0) != checksum(LARGE, 0)


@given(st.integers(0, 23), st.integers(0, 23), st.sampled_from([512, 4_072, 4_096]))
def test_pages_that_have_changed_places_are_noticed(one: int, other: int, size: int) -> None:
    damaged = LARGE.copy()
    damaged[one * size : (one + 1) * size] = LARGE[other * size : (other + 1) * size]
    damaged[other * size : (other + 1) * size] = LARGE[one * size : (one + 1) * size]
    assert (checksum(damaged, 0) == checksum(LARGE, 0)) == (one == other)


def test_the_number_is_the_same_for_ever() -> None:
    """It stands in the headers of files that an earlier version has written."""
    array = np.arange(10_000, dtype=np.uint64)
    by_hand = 0
    for stride, blocks in ((512, 19), (509, 19)):
        sums = [sum(range(place, blocks * stride, stride)) for place in range(stride)]
        rest = list(range(blocks * stride, 10_000))
        for part in (sums, rest):
            by_hand = zlib.crc32(b"".join(number.to_bytes(8, "little") for number in part), by_hand)
    assert checksum(array, 0) == by_hand
