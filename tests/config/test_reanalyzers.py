"""Reanalyzers are refused where there is nothing to compute again."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from remuda.config.algorithms.registry import CustomConfig
from remuda.config.declaration import Declaration, ReanalyzedColumns, Segments, Steps
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import configs_of_policies
from remuda.policy.algorithms import reanalyzed_by_workers

STEPS = Steps(n_step=1, discount=0.9)
COLUMNS = ReanalyzedColumns(columns=("found",), share=0.5)


def config(policy: object, count: int = 1, **sections: object) -> ExperimentConfig:
    known = {"name": "x", "env": {"id": "CartPole-v1"}, "policy": policy, "reanalyzer": {"count": count}}
    return ExperimentConfig.model_validate({**known, **sections})


def declared(reanalyzed: ReanalyzedColumns | None) -> dict[str, object]:
    declaration = Declaration(rows=STEPS, reuse="replay", monitored=("loss",), reanalyzed=reanalyzed)
    return {"type": "mine:Mine", "declaration": declaration.model_dump()}


@pytest.mark.parametrize("policy", [{"type": "dqn"}, {"type": "ppo"}, {"type": "impala"}, declared(None)])
def test_an_algorithm_that_declares_none_is_refused(policy: dict[str, object]) -> None:
    message = f"reanalyzer.count is 1, and policy.type {policy['type']} has nothing to compute again: set it to 0"
    with pytest.raises(ValidationError, match=message):
        config(policy)
    assert reanalyzed_by_workers(config(policy, 0)) is None


def test_one_that_declares_some_is_taken() -> None:
    assert reanalyzed_by_workers(config(declared(COLUMNS))) == COLUMNS
    assert reanalyzed_by_workers(config(declared(COLUMNS), 0)) is None
    muzero = reanalyzed_by_workers(config({"type": "muzero", "reanalyze_ratio": 0.25}))
    assert muzero is not None
    assert muzero.share == 0.25
    assert reanalyzed_by_workers(config({"type": "muzero"})) is None, "its share is 0"
    assert isinstance(config({"type": "mine:Mine"}).policy, CustomConfig), "not declared yet"


def test_a_policy_among_several_that_declares_none_leaves_them_to_the_others() -> None:
    env = {"kind": "pettingzoo", "make": "game:make", "agents": ["a", "b"]}
    policies = {"a": {"agents": ["a"]}, "b": {"agents": ["b"], "policy": {"type": "muzero", "reanalyze_ratio": 1.0}}}
    both = config({"type": "dqn"}, env=env, policies=policies)
    assert both.reanalyzers == 1
    assert [reanalyzed_by_workers(own) is not None for own in configs_of_policies(both).values()] == [False, True]
    with pytest.raises(ValidationError, match=r"policy.type dqn, ppo has nothing to compute again"):
        config({"type": "dqn"}, env=env, policies={**policies, "b": {"agents": ["b"], "policy": {"type": "ppo"}}})


def test_rows_that_are_used_once_are_never_computed_again() -> None:
    with pytest.raises(ValidationError, match="reanalyzed needs reuse 'replay'"):
        Declaration(rows=Segments(horizon_steps=4, discount=0.9), reuse="once", monitored=("loss",), reanalyzed=COLUMNS)
