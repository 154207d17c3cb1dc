"""The precision of updates is chosen by the config, an earlier choice, timing, or the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.learning import LearnerConfig, Precision
from remuda.config.schema import ExperimentConfig
from remuda.learner.checkpoint import Progress, load, restore, save
from remuda.learner.loop import Batch, LearnerLoop
from remuda.learner.precision import CLEARLY, LARGE, PrecisionTrial, choose_precision, update_threads
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.precision import Hardware, Products
from remuda.policy.row_plan import row_plan
from remuda.policy.spaces import ObservationSpec
from remuda.tests.policy.cases import batch, config, dqn
from remuda.wire.messages import Counters, PolicyRef

Told = str


class Learner:
    """Takes a given number of seconds of a simulated clock per gradient update, in each precision."""

    def __init__(self, float32_s: float, bfloat16_s: float, *, lowers: bool = True, updates: int = 1) -> None:
        self.products = Products(torch.device("cpu"))
        self.now_s = 0.0
        self.used: list[Precision] = []
        self._times_s: dict[Precision, float] = {"float32": float32_s, "bfloat16": bfloat16_s}
        self._lowers, self._updates = lowers, updates
        self.said: list[str] = []

    def learn(self, batch: Arrays) -> LearnResult:
        precision = self.products.precision
        self.used.append(precision)
        self.products.lowered |= self._lowers and precision == "bfloat16"
        first = len(self.used) <= 2
        self.now_s += max(1, self._updates) * self._times_s[precision] * (100.0 if first else 1.0)
        return LearnResult({}, None, self._updates)

    def trial(self) -> PrecisionTrial:
        return PrecisionTrial(self.learn, self.products, say=self.said.append, clock=lambda: self.now_s)

    def until_decided(self) -> int:
        trial, calls = self.trial(), 0
        while self.products.decided is None:
            trial({})
            calls += 1
        trial({})
        return calls


def test_the_faster_precision_is_kept_and_told() -> None:
    learner = Learner(float32_s=0.2, bfloat16_s=0.1)
    calls = learner.until_decided()
    assert learner.products.precision == learner.products.decided == "bfloat16"
    assert learner.used[:4] == ["bfloat16", "float32", "bfloat16", "float32"]
    assert learner.used[calls:] == ["bfloat16"]
    assert learner.said == [
        "precision: products of more than 1048576 multiplications in bfloat16, the rest in float32 (auto: an update "
        "takes 200.00 ms in float32 and 100.00 ms in bfloat16)"
    ]


@pytest.mark.parametrize("bfloat16_s", [0.3, 0.2 / CLEARLY + 1e-6])
def test_float32_stays_unless_the_other_is_clearly_faster(bfloat16_s: float) -> None:
    learner = Learner(float32_s=0.2, bfloat16_s=bfloat16_s)
    learner.until_decided()
    assert learner.products.precision == learner.products.decided == "float32"
    assert learner.said[0].startswith("precision: products in float32 (auto: an update takes 200.00 ms in float32 and")


def test_a_batch_of_several_updates_is_timed_by_the_update() -> None:
    """Few batches are enough though each update is short: PPO computes many updates from a batch."""
    learner = Learner(float32_s=0.2, bfloat16_s=0.1, updates=16)
    assert learner.until_decided() == 2 + 2 * 2
    assert Learner(float32_s=1e-3, bfloat16_s=1e-3, updates=100).until_decided() == 2 + 2 * 2
    assert "takes 200.00 ms in float32 and 100.00 ms in bfloat16" in learner.said[0]


def test_where_no_product_is_large_nothing_is_timed() -> None:
    learner = Learner(float32_s=0.2, bfloat16_s=0.1, lowers=False)
    assert learner.until_decided() == 1
    assert learner.products.decided == "float32"
    assert learner.said == [
        "precision: products in float32 (auto: no product of an update has more than 1048576 multiplications)"
    ]


# --- who decides
def settled(
    algorithm: Dqn, told: Told = "auto", *, timed: bool, has: Hardware, ranks: int = 1
) -> tuple[object, list[str]]:
    lines: list[str] = []
    asked = config(learner=LearnerConfig.model_validate({"precision": told, "ranks": ranks}))
    return choose_precision(asked, algorithm, timed=timed, say=lines.append, has=lambda device: has), lines


def products(algorithm: Dqn) -> Products:
    assert algorithm.products is not None
    return algorithm.products


def precision_of(algorithm: Dqn) -> tuple[Precision, Precision | None]:
    return products(algorithm).precision, products(algorithm).decided


@pytest.mark.parametrize(
    ("told", "has", "timed"), [("float32", Hardware.FASTER, False), ("bfloat16", Hardware.NOTHING, True)]
)
def test_what_the_config_tells_is_done(told: Precision, has: Hardware, *, timed: bool) -> None:
    algorithm = dqn()
    products(algorithm).decided = "bfloat16" if told == "float32" else "float32"  # by an earlier part of the run
    trial, lines = settled(algorithm, told, timed=timed, has=has)
    assert trial is None
    assert precision_of(algorithm) == (told, None)
    assert len(lines) == 1
    assert lines[0].endswith("(as the config says)")


@pytest.mark.parametrize(
    ("has", "expected"),
    [(Hardware.NOTHING, "float32"), (Hardware.INSTRUCTIONS, "float32"), (Hardware.FASTER, "bfloat16")],
)
def test_without_timing_the_machine_decides(has: Hardware, expected: Precision) -> None:
    algorithm = dqn()
    trial, lines = settled(algorithm, timed=False, has=has)
    assert trial is None
    assert precision_of(algorithm) == (expected, expected)
    assert len(lines) == 1
    trial, _ = settled(dqn(), timed=True, has=has)
    assert isinstance(trial, PrecisionTrial) == (has is not Hardware.NOTHING), "where there are no instructions for it"


# --- what is kept

PROGRESS = Progress(Counters(env_step=640, train_iter=20), PolicyRef(epoch=4, version=2, train_iter=20), {})


@pytest.mark.parametrize(("decided", "timed"), [("float32", True), ("bfloat16", False)])
def test_a_resumed_run_keeps_what_was_decided(decided: Precision, tmp_path: Path, *, timed: bool) -> None:
    first, path = dqn(), tmp_path / "iteration_20.pth.tar"
    products(first).decided = decided
    save(path, first, PROGRESS, config=config())
    resumed = dqn(seed=1)
    restore(load(path), resumed)
    opposite = Hardware.FASTER if decided == "float32" else Hardware.NOTHING
    trial, lines = settled(resumed, timed=timed, has=opposite)
    assert trial is None
    assert precision_of(resumed) == (decided, decided)
    assert lines[0].endswith("(auto: as was decided when the run began)")


# --- what cannot be meant
UNREACHED = {"rows": {"kind": "steps", "n_step": 1, "discount": 0.9}, "reuse": "replay", "monitored": ["loss"]}


@pytest.mark.parametrize("policy", [{"type": "muzero"}, {"type": "my_package:Mine", "declaration": UNREACHED}])
def test_bfloat16_is_refused_where_it_does_not_reach(policy: dict[str, object]) -> None:
    asked = {"name": "x", "env": {"id": "CartPole-v1"}, "policy": policy}
    with pytest.raises(ValueError, match=r"learner\.precision is bfloat16, which does not reach"):
        ExperimentConfig.model_validate(asked | {"learner": {"precision": "bfloat16"}})
    for harmless in ("auto", "float32"):
        ExperimentConfig.model_validate(asked | {"learner": {"precision": harmless}})


def chosen(*, images: bool = False, rows: int = 64, most: int = 2) -> tuple[int | None, list[str]]:
    observation = ObservationSpec((4, 36, 36), "uint8", 0.0, 255.0) if images else ObservationSpec((4,), "float32")
    algorithm = dqn(DqnConfig(hidden=(128, 128)), observation=observation)
    lines: list[str] = []
    plan = replace(row_plan(config()), rows_per_update=rows)
    found = update_threads(config(), algorithm, plan, alone=True, say=lines.append, most=lambda *_, **__: most)
    return found, lines


def test_small_networks_have_one_thread() -> None:
    assert chosen() == chosen(images=True, most=1) == (None, [])


def test_convolutions_and_large_batches_have_several() -> None:
    line = "threads: an update uses 2, on cores that the rest of this run does not need"
    assert chosen(images=True) == chosen(rows=LARGE // 10_000) == (2, [line])


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
