"""R2D2's update equals a computation step by step, with burn-in, resets and recorded states."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from remuda.config.algorithms.q_learning import R2d2Config
from remuda.policy.algorithms.r2d2 import entry
from remuda.policy.algorithms.r2d2.entry import make_r2d2_policy
from remuda.policy.algorithms.r2d2.learning import sequence_priorities
from remuda.policy.networks.tensors import scaled, unscaled
from remuda.tests.policy.algorithms.r2d2.cases import ACTION, OBSERVATION, batch, r2d2, settings

KINDS = ("lstm", "gru")


def values_of(network: Any, row: dict[str, np.ndarray]) -> torch.Tensor:
    """Action values of every observation of a row, computed step by step: [L + 1, actions]."""
    state, values = torch.from_numpy(row["state"])[None], []
    for step, seen in enumerate(row["obs"]):
        if step and not row["valid"][step - 1]:
            state = torch.zeros_like(state)
        output, state = network.core(network.encoder(torch.from_numpy(seen)[None]), state)
        values.append(network.head(output)[0])
    return torch.stack(values)


def expected_loss(policy: R2d2Config, online: Any, target: Any, rows: dict[str, np.ndarray]) -> tuple[Any, list[float]]:
    """Half the squared errors, sequence by sequence and step by step; and the priorities."""
    of_rows, priorities = [], []
    for index in range(len(rows["obs"])):
        row = {name: column[index] for name, column in rows.items()}
        mine, theirs, errors = values_of(online, row), values_of(target, row).detach(), []
        for t in range(policy.burn_in_steps, policy.burn_in_steps + policy.sequence_steps):
            if not row["valid"][t]:
                continue
            total, steps, bootstraps = 0.0, 0, True
            while steps < policy.n_step:
                at = t + steps
                total += policy.discount**steps * float(row["reward"][at])
                steps += 1
                if row["done"][at]:
                    bootstraps = not row["terminated"][at]
                    break
            best = torch.where(torch.from_numpy(row["legal"][t + steps]), mine[t + steps].detach(), -torch.inf).argmax()
            later = unscaled(theirs[t + steps, best]) if bootstraps else torch.tensor(0.0)
            aim = scaled(total + policy.discount**steps * later)
            errors.append(aim - mine[t, row["action"][t] - 4])
        stacked = torch.stack(errors) if errors else torch.zeros(1)
        of_rows.append(0.5 * stacked.square().mean() * float(row["weights"]))
        sizes = stacked.detach().abs()
        priorities.append(float(policy.priority_eta * sizes.max() + (1 - policy.priority_eta) * sizes.mean()))
    return torch.stack(of_rows).mean(), priorities


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("burn_in", [0, 2])
def test_an_update_is_what_a_computation_step_by_step_gives(kind: str, burn_in: int, masks: bool) -> None:
    """The gradient is compared without burn-in: torch's would pass through the burn-in steps."""
    policy = settings(recurrent=kind, burn_in_steps=burn_in)
    algorithm, rng = r2d2(policy), np.random.default_rng(3)
    for _ in range(2):  # the target network is an older one by now
        algorithm.learn(batch(rng, policy))
    online, target = copy.deepcopy(algorithm.network), copy.deepcopy(algorithm.state()["target_model"])
    older = copy.deepcopy(online)
    older.load_state_dict(target)  # type: ignore[arg-type]
    rows = batch(rng, policy, rows=6)
    legal = np.ones((*rows["obs"].shape[:2], 2), np.bool_)
    if masks:
        legal[rng.random(legal.shape[:2]) < 0.7, 0] = False
    loss, priorities = expected_loss(policy, online, older, rows | {"legal": legal})
    result = algorithm.learn(rows | {"legal": legal} if masks else rows)
    assert float(result.metrics["total_loss"]) == pytest.approx(loss.item(), rel=1e-4)
    assert result.priorities is not None
    np.testing.assert_allclose(result.priorities, priorities, rtol=1e-4)
    if not burn_in:
        loss.backward()
        norm = torch.cat(
            [parameter.grad.ravel() for parameter in online.parameters() if parameter.grad is not None]
        ).norm()
        assert float(result.metrics["grad_norm"]) == pytest.approx(float(norm), rel=1e-3)


def changed(rows: dict[str, np.ndarray], name: str, where: Any, by: float) -> dict[str, np.ndarray]:
    column = rows[name].copy()
    column[where] += np.asarray(by, column.dtype)
    return {**rows, name: column}


