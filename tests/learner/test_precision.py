"""The precision of updates is chosen by the config, an earlier choice, timing, or the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from remuda.config.learning import LearnerConfig, Precision
from remuda.config.schema import ExperimentConfig
from remuda.learner.checkpoint import Progress, load, restore, save
from remuda.learner.precision import CLEARLY, MOST, PrecisionTrial, choose_precision
from remuda.learner.ranks.following import load_saved, saved
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.precision import Hardware, Products
from remuda.tests.policy.cases import config, dqn
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


@pytest.mark.parametrize("bfloat16_s", [0.3, 0.2, 0.2 / CLEARLY + 1e-6])
def test_float32_stays_unless_the_other_is_clearly_faster(bfloat16_s: float) -> None:
    learner = Learner(float32_s=0.2, bfloat16_s=bfloat16_s)
    learner.until_decided()
    assert learner.products.precision == learner.products.decided == "float32"
    assert learner.said[0].startswith("precision: products in float32 (auto: an update takes 200.00 ms in float32 and")


def test_short_updates_are_timed_often_and_long_ones_seldom() -> None:
    """The first call in each precision is not timed."""
    assert Learner(float32_s=1e-4, bfloat16_s=1e-5).until_decided() == 2 + 2 * MOST
    assert Learner(float32_s=5.0, bfloat16_s=2.0).until_decided() == 2 + 2 * 2


def test_a_batch_of_several_updates_is_timed_by_the_update() -> None:
    """Few batches are enough though each update is short: PPO computes many updates from a batch."""
    learner = Learner(float32_s=0.2, bfloat16_s=0.1, updates=16)
    assert learner.until_decided() == 2 + 2 * 2
    assert Learner(float32_s=1e-3, bfloat16_s=1e-3, updates=100).until_decided() == 2 + 2 * 2
    assert "takes 200.00 ms in float32 and 100.00 ms in bfloat16" in learner.said[0]


def test_a_batch_without_any_update_is_not_timed() -> None:
    learner = Learner(float32_s=0.2, bfloat16_s=0.1, updates=0)
    trial = learner.trial()
    for _ in range(100):
        trial({})
    assert learner.products.decided is None


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


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("has", list(Hardware))
@pytest.mark.parametrize("told", ["float32", "bfloat16"])
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


def test_nothing_is_timed_where_there_are_no_instructions() -> None:
    algorithm = dqn()
    trial, lines = settled(algorithm, timed=True, has=Hardware.NOTHING)
    assert trial is None
    assert precision_of(algorithm) == ("float32", "float32")
    assert lines == ["precision: products in float32 (auto: cpu has no instructions for bfloat16)"]


@pytest.mark.parametrize("has", [Hardware.INSTRUCTIONS, Hardware.FASTER])
def test_otherwise_updates_are_timed(has: Hardware) -> None:
    trial, lines = settled(dqn(), timed=True, has=has)
    assert isinstance(trial, PrecisionTrial)
    assert lines == ["precision: auto: the first updates are computed alternately in float32 and bfloat16, and timed"]


# --- what is kept

PROGRESS = Progress(Counters(env_step=640, train_iter=20), PolicyRef(epoch=4, version=2, train_iter=20), {})


@pytest.mark.parametrize("decided", ["float32", "bfloat16"])
@pytest.mark.parametrize("timed", [False, True])
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


def test_checkpoints_from_before_there_was_a_choice_are_read(tmp_path: Path) -> None:
    path = tmp_path / "iteration_20.pth.tar"
    save(path, dqn(), PROGRESS, config=config())
    content = torch.load(path, weights_only=True)
    assert content.pop("precision") is None
    torch.save(content, path)
    resumed = dqn()
    restore(load(path), resumed)
    assert products(resumed).decided is None


@pytest.fixture
def generator() -> Iterator[None]:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


@pytest.mark.usefixtures("generator")
def test_all_ranks_begin_with_the_precision_of_the_first() -> None:
    first, second = dqn(), dqn(seed=1)
    products(first).precision = "bfloat16"
    load_saved(saved(first), second)
    assert products(second).precision == "bfloat16"


# --- what cannot be meant


UNREACHED = {"rows": {"kind": "steps", "n_step": 1, "discount": 0.9}, "reuse": "replay", "monitored": ["loss"]}


@pytest.mark.parametrize("policy", [{"type": "muzero"}, {"type": "my_package:Mine", "declaration": UNREACHED}])
def test_bfloat16_is_refused_where_it_does_not_reach(policy: dict[str, object]) -> None:
    asked = {"name": "x", "env": {"id": "CartPole-v1"}, "policy": policy}
    with pytest.raises(ValueError, match=r"learner\.precision is bfloat16, which does not reach"):
        ExperimentConfig.model_validate(asked | {"learner": {"precision": "bfloat16"}})
    for harmless in ("auto", "float32"):
        ExperimentConfig.model_validate(asked | {"learner": {"precision": harmless}})
