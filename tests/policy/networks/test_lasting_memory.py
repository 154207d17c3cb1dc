"""Memory for large tensors: tensors do not overlap, memory lasts, and huge pages are optional."""

from __future__ import annotations

import gc
import mmap

import pytest
import torch

from remuda.policy.networks import flat_parameters
from remuda.policy.networks.flat_parameters import LEAST_BYTES, PAGE_BYTES, HugePageMemory

SHAPES = [(2, 512, 256), (2, 300, 111), (3, 700, 301), (1,), (5, 1024, 256)]
"""Some are larger than a huge page, one is small."""
NUMBERS = torch.empty(0)


def filled(memory: HugePageMemory) -> list[torch.Tensor]:
    return [memory.empty(shape, like=NUMBERS).fill_(index) for index, shape in enumerate(SHAPES)]


def assert_kept(tensors: list[torch.Tensor]) -> None:
    assert [tuple(tensor.shape) for tensor in tensors] == SHAPES
    for index, tensor in enumerate(tensors):
        assert tensor.dtype == torch.float32
        assert tensor.is_contiguous()
        assert bool((tensor == index).all())


def test_tensors_do_not_overlap_and_outlive_what_gave_them() -> None:
    tensors = filled(HugePageMemory())
    gc.collect()
    assert_kept(tensors)


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages")
def test_a_block_is_whole_huge_pages() -> None:
    memory = HugePageMemory()
    first, second = memory.empty((LEAST_BYTES,), like=NUMBERS), memory.empty((LEAST_BYTES,), like=NUMBERS)
    assert first.data_ptr() % PAGE_BYTES == 0
    assert second.data_ptr() == first.data_ptr() + 4 * LEAST_BYTES


def test_without_huge_pages_it_is_torchs_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_parameters, "_ADVICE", None)
    assert_kept(filled(HugePageMemory()))


def test_a_system_that_refuses_them_gives_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_parameters, "_ADVICE", 9_999)
    assert_kept(filled(HugePageMemory()))


def test_each_is_saved_alone() -> None:
    """torch saves the whole storage of a tensor."""
    for tensor in filled(HugePageMemory()):
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