def other_actions(rows: dict[str, np.ndarray], where: Any) -> dict[str, np.ndarray]:
    """Rows with the other action (of 4 and 5) at `where`."""
    column = rows["action"].copy()
    column[where] = 9 - column[where]
    return {**rows, "action": column}


def going_on(policy: R2d2Config) -> dict[str, np.ndarray]:
    """Sequences of one episode that does not end."""
    rows = batch(np.random.default_rng(5), policy)
    no = np.zeros_like(rows["done"])
    return {**rows, "done": no, "terminated": no, "valid": ~no}


def loss_of(rows: dict[str, np.ndarray], policy: R2d2Config) -> float:
    return float(r2d2(policy).learn(rows).metrics["total_loss"])


def test_burn_in_steps_bring_the_state_up_to_date_and_teach_nothing() -> None:
    policy = settings(burn_in_steps=3)
    rows = going_on(policy)
    usual = loss_of(rows, policy)
    assert loss_of(changed(rows, "reward", np.s_[:, :3], 5.0), policy) == usual
    assert loss_of(other_actions(rows, np.s_[:, :3]), policy) == usual
    assert loss_of(other_actions(rows, np.s_[:, 3]), policy) != usual
    assert loss_of(changed(rows, "obs", np.s_[:, :3], 1.0), policy) != usual
    assert loss_of(changed(rows, "reward", np.s_[:, 3], 5.0), policy) != usual


def test_nothing_is_learned_from_resets_and_nothing_is_remembered_over_them() -> None:
    """Step 2 (of the burn-in) ends an episode, 3 is its reset: earlier steps have no effect."""
    policy = settings(burn_in_steps=3, sequence_steps=4)
    rows = going_on(policy)
    rows["done"][:, 1], rows["terminated"][:, 1], rows["valid"][:, 2] = True, True, False
    usual = loss_of(rows, policy)
    assert loss_of(changed(rows, "obs", np.s_[:, :3], 1.0), policy) == usual
    assert loss_of(changed(rows, "state", np.s_[:], 1.0), policy) == usual
    assert loss_of(changed(rows, "obs", np.s_[:, 3], 1.0), policy) != usual
    rows["done"][:, 4], rows["valid"][:, 5], rows["reward"][:, 5] = True, False, 0.0
    assert loss_of(other_actions(rows, np.s_[:, 5]), policy) == loss_of(rows, policy)


def test_sequences_with_nothing_but_a_reset_change_nothing() -> None:
    policy = settings(burn_in_steps=1, sequence_steps=1, overlap_steps=0, n_step=1)
    rows = going_on(policy)
    rows["done"][:, 0], rows["valid"][:, 1] = True, False
    result = r2d2(policy).learn(rows)
    assert float(result.metrics["total_loss"]) == 0.0
    assert result.priorities is not None
    assert result.priorities.tolist() == [0.0] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_collectors_and_the_learner_see_the_same(kind: str) -> None:
    """Values step by step in numpy, with a collector's state, equal those of the unrolled network."""
    policy = settings(recurrent=kind, value_rescaling=False)
    algorithm = r2d2(policy)
    acts = make_r2d2_policy(policy, OBSERVATION, ACTION)
    acts.load_state(algorithm.acting_state())
    rows = going_on(policy)
    state = rows["state"].copy()
    for step in range(rows["obs"].shape[1]):
        values = acts.value(rows["obs"][:, step], state=state)
        for index in range(3):
            row = {name: column[index] for name, column in rows.items()}
            expected = values_of(algorithm.network, row)[step].max().item()
            assert values[index] == pytest.approx(expected, abs=1e-5)


# --- priorities and rescaled values
def test_priorities_mix_the_largest_and_the_mean() -> None:
    errors = torch.tensor([[1.0, -3.0, 2.0], [4.0, 9.0, 0.0], [5.0, 5.0, 5.0]])
    valid = torch.tensor([[True, True, True], [True, False, True], [False, False, False]])
    given = sequence_priorities(errors * valid, valid, eta=0.9)
    np.testing.assert_allclose(given, [0.9 * 3 + 0.1 * 2, 0.9 * 4 + 0.1 * 2, 0.0], rtol=1e-6)


def test_the_acting_side_has_the_same_inverse_without_torch() -> None:
    numbers = np.linspace(-300.0, 300.0, 1001).astype(np.float32)
    np.testing.assert_allclose(entry.unscaled(numbers), unscaled(torch.from_numpy(numbers).double()), rtol=1e-5)
