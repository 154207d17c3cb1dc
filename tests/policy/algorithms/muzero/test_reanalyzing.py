"""Reanalyzers compute what the learner's own search would, for whole rows and each distinct observation once."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.policy.algorithms import UnknownAlgorithmError, make_reanalyzer
from remuda.policy.algorithms.muzero.acting import ILLEGAL, MuZeroReanalyzer
from remuda.policy.algorithms.muzero.learning import MuZero
from remuda.policy.algorithms.muzero.search.search import SearchResult
from remuda.policy.algorithms.muzero.targets import ROOT_VALUE, SEARCH_POLICY, Positions
from remuda.tests.policy import cases
from remuda.tests.policy.algorithms.muzero.cases import ACTION, OBSERVATION, SMALL, Batch, batch, changed, muzero

K = SMALL.unroll_steps
POLICY = changed(reanalyze_ratio=1.0, simulations=25, target_update_iters=1)


def trained() -> MuZero:
    algorithm = muzero(POLICY)
    for seed in range(5):
        algorithm.learn(batch(np.random.default_rng(seed)))
    return algorithm


def reanalyzer_of(algorithm: MuZero) -> MuZeroReanalyzer:
    reanalyzer = MuZeroReanalyzer(POLICY, OBSERVATION, ACTION)
    reanalyzer.load_state(algorithm.target_state())
    return reanalyzer


def rows(**changes: np.ndarray) -> Batch:
    return {**batch(np.random.default_rng(9), rows=8), **changes}


def test_it_is_what_the_learner_would_find_and_nothing_after_the_end_of_an_episode() -> None:
    algorithm, stored = trained(), rows()
    found = reanalyzer_of(algorithm).compute(stored)
    positions = Positions.of(stored["steps"], stored["terminated"], unroll_steps=K)
    expected, _ = algorithm._policies(stored, positions)
    acted = positions.acted
    np.testing.assert_allclose(positions.of_columns(found[SEARCH_POLICY])[acted], expected[acted], atol=1e-6)
    for name in (SEARCH_POLICY, ROOT_VALUE):
        assert found[name].shape == stored[name].shape
        assert found[name].dtype == stored[name].dtype
        after = np.arange(K + 1) >= stored["steps"][:, None]
        np.testing.assert_array_equal(found[name][after], 0.0)


def test_what_was_illegal_stays_so() -> None:
    stored = rows()
    known = np.arange(K + 1) < stored["steps"][:, None]
    stored[SEARCH_POLICY][known] = [0.0, 1.0]
    stored[SEARCH_POLICY][0, 0] = [ILLEGAL, 1.0]
    found = reanalyzer_of(trained()).compute(stored)[SEARCH_POLICY]
    assert found[0, 0].tolist() == [ILLEGAL, 1.0]
    assert ((found == ILLEGAL).sum(), (found[known] >= 0).sum()) == (1, 2 * known.sum() - 1)


def test_an_observation_that_several_rows_hold_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reanalyzer, stored = reanalyzer_of(trained()), rows(steps=np.full(8, K + 1, np.int32))
    stored["obs"][1:] = stored["obs"][0]
    stored["obs"][0, 1] = stored["obs"][0, 0]  # in the first row alone
    searched: list[int] = []
    real = reanalyzer._policy.searched

    def counting(observations: np.ndarray, legal: np.ndarray) -> SearchResult:
        searched.append(len(observations))
        return real(observations, legal)

    monkeypatch.setattr(reanalyzer._policy, "searched", counting)
    found = reanalyzer.compute(stored)[SEARCH_POLICY]
    assert searched == [K + 1]
    np.testing.assert_array_equal(found[1:], np.broadcast_to(found[1], found[1:].shape))
    np.testing.assert_array_equal(found[0, 1], found[0, 0])


# --- the learning side
def test_the_target_network_has_a_version_that_rises_when_it_changes() -> None:
    algorithm = muzero(changed(target_update_iters=3))
    seen: list[tuple[int, float]] = []
    for seed in range(7):
        state = algorithm.target_state()
        seen.append((algorithm.target_iter, float(sum(np.abs(array).sum() for array in state.values()))))
        algorithm.learn(batch(np.random.default_rng(seed)))
    assert [version for version, _ in seen] == [0, 0, 0, 3, 3, 3, 6]
    assert len(set(seen)) == 3
    assert algorithm.target_state()["policy.0.weight"] is not algorithm.target_state()["policy.0.weight"]


def test_a_learner_that_leaves_it_to_others_uses_what_rows_hold() -> None:
    algorithm, stored = trained(), rows()
    algorithm.leave_reanalysis()
    positions = Positions.of(stored["steps"], stored["terminated"], unroll_steps=K)
    policy, taken_s = algorithm._policies(stored, positions)
    np.testing.assert_array_equal(policy[positions.acted], positions.of_columns(stored[SEARCH_POLICY])[positions.acted])
    assert taken_s == 0.0


def test_an_algorithm_that_computes_nothing_again_makes_no_reanalyzer() -> None:
    with pytest.raises(UnknownAlgorithmError, match=r"DqnEntry is not derived from remuda\.ReanalyzingEntry"):
        make_reanalyzer(cases.config(), cases.OBSERVATION, cases.ACTION)
