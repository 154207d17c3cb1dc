"""Which setting a wrong key is taken for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.config.document import Loc
from remuda.config.schema import ExperimentConfig, LearnerConfig
from remuda.config.suggest import all_keys, nearest_setting, section_at


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
        (("checkpoint", "qqq"), "valid here: interval_env_steps, keep"),
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
    assert suggested == name or (suggested in beside.model_fields and name.split("_")[-1] == suggested.split("_")[-1])


@given(st.text())
def test_any_text_gets_a_hint(name: str) -> None:
    assert nearest_setting((name,)).startswith(("did you mean ", "valid here: "))


def test_sections() -> None:
    assert section_at(()) is ExperimentConfig
    assert section_at(("learner",)) is LearnerConfig
    assert section_at(("learner", "batch_size")) is None
    assert section_at(("nothing", "here")) is None


def test_every_hint_names_a_setting_that_exists() -> None:
    for other in ("lr", "gamma", "replay_size", "env_id", "algorithm", "n_steps", "max_steps"):
        assert nearest_setting((other,)).removeprefix("did you mean ").removesuffix("?") in all_keys()
