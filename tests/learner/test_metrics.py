"""Metrics: every number has the same weight, none is lost, and none waits for the device."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from remuda.learner import loop
from remuda.learner.loop import Metrics, on_host


def test_five_statistics_of_the_updates_since_the_last_call() -> None:
    told = Metrics(["loss"])
    for loss in (1.0, 2.0, 4.0, 9.0):
        told.add({"loss": torch.tensor(loss), "cur_lr": 0.5})
    assert told.take() == {
        "loss": 4.0,
        "cur_lr": 0.5,
        "loss_std": math.sqrt((9 + 4 + 0 + 25) / 4),
        "loss_max": 9.0,
        "loss_min": 1.0,
        "loss_median": 3.0,
    }
    assert told.take() == {}
    told.add({"loss": torch.tensor(3.0)})
    assert told.take()["loss_min"] == 3.0


def test_of_what_is_told_per_row_or_minibatch_every_number_weighs_the_same() -> None:
    told = Metrics(["value"])
    told.add({"value": torch.tensor([1.0]), "loss": torch.tensor([6.0, 2.0])})
    told.add({"value": torch.tensor([2.0, 3.0, 6.0]), "loss": torch.tensor(4.0)})
    told.add({"value": torch.zeros(0)})
    got = told.take()
    assert (got["value"], got["loss"]) == (3.0, 4.0)
    assert (got["value_min"], got["value_max"], got["value_median"]) == (1.0, 6.0, 2.5)
    assert got["value_std"] == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 4))


def test_what_there_is_none_of_is_nan_and_what_is_infinite_is_no_error() -> None:
    told = Metrics(["value"])
    told.add({"value": torch.zeros(0), "kl": torch.zeros(0), "loss": math.inf})
    told.add({"loss": -math.inf})
    assert all(math.isnan(value) for value in told.take().values())


def test_plain_numbers_and_tensors_of_other_types_mix() -> None:
    values: list[float | torch.Tensor] = [1.0, torch.tensor(2), torch.tensor([3.0], dtype=torch.float64)]
    values.append(torch.tensor([4.0], dtype=torch.bfloat16))
    assert sorted(on_host(values).tolist()) == [1.0, 2.0, 3.0, 4.0]
    assert on_host([torch.tensor([5.0], requires_grad=True)]).tolist() == [5.0]
    assert on_host([]).dtype == np.float64


def test_of_very_many_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "JOINED", 3)
    monkeypatch.setattr(loop, "KEPT", 4)
    told = Metrics(["loss", "value", "kl"])
    for number in range(1, 10):
        told.add({"loss": torch.tensor(float(number)), "value": torch.full((2,), float(number)), "kl": float(number)})
    got = told.take()
    assert (got["loss_min"], got["loss_max"], got["kl_min"]) == (6.0, 9.0, 6.0)
    assert (got["value_min"], got["value_max"]) == (8.0, 9.0)


def test_joining_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "JOINED", 4)
    told, kept = Metrics(["value"]), []
    rng = np.random.default_rng(0)
    for update in range(23):
        numbers = rng.normal(size=update % 3).astype(np.float32)
        kept.append(numbers)
        told.add({"value": torch.from_numpy(numbers), "one": torch.tensor(update)})
    got, all_ = told.take(), np.concatenate(kept).astype(np.float64)
    assert got["value"] == pytest.approx(all_.mean(), rel=1e-12)
    assert (got["value_median"], got["value_max"]) == (np.median(all_), all_.max())
    assert got["one"] == 11.0


def test_adding_waits_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor without content cannot be waited for."""
    monkeypatch.setattr(loop, "JOINED", 2)
    told = Metrics(["loss", "value"])
    for _ in range(5):
        told.add({"loss": torch.empty((), device="meta"), "value": torch.empty(3, device="meta")})
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        told.take()
