"""An algorithm is one entry, and nothing else in the product knows an algorithm by name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from remuda.config.schema import DqnConfig, EnvConfig, ExperimentConfig, ImpalaConfig, PolicyConfig, PpoConfig
from remuda.policy import algorithms
from remuda.policy.algorithms import ENTRIES, UnknownAlgorithmError, declaration, entry_of, row_shape
from remuda.policy.entry import Segments, Steps
from remuda.policy.row_plan import UnsupportedReuseError, row_plan

ROOT = Path(__file__).parents[2]
SECTIONS: list[PolicyConfig] = [DqnConfig(), PpoConfig(), ImpalaConfig()]


def experiment(policy: PolicyConfig) -> ExperimentConfig:
    return ExperimentConfig(name="entry", env=EnvConfig(id="CartPole-v1"), policy=policy)


def test_every_section_of_the_config_has_its_entry() -> None:
    assert {entry_of(experiment(section)).type for section in SECTIONS} == set(ENTRIES) == {"dqn", "ppo", "impala"}


def test_rows_and_reuse_are_said_by_the_entry() -> None:
    dqn, ppo = experiment(DqnConfig(n_step=5, discount=0.9)), experiment(PpoConfig(horizon_steps=17, discount=0.8))
    assert (row_shape(dqn), declaration(dqn).reuse) == (Steps(n_step=5, discount=0.9), "replay")
    assert (row_shape(ppo), declaration(ppo).reuse) == (Segments(horizon_steps=17, discount=0.8), "once")
    assert (row_plan(dqn).on_policy, row_plan(ppo).on_policy, row_plan(ppo).slots_per_row) == (False, True, 17)


def test_an_algorithm_without_an_entry_is_an_error_that_names_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have been taken for an on-policy one."""
    monkeypatch.delitem(algorithms.ENTRIES, "impala")
    with pytest.raises(UnknownAlgorithmError, match="no algorithm 'impala'; there are dqn, ppo"):
        row_plan(experiment(ImpalaConfig()))


def test_rows_that_cannot_be_reused_so_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ENTRIES["dqn"]
    monkeypatch.setitem(ENTRIES, "dqn", replace(entry, declaration=replace(entry.declaration, reuse="once")))
    with pytest.raises(UnsupportedReuseError, match=r"policy\.type dqn: Steps with reuse 'once'"):
        row_plan(experiment(DqnConfig()))


def test_nobody_outside_the_algorithms_asks_which_one_it_is() -> None:
    asks = re.compile(r"isinstance\([^)]*\.policy\b|policy\.type\s*[!=]=")
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted(ROOT.glob("*/**/*.py"))
        if path.relative_to(ROOT).parts[0] not in {"tests", "benchmarks", "examples", ".venv", ".typing"}
        and not path.is_relative_to(ROOT / "policy" / "algorithms")
        for line in path.read_text(encoding="utf-8").splitlines()
        if asks.search(line)
    ]
    assert wrong == []
