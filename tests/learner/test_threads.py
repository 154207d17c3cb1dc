"""Updates with several threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.learner.loop import Batch, LearnerLoop
from remuda.learner.precision import LARGE, update_threads
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.tensors import threads
from remuda.policy.row_plan import row_plan
from remuda.policy.spaces import ObservationSpec
from remuda.tests.policy.cases import batch, config, dqn


def chosen(*, images: bool = False, rows: int = 64, most: int = 2) -> tuple[int | None, list[str]]:
    observation = ObservationSpec((4, 36, 36), "uint8", 0.0, 255.0) if images else ObservationSpec((4,), "float32")
    algorithm = dqn(DqnConfig(hidden=(128, 128)), observation=observation)
    lines: list[str] = []
    plan = replace(row_plan(config()), rows_per_update=rows)
    found = update_threads(config(), algorithm, plan, alone=True, say=lines.append, most=lambda *_, **__: most)
    return found, lines


def test_small_networks_have_one_thread() -> None:
    assert chosen() == (None, [])


def test_convolutions_and_large_batches_have_several() -> None:
    line = "threads: an update uses 2, on cores that the rest of this run does not need"
    assert chosen(images=True) == chosen(rows=LARGE // 10_000) == (2, [line])


def test_where_no_core_is_free_nothing_is_said() -> None:
    assert chosen(images=True, most=1) == (None, [])


def test_threads_are_those_of_a_block() -> None:
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
        with threads(None):
            assert torch.get_num_threads() == before + 1
    with pytest.raises(ValueError, match="broken"), threads(before + 2):
        raise ValueError("broken")
    assert torch.get_num_threads() == before


class Once:
    """One batch."""

    def __init__(self) -> None:
        self._left = [batch(np.random.default_rng(0))]

    def next_batch(self) -> Batch | None:
        return Batch(np.arange(16), self._left.pop()) if self._left else None


def test_the_loop_learns_with_them_and_gives_them_back() -> None:
    before, algorithm, seen = torch.get_num_threads(), dqn(), list[int]()

    def learn(columns: Arrays) -> LearnResult:
        seen.append(torch.get_num_threads())
        return algorithm.learn(columns)

    loop = LearnerLoop(
        algorithm, Once(), publish_interval_iters=1, report_interval_iters=1, learn=learn, update_threads=before + 1
    )
    assert loop.step().trained
    assert seen == [before + 1]
    assert torch.get_num_threads() == before
