"""Which setting a wrong key is taken for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.config.errors import Loc
from remuda.config.explain import all_keys, as_written, nearest_setting, section_at


@pytest.mark.parametrize(
    ("loc", "hint"),
    [
        (("lerner",), "did you mean learner?"),
        (("Seed",), "did you mean seed?"),
        (("learner", "batchsize"), "did you mean learner.batch_size?"),
        (("learner", "capacity"), "did you mean buffer.capacity?"),
        (("learner", "lr"), "did you mean learner.learning_rate?"),
        (("gamma",), "did you mean policy.discount?"),
        (("stop", "max_steps"), "did you mean stop.max_env_steps?"),
        (("checkpoint", "qqq"), "valid here: interval_env_steps, interval_s, keep"),
        (("env", "kwargs", "anything"), ""),
    ],
)
def test_nearest(loc: Loc, hint: str) -> None:
    assert nearest_setting(loc) == hint


@given(st.sampled_from(sorted(all_keys())), st.data())
def test_one_slip_of_the_finger_is_understood(key: str, data: st.DataObject) -> None:
    """Whatever letter is left out of whatever longer name, the section's own name is suggested."""
    *section, name = all_keys()[key]
    name = str(name)
    if len(name) < 6:
        return
    at = data.draw(st.integers(0, len(name) - 1))
    slip = name[:at] + name[at + 1 :]
    beside = section_at(tuple(section))
    assert beside is not None
    suggested = nearest_setting((*section, slip)).removeprefix("did you mean ").removesuffix("?").split(".")[-1]
    equal_end = suggested in beside.model_fields and name.split("_")[-1] == suggested.split("_")[-1]
    as_near = slip in {suggested[:at] + suggested[at + 1 :] for at in range(len(suggested))}  # num_pus
    assert suggested == name or equal_end or as_near


@pytest.mark.parametrize(
    ("name", "kind", "hint"),
    [
        ("horizon_steps", "dqn", "; policy.type ppo or impala or pqn has it"),
        ("gae_lambda", "sac", "; policy.type ppo has it"),
        ("recurrent", "sac", "; policy.type ppo or impala or pqn or r2d2 has it"),
        ("precision", "ppo", "did you mean learner.precision?"),
        ("batch_size", "dqn", "did you mean learner.batch_size?"),
        ("batch_size", "ppo", "did you mean learner.segments_per_update?"),
        ("batch_size", "impala", "did you mean learner.segments_per_update?"),
    ],
)
def test_what_other_algorithms_have(name: str, kind: str, hint: str) -> None:
    """A config without a type is one of dqn: the type is what is wrong, not the name."""
    assert nearest_setting(("policy", name), kind).endswith(hint)


@pytest.mark.parametrize(
    ("loc", "written"),
    [
        (("policy", "ppo", "clip"), (("policy", "clip"), "ppo")),
        (("policy", "dqn", "hidden", 1), (("policy", "hidden", 1), "dqn")),
        (("policy", "ppo"), (("policy",), "ppo")),
        (("policy",), (("policy",), None)),
        (("env", "kwargs", "ppo"), (("env", "kwargs", "ppo"), None)),
        ((), ((), None)),
    ],
)
def test_where_an_error_lies_in_the_file(loc: Loc, written: tuple[Loc, str | None]) -> None:
    assert as_written(loc) == written
