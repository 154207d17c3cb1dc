"""A population's decisions: who continues from whom, and with which settings."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remuda.client.sweeps.population import Descent, Population, first_settings, next_descents
from remuda.client.sweeps.space import Distribution

SPACE = {
    "learner.learning_rate": Distribution(low=1e-5, high=1e-2, log=True),
    "policy.epochs": Distribution(low=1, high=9),
    "policy.clip": Distribution(low=0.1, high=0.5, step=0.2),
    "policy.minibatches": Distribution(values=(2, 4, 8)),
}


def fits(key: str, value: object) -> bool:
    """True if a value is one of its distribution's."""
    if key == "policy.minibatches":
        return value in (2, 4, 8)
    if key == "policy.epochs":
        return isinstance(value, int) and 1 <= value <= 9
    if key == "policy.clip":
        return isinstance(value, float) and any(abs(value - known) < 1e-9 for known in (0.1, 0.3, 0.5))
    return isinstance(value, float) and 1e-5 <= value <= 1e-2


@given(
    returns=st.lists(st.none() | st.floats(-1e3, 1e3), min_size=2, max_size=12).filter(
        lambda some: some.count(None) < len(some)
    ),
    share=st.floats(0.01, 0.5),
    resample=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1_000),
)
def test_the_worst_copy_better_members(returns: list[float | None], share: float, resample: float, seed: int) -> None:
    pbt = Population(
        population=len(returns),
        interval_env_steps=1,
        space=SPACE,
        replaced=share,
        resample=resample,
        factors=(0.8, 1.3),
    )
    before = first_settings(pbt, np.random.default_rng(seed))
    after = next_descents(pbt, returns, before, np.random.default_rng([seed, 1]))
    assert after == next_descents(pbt, returns, before, np.random.default_rng([seed, 1])), "the seed decides"
    order = sorted(-np.inf if one is None else one for one in returns)
    count = max(1, int(len(returns) * share + 1e-9))
    failed = returns.count(None)
    replaced = [member for member, descent in enumerate(after) if descent.parent != member]
    assert len(replaced) <= max(count, failed)
    assert {member for member, one in enumerate(returns) if one is None} <= set(replaced)
    for member, descent in enumerate(after):
        own, parent = returns[member], returns[descent.parent]
        if descent.parent == member:
            assert descent.settings == before[member]
            continue
        assert parent is not None
        assert own is None or own < parent
        assert parent >= order[-count]
        assert own is None or own <= order[max(count, failed) - 1]
        assert all(fits(key, value) for key, value in descent.settings.items())
    assert all(fits(key, value) for one in before for key, value in one.items())


def test_a_change_multiplies_or_takes_a_neighbour() -> None:
    pbt = Population(population=2, interval_env_steps=1, space=SPACE, factors=(1.01,), resample=0.0)
    settings = [{"learner.learning_rate": 1e-3, "policy.epochs": 3, "policy.clip": 0.3, "policy.minibatches": 2}] * 2
    kept, changed = next_descents(pbt, [5.0, 1.0], settings, np.random.default_rng(0))
    assert kept == Descent(0, settings[0])
    assert changed.parent == 0
    assert changed.settings["learner.learning_rate"] == 1e-3 * 1.01
    assert changed.settings["policy.epochs"] == 4, "a whole number moves by one at least"
    assert changed.settings["policy.clip"] == 0.5, "and a step"
    assert changed.settings["policy.minibatches"] in (2, 4)
