"""The loop counts, averages and reports exactly the results of updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.learner import loop as module
from remuda.learner.loop import Batch, DivergedError, LearnerLoop, Metrics
from remuda.policy.algorithms import declaration
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.networks.portable import Portable
from remuda.tests.policy.cases import batch, config, dqn


class Listed:
    """Returns the given batches, then none."""

    def __init__(self, batches: Sequence[Batch | None]) -> None:
        self._batches = list(batches)

    def next_batch(self) -> Batch | None:
        return self._batches.pop(0) if self._batches else None


class Echo(Algorithm):
    """Learns nothing; its results are in the batch."""

    def __init__(self, *, prioritizes: bool = True) -> None:
        self._prioritizes = prioritizes

    def portable(self) -> Portable:
        raise NotImplementedError

    def learn(self, batch: Arrays) -> LearnResult:
        errors = torch.tensor(batch["errors"])
        metrics: dict[str, float | torch.Tensor] = {"loss": errors.mean(), "lr": 0.5, "grad_norm": errors.sum()}
        return LearnResult(metrics, errors if self._prioritizes else None)

    def state(self) -> dict[str, object]:
        raise NotImplementedError

    def load_state(self, state: Mapping[str, object]) -> None:
        raise NotImplementedError

    def load_weights(self, state: Mapping[str, object]) -> None:
        raise NotImplementedError

    def published_state(self) -> dict[str, np.ndarray]:
        return {"weight": np.zeros(2)}


def rows(first: int, errors: list[float], env_step: int = 0) -> Batch:
    return Batch(np.arange(first, first + len(errors)), {"errors": np.array(errors, np.float32)}, env_step)


def loop(batches: Sequence[Batch | None], *, publish: int = 1, report: int = 1, train_iter: int = 0) -> LearnerLoop:
    return LearnerLoop(
        Echo(),
        Listed(batches),
        publish_interval_iters=publish,
        report_interval_iters=report,
        train_iter=train_iter,
        monitored=["loss", "lr", "kl", "entropy"],
        with_statistics=["loss"],
    )


@given(publish=st.integers(1, 7), report=st.integers(1, 7), start=st.integers(0, 20), updates=st.integers(0, 30))
def test_what_is_due_follows_the_count_of_updates(publish: int, report: int, start: int, updates: int) -> None:
    learner = loop([rows(0, [1.0])] * updates, publish=publish, report=report, train_iter=start)
    for train_iter in range(start + 1, start + updates + 1):
        step = learner.step()
        assert step.trained
        assert learner.train_iter == train_iter
        assert step.publish_due == (train_iter % publish == 0)
        assert step.report_due == (train_iter % report == 0)


def test_seldom_updates_are_reported_once_in_each_row_of_progress() -> None:
    """A report is due with the first update after each multiple of 1,000 environment steps, even
    with few updates; the rest is reported at the end."""
    learner = loop([rows(0, [1.0], at) for at in (400, 900, 1_000, 1_300, 5_200, 5_100)], report=100)
    due = [learner.step().report_due for _ in range(5)]
    assert due == [False, False, True, False, True]
    learner.take_metrics()
    assert not learner.step().report_due, "an older counter passes nothing"
    assert learner.has_metrics


def test_metrics_are_of_the_interval_and_taken_once() -> None:
    learner = loop([rows(0, [1.0, 3.0]), rows(2, [6.0]), rows(3, [10.0])])
    learner.step()
    learner.step()
    spread = {"loss_std": 2.0, "loss_max": 6.0, "loss_min": 2.0, "loss_median": 4.0}
    assert learner.take_metrics() == {"loss": 4.0, "lr": 0.5, "grad_norm": 5.0, **spread}
    learner.step()
    got = learner.take_metrics()
    assert (got["loss"], got["lr"], got["grad_norm"], got["loss_std"]) == (10.0, 0.5, 10.0, 0.0)
    many = loop([rows(0, [1e8])] + [rows(0, [1.0])] * 99)
    for _ in range(100):
        many.step()
    assert many.take_metrics()["loss"] == (1e8 + 99) / 100, "small ones do not drown in rounding"
    assert learner.take_metrics() == {}


def test_declared_metrics_that_no_update_returns_are_named_once() -> None:
    """Not before a whole interval: some metrics are returned once an interval."""
    learner = loop([rows(0, [1.0])] * 4, report=3, train_iter=7)
    missing: list[list[str]] = []
    while learner.step().trained:
        missing.append(learner.take_missing())
    assert missing == [[], [], ["kl", "entropy"], []]


def test_priorities_come_in_order_of_training_and_once() -> None:
    learner = loop([rows(5, [1.0, 2.0]), rows(6, [3.0])])
    learner.step()
    learner.step()
    assert not learner.step().trained, "there is no batch"
    priorities = learner.take_priorities()
    assert priorities.rows.tolist() == [5, 6, 6]
    assert priorities.errors.tolist() == [1.0, 2.0, 3.0]
    assert (priorities.rows.dtype.name, priorities.errors.dtype.name) == ("int64", "float32")
    assert learner.take_priorities().rows.size == 0


def test_the_same_batches_through_the_loop_and_by_hand_give_the_same_weights() -> None:
    rng = np.random.default_rng(0)
    batches = [batch(rng) for _ in range(10)]
    by_hand, looped = dqn(seed=1), dqn(seed=1)
    for columns in batches:
        by_hand.learn(columns)
    listed = [Batch(np.arange(16), columns) for columns in batches]
    declared = declaration(config())
    learner = LearnerLoop(
        looped,
        Listed(listed),
        publish_interval_iters=1,
        report_interval_iters=1,
        with_statistics=declared.with_statistics,
    )
    while learner.step().trained:
        pass
    for name, array in by_hand.published_state().items():
        np.testing.assert_array_equal(array, looped.published_state()[name])
    assert tuple(learner.take_metrics()) == declared.told


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("look", [LearnerLoop.require_finite, LearnerLoop.take_metrics])
def test_a_gradient_that_is_not_finite_is_told_later(bad: float, look: Callable[[LearnerLoop], object]) -> None:
    learner = loop([rows(0, [1.0]), rows(1, [bad]), rows(2, [1.0])], train_iter=7)
    learner.step()
    look(learner)
    learner.step()
    learner.step()
    with pytest.raises(DivergedError, match="of the last 2 gradients up to update 10 one is not finite"):
        look(learner)


def test_an_algorithm_without_priorities_has_none_to_tell() -> None:
    source = Listed([rows(0, [0.5])])
    learner = LearnerLoop(Echo(prioritizes=False), source, publish_interval_iters=1, report_interval_iters=1)
    assert learner.step().trained
    assert learner.take_priorities().rows.size == 0


def test_an_update_of_the_users_own_without_a_result_is_named() -> None:
    class Careless(Echo):
        def learn(self, batch: Arrays) -> Any:
            return {"x": 1}

    looped = LearnerLoop(Careless(), Listed([rows(0, [1.0])]), publish_interval_iters=1, report_interval_iters=1)
    with pytest.raises(TypeError, match=r"should return a remuda\.LearnResult, not \{'x': 1\}"):
        looped.step()


def test_of_what_is_told_per_row_or_minibatch_every_number_weighs_the_same() -> None:
    told = Metrics(["value"])
    told.add({"value": torch.tensor([1.0]), "loss": torch.tensor([6.0, 2.0])})
    told.add({"value": torch.tensor([2.0, 3.0, 6.0], dtype=torch.float64), "loss": torch.tensor(4)})
    told.add({"value": torch.zeros(0), "loss": 4.0})
    got = told.take()
    assert told.take() == {}
    assert (got["value"], got["loss"]) == (3.0, 4.0)
    assert (got["value_min"], got["value_max"], got["value_median"]) == (1.0, 6.0, 2.5)
    assert got["value_std"] == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 4))


def test_what_there_is_none_of_is_nan_and_what_is_infinite_is_no_error() -> None:
    told = Metrics(["value"])
    told.add({"value": torch.zeros(0), "kl": torch.zeros(0), "loss": math.inf})
    told.add({"loss": -math.inf})
    assert all(math.isnan(value) for value in told.take().values())


def test_of_very_many_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOINED", 3)
    monkeypatch.setattr(module, "KEPT", 4)
    told = Metrics(["loss", "value", "kl"])
    for number in range(1, 10):
        told.add({"loss": torch.tensor(float(number)), "value": torch.full((2,), float(number)), "kl": float(number)})
    got = told.take()
    assert (got["loss_min"], got["loss_max"], got["kl_min"]) == (6.0, 9.0, 6.0)
    assert (got["value_min"], got["value_max"]) == (8.0, 9.0)


def test_adding_waits_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor without content cannot be waited for."""
    monkeypatch.setattr(module, "JOINED", 2)
    told = Metrics(["loss", "value"])
    for _ in range(5):
        told.add({"loss": torch.empty((), device="meta"), "value": torch.empty(3, device="meta")})
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        told.take()
