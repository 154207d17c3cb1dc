"""An algorithm is one entry, and nothing else in the product knows an algorithm by name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

import pytest

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.custom import BUILT_IN, CustomConfig
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.config.algorithms.policy import PolicyConfig
from remuda.config.algorithms.q_learning import DqnConfig, R2d2Config, RainbowConfig
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config
from remuda.config.declaration import Declaration, RowShape, Segments, Sequences, Steps, Unrolls
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy import algorithms
from remuda.policy.algorithms import ENTRIES, UnknownAlgorithmError, declaration
from remuda.policy.row_plan import UnsupportedReuseError, row_plan
from remuda.tests.test_house import ROOT, product_files

SEQUENCES = Sequences(burn_in_steps=1, sequence_steps=4, overlap_steps=2, n_step=1, discount=0.9)
SECTIONS: list[PolicyConfig] = [DqnConfig(), RainbowConfig(), PpoConfig(), ImpalaConfig(), MuZeroConfig(), R2d2Config()]
SECTIONS += [SacConfig(), Td3Config()]


def experiment(policy: PolicyConfig) -> ExperimentConfig:
    return ExperimentConfig(name="entry", env=EnvConfig(id="CartPole-v1"), policy=policy)


def test_every_section_of_the_config_has_its_entry() -> None:
    assert {kind: entry.settings for kind, entry in ENTRIES.items()} == {
        section.type: type(section) for section in SECTIONS
    }
    assert set(ENTRIES) == set(BUILT_IN)


def test_rows_and_reuse_are_said_by_the_entry() -> None:
    dqn, ppo = experiment(DqnConfig(n_step=5, discount=0.9)), experiment(PpoConfig(horizon_steps=17, discount=0.8))
    assert (declaration(dqn).rows, declaration(dqn).reuse) == (Steps(n_step=5, discount=0.9), "replay")
    assert (declaration(ppo).rows, declaration(ppo).reuse) == (Segments(horizon_steps=17, discount=0.8), "once")
    assert (row_plan(dqn).on_policy, row_plan(ppo).on_policy, row_plan(ppo).slots_per_row) == (False, True, 17)


def test_an_algorithm_without_an_entry_is_an_error_that_names_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have been taken for an on-policy one."""
    monkeypatch.delitem(algorithms.ENTRIES, "impala")
    with pytest.raises(UnknownAlgorithmError, match="no algorithm 'impala'; there are dqn, rainbow, ppo"):
        row_plan(experiment(ImpalaConfig()))


def custom(rows: RowShape, reuse: Literal["replay", "once"]) -> ExperimentConfig:
    declared = Declaration(rows=rows, reuse=reuse, monitored=("loss",))
    return experiment(CustomConfig(type="mine:Mine", declaration=declared))


def test_unrolls_are_replayed_as_steps_are() -> None:
    steps = custom(Steps(n_step=1, discount=0.9), "replay")
    unrolls = custom(Unrolls(unroll_steps=5, n_step=10, discount=0.9), "replay")
    assert unrolls.policy.segment_steps is None
    for collectors in (None, 1):
        plans = [row_plan(config, collectors=collectors) for config in (unrolls, steps)]
        held_back = [plan.rows_held_back for plan in plans]
        assert held_back == [8 * 15, 8 * 1], "windows of eight environments"
        assert replace(plans[0], rows_held_back=8) == plans[1]


@pytest.mark.parametrize(
    ("rows", "reuse"),
    [
        (Steps(n_step=1, discount=0.9), "once"),
        (Unrolls(unroll_steps=1, n_step=1, discount=0.9), "once"),
        (SEQUENCES, "once"),
        (Segments(horizon_steps=1, discount=0.9), "replay"),
    ],
)
def test_rows_that_cannot_be_reused_so_are_an_error_that_says_what_can(
    rows: RowShape, reuse: Literal["replay", "once"]
) -> None:
    """They would have been taken for others."""
    said = f"policy.type mine:Mine: {type(rows).__name__} with reuse '{reuse}'; there are Steps, Unrolls and "
    said += "Sequences with reuse"
    with pytest.raises(UnsupportedReuseError, match=re.escape(said)):
        row_plan(custom(rows, reuse))


def test_a_custom_algorithm_without_its_declaration_is_an_error_that_says_what_fills_it_in() -> None:
    """A coordinator does not import it, and can do nothing without."""
    with pytest.raises(UnknownAlgorithmError, match=r"comes without its policy\.declaration: load the config with"):
        declaration(experiment(CustomConfig(type="mine:Mine")))


def test_nobody_outside_the_algorithms_asks_which_one_it_is() -> None:
    asks = re.compile(r"isinstance\([^)]*\.policy\b|policy\.type\s*[!=]=")
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in product_files()
        if not path.is_relative_to(ROOT / "policy" / "algorithms")
        for line in path.read_text(encoding="utf-8").splitlines()
        if asks.search(line)
    ]
    assert wrong == []
