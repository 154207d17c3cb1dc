"""What all tests of MuZero do."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Generator[None]:
    """As in every process of a run: on a busy machine threads would wait for each other more than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
