"""What environments say of legal actions reaches whoever asks, whatever steps them."""

# gymnasium's spaces are generic without bounds.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from remuda.config.environment import EnvConfig
from remuda.environments.copies import LocalCopies
from remuda.environments.lanes import Copies
from remuda.environments.legal_actions import (
    components_of,
    legal_of_each,
    legal_of_mask,
    legal_of_vector,
    sample_legal,
    without_any,
)
from remuda.environments.process_peer import EnvironmentProcessError
from remuda.environments.processes import time_step
from remuda.tests.environments.masked import ACTIONS, FIRST, Choosy, legal_in
from remuda.tests.environments.stepping import begun, copies_of, stepped

CHOOSY = EnvConfig(make="remuda.tests.environments.masked:make", vectorization="async")


def test_masks_of_a_vector_by_hand() -> None:
    masks, told = np.array([[1, 0], [0, 0], [0, 1], [0, 0]], np.int8), np.array([True, True, True, False])
    info = {"action_mask": masks, "_action_mask": told}
    legal = legal_of_vector(info, num_envs=4, components=(2,))
    assert legal is not None
    assert legal.tolist() == [[True, False], [False, False], [False, True], [True, True]]
    assert without_any(legal, (2,)).tolist() == [False, True, False, False]
    of_lists = np.array([[1, 0], None, [0, 1]], object)
    legal = legal_of_vector({"action_mask": of_lists, "_action_mask": told[[0, 3, 2]]}, num_envs=3, components=(2,))
    assert legal is not None
    assert legal.tolist() == [[True, False], [True, True], [False, True]]
    assert legal_of_vector({"other": masks}, num_envs=4, components=(2,)) is None


def test_masks_of_several_components_are_one_array_or_one_for_each() -> None:
    flat = [True, False, True, False, True]
    for mask in (flat, np.array(flat, np.int8), (np.array(flat[:3]), [0, 1]), [flat[:3], flat[3:]]):
        assert legal_of_mask(mask, components=(3, 2)).tolist() == [flat]
    square = np.array([[1, 0], [0, 1]])
    assert legal_of_mask(square, components=(2, 2)).tolist() == [[True, False, False, True]]
    with pytest.raises(ValueError, match=r"has shape \(2, 2\), not \(5,\)"):
        legal_of_mask(square, components=(3, 2))
    rows = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 1]], np.bool_)
    assert without_any(rows, (3, 2)).tolist() == [False, True, True, False]


def test_counted_actions_alone_have_masks() -> None:
    discrete, box = spaces.Discrete(5, start=3), spaces.Box(0, 1, (2,))
    assert components_of(discrete) == (5,)
    assert components_of(spaces.MultiDiscrete(np.array([[3, 2], [4, 1]]))) == (3, 2, 4, 1)
    assert components_of(spaces.MultiBinary(3)) == (2, 2, 2)
    assert components_of(spaces.Tuple((discrete, spaces.Dict(a=spaces.MultiBinary(2))))) == (5, 2, 2)
    assert components_of(box) == ()
    assert components_of(spaces.Dict(a=discrete, b=box)) == ()


@pytest.mark.parametrize("mask", [np.ones(3), np.ones((1, 2)), 1, None])
def test_a_mask_of_another_shape_is_refused(mask: object) -> None:
    said = r"info\['action_mask'\] of an environment has shape .*, not \(2,\)"
    with pytest.raises(ValueError, match=said):
        legal_of_mask(mask, components=(2,))
    with pytest.raises(ValueError, match=said):
        legal_of_each([{"action_mask": mask}], components=(2,))


@pytest.mark.parametrize("wrong", [-1e9, -np.inf, np.nan, -1])
def test_what_is_added_to_logits_elsewhere_is_no_mask(wrong: float) -> None:
    """It has 0 for legal actions: read as a mask, it would forbid them and allow the others."""
    mask, said = np.array([0, wrong]), r"info\['action_mask'\] of an environment has the number (-1e\+09|-inf|nan|-1): "
    with pytest.raises(ValueError, match=said):
        legal_of_mask(mask, components=(2,))
    with pytest.raises(ValueError, match=said):
        legal_of_mask(mask.tolist(), components=(2,))
    with pytest.raises(ValueError, match=said):
        legal_of_vector({"action_mask": np.stack([mask, mask])}, num_envs=2, components=(2,))


def taken(legal: np.ndarray | None, num_envs: int, step: int) -> np.ndarray:
    """A legal action of each environment: the first or the last."""
    rows = np.ones((num_envs, ACTIONS), np.bool_) if legal is None else legal
    last = ACTIONS - 1 - rows[:, ::-1].argmax(axis=1)
    return np.asarray(FIRST + (rows.argmax(axis=1) if step % 2 else last))


def assert_told_right(vector: Copies, num_envs: int) -> None:
    """Over resets of the whole vector and of single environments."""
    for seeds in (list(range(num_envs)), None):
        observations = begun(vector, seeds)
        for step in range(40):
            legal = vector.lanes[0].legal((ACTIONS,))
            told = np.ones((num_envs, ACTIONS), np.bool_) if legal is None else legal
            told[without_any(told, (ACTIONS,))] = True  # where an episode is over
            assert told.tolist() == legal_in(observations).tolist()
            observations, *_ = stepped(vector, taken(legal, num_envs, step))


def test_a_copy_that_is_timed_is_stepped_by_legal_actions() -> None:
    """Any other is an error of this environment, and `auto` would know nothing of its speed."""
    assert time_step(LocalCopies.of_one_agent([Choosy()])) > 0.0
    space = spaces.Discrete(3, start=4, seed=0)
    assert {sample_legal(space, {"action_mask": [1, 0, 1]}) for _ in range(30)} == {4, 6}
    assert {sample_legal(space, {}) for _ in range(30)} == {4, 5, 6}
    several, switches = spaces.MultiDiscrete(np.array([[2, 3]]), seed=0), spaces.MultiBinary(2, seed=0)
    for masked, mask in ((several, [1, 0, 0, 1, 1]), (switches, ([1, 0], [1, 1]))):
        drawn = [sample_legal(masked, {"action_mask": mask}) for _ in range(30)]
        assert all(one in masked for one in drawn)
        assert {int(one.flat[0]) for one in drawn} == {0}
        assert len({int(one.flat[1]) for one in drawn}) == 2


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("num_envs", [1, 5])
def test_those_in_processes_tell_once_they_are_asked(num_envs: int) -> None:
    vector = copies_of(CHOOSY, num_envs=num_envs, source_dir=None)
    try:
        vector.reset(None)
        assert vector.lanes[0].legal((ACTIONS,)) is None
        vector.tell_legal_actions()
        assert_told_right(vector, num_envs)
    finally:
        vector.close()


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_a_mask_of_another_shape_is_an_error_of_a_process_too_but_only_where_it_is_read() -> None:
    config = CHOOSY.model_copy(update={"make": "remuda.tests.environments.test_legal_actions:misshapen"})
    vector = copies_of(config, num_envs=2, source_dir=None)
    try:
        begun(vector, None)
        vector.tell_legal_actions()
        with pytest.raises(EnvironmentProcessError, match=r"has shape \(9,\), not \(4,\)"):
            begun(vector, None)
    finally:
        vector.close()


class Misshapen(Choosy):
    """Its mask is of something else."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        seen, _ = super().reset(seed=seed)
        return seen, {"action_mask": np.ones(9)}


def misshapen() -> Misshapen:
    """For `env.make` of a config."""
    return Misshapen()
