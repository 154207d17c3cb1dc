"""Several learner ranks are refused where they could not learn together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.declaration import Declaration, Segments, Steps
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import declaration


def config(policy: object, **learner: object) -> ExperimentConfig:
    sections = {"name": "x", "env": {"id": "CartPole-v1"}, "policy": policy, "learner": {"ranks": 2, **learner}}
    return ExperimentConfig.model_validate(sections)


def declared(*, learns_from_parts: bool) -> dict[str, object]:
    steps = Steps(n_step=1, discount=0.9)
    says = Declaration(rows=steps, reuse="replay", monitored=("loss",), learns_from_parts=learns_from_parts)
    return {"type": "mine:Mine", "declaration": says.model_dump()}


@pytest.mark.parametrize(
    "policy",
    [
        *({"type": kind} for kind in ("dqn", "ppo", "impala", "pqn", "sac", "td3")),
        declared(learns_from_parts=True),
        {"type": "mine:Mine"},
    ],
)
def test_one_that_declares_it_or_whose_declaration_is_not_known_yet_is_taken(policy: dict[str, object]) -> None:
    assert config(policy).learner.ranks == 2


@pytest.mark.parametrize("name", BUILT_IN)
def test_settings_say_the_same_as_declarations(name: str) -> None:
    """The config is checked by the settings, before there is a declaration."""
    alone = config({"type": name}, ranks=1)
    policy, told = alone.policy, declaration(alone)
    assert told.learns_from_parts == (not policy.needs_whole_batches)
    assert told.lowers_products == policy.lowers_products
    assert (told.reanalyzed.share if told.reanalyzed else None) == policy.reanalyzed_share
    assert (told.rows.horizon_steps if isinstance(told.rows, Segments) else None) == policy.segment_steps
    assert (told.reuse == "once") == (policy.segment_steps is not None)


def test_every_rank_has_a_row() -> None:
    with pytest.raises(ValidationError, match=r"learner.ranks \(4\) is more than the rows of a batch \(3\)"):
        config({"type": "dqn"}, ranks=4, batch_size=3)
    with pytest.raises(ValidationError, match=r"learner.ranks \(4\) is more than the rows of a batch \(3\)"):
        config({"type": "ppo"}, ranks=4, segments_per_update=3)
    assert config({"type": "ppo"}, ranks=4, segments_per_update=4).learner.ranks == 4


def test_it_is_said_why() -> None:
    with pytest.raises(ValidationError, match=r"type ppo cannot .* of a batch \(policy.recurrent is set\): set it"):
        config({"type": "ppo", "recurrent": "gru"})
    with pytest.raises(ValidationError, match=r"batch \(its declaration does not say learns_from_parts\): set"):
        config(declared(learns_from_parts=False))
    with pytest.raises(ValidationError, match=r"learner\.ranks is 2, and policy\.type muzero cannot learn from parts"):
        config({"type": "muzero"})
    assert config({"type": "muzero"}, ranks=1).learner.ranks == 1
