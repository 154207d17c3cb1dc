"""Every environment has a seed of its own, every purpose a stream of its own, and both are always the same."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.environments.seeding import (
    MAX_ENVS_PER_WORKER,
    MAX_EPISODES,
    MAX_WORKERS_PER_ROLE,
    EnvironmentOwner,
    StreamOwner,
    environment_seeds,
    episode_seed,
    generator,
)

ROLES: tuple[EnvironmentOwner, ...] = get_args(EnvironmentOwner)
experiment_seeds = st.integers(0, 2**63)


@settings(max_examples=30, deadline=None)
@given(seed=experiment_seeds, first=st.integers(0, MAX_WORKERS_PER_ROLE - 20), first_episode=st.integers(0, 2**28))
def test_no_two_environments_or_episodes_share_a_seed(seed: int, first: int, first_episode: int) -> None:
    seeds = [s for role in ROLES for i in range(first, first + 20) for s in environment_seeds(seed, role, i, 16)]
    seeds += [episode_seed(seed, first_episode + episode) for episode in range(500)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= each < 2**31 for each in seeds)


def test_seeds_stay_what_they_are() -> None:
    """A change here would change every published run."""
    assert environment_seeds(0, "collector", 0, 3) == [1610069009, 87926946, 713268531]
    assert episode_seed(0, 0) == 1073198097


def test_seeds_depend_on_the_experiment_and_the_incarnation_but_not_on_the_number_of_environments() -> None:
    seeds = environment_seeds(0, "collector", 1, 8)
    assert environment_seeds(0, "collector", 1, 4) == seeds[:4]
    assert not set(environment_seeds(1, "collector", 1, 8)) & set(seeds)
    assert not set(environment_seeds(0, "collector", 1, 8, incarnation=1)) & set(seeds)


def test_streams_are_their_own_and_repeat() -> None:
    owners: tuple[StreamOwner, ...] = (*ROLES, "coordinator", "reanalyzer")
    draws = {
        tuple(generator(seed, owner, index, purpose, incarnation=incarnation).integers(2**63, size=2).tolist())
        for seed in (0, 1)
        for owner in owners
        for index in (0, 1)
        for purpose in ("exploration", "network")
        for incarnation in (0, 1)
    }
    assert len(draws) == 2 * 5 * 2 * 2 * 2
    assert generator(3, "learner", 0, "network").random() == generator(3, "learner", 0, "network").random()


@pytest.mark.parametrize(
    "beyond",
    [
        lambda: environment_seeds(0, "collector", MAX_WORKERS_PER_ROLE, 1),
        lambda: environment_seeds(0, "collector", 0, MAX_ENVS_PER_WORKER + 1),
        lambda: episode_seed(0, MAX_EPISODES),
        lambda: episode_seed(0, -1),
    ],
)
def test_what_has_no_seed_of_its_own_is_refused(beyond: object) -> None:
    assert callable(beyond)
    with pytest.raises(ValueError, match="has no seed of its own"):
        beyond()
