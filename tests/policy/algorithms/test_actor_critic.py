"""PPO and IMPALA: acting, masks, normalisation, state and learning."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.learning import LearnerConfig
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.algorithms.segments import PUSH, SEVERAL, batch, experiment, numbers, on_policy, one_slot
from remuda.tests.policy.cases import ACTION

POLICIES = [
    PpoConfig(hidden=(16, 8), epochs=2, minibatches=3, normalize_observations=True, normalize_rewards=True),
    ImpalaConfig(hidden=(16, 8), normalize_observations=True),
    ImpalaConfig(hidden=(16, 8), shared_hidden=True, normalize_observations=True),
]
both = pytest.mark.parametrize("policy", POLICIES, ids=["ppo", "impala", "shared"])
actions = pytest.mark.parametrize("action", [ActionSpec(3, start=5), SEVERAL, PUSH], ids=["discrete", "several", "box"])

OnPolicy = PpoConfig | ImpalaConfig


def acting(policy: OnPolicy, algorithm: Algorithm) -> Policy:
    acts = make_policy(experiment(policy), algorithm.observation, algorithm.action)
    acts.load_state(algorithm.acting_state())
    return acts


def trained(policy: OnPolicy, action: ActionSpec = ACTION, *, batches: int = 3, seed: int = 0) -> Algorithm:
    algorithm, rng = on_policy(policy, action=action, seed=seed), np.random.default_rng(seed)
    for _ in range(batches):
        algorithm.learn(batch(rng, action=action))
    return algorithm


@both
def test_a_batch_without_any_step_changes_nothing(policy: OnPolicy) -> None:
    """As when all agents of a policy are away for a whole horizon."""
    algorithm, rows = trained(policy), batch(np.random.default_rng(0))
    for name in ("valid", "done", "terminated", "reward"):
        rows[name] = np.zeros_like(rows[name])
    before = algorithm.acting_state()
    result = algorithm.learn(rows)
    assert all(np.array_equal(before[name], value) for name, value in algorithm.acting_state().items())
    assert all(np.isfinite(np.asarray(value)).all() for value in result.metrics.values())


def same(first: Algorithm, second: Algorithm) -> bool:
    ours, theirs = first.acting_state(), second.acting_state()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


# --- acting
@both
@actions
def test_right_after_acting_the_learner_finds_no_divergence(policy: OnPolicy, action: ActionSpec) -> None:
    """Log probabilities recorded in numpy equal torch's for the same weights and moments."""
    once = policy.model_copy(update={"epochs": 1, "minibatches": 1}) if policy.type == "ppo" else policy
    algorithm, rng = trained(once, action), np.random.default_rng(9)
    rows = batch(rng, action=action, ending=0.0)
    acts = acting(once, algorithm)
    for t in range(rows["log_prob"].shape[1]):
        taken, recorded = acts.act_recording(rows["obs"][:, t], {}, rng)
        rows["action"][:, t] = recorded.get("action", taken)
        rows["log_prob"][:, t] = recorded["log_prob"]
    got = numbers(algorithm.learn(rows).metrics)
    assert abs(got["approx_kl"]) < 1e-6
    if policy.type == "ppo":
        assert got["clip_fraction"] == 0


@both
def test_numbers_are_clipped_for_the_environment_and_recorded_as_drawn(policy: OnPolicy) -> None:
    acts = acting(policy, on_policy(policy, action=PUSH))
    observations = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    taken, recorded = acts.act_recording(observations, {}, np.random.default_rng(1))
    drawn = recorded["action"]
    assert taken.shape == drawn.shape == (2000, 2)
    assert drawn[:, 0].max() > 1.0 == taken[:, 0].max()
    np.testing.assert_array_equal(taken[:, 1], drawn[:, 1])  # unbounded
    np.testing.assert_array_equal(taken, acts.act(observations, {}, np.random.default_rng(1), deterministic=False))


@both
def test_actions_begin_with_the_deviation_that_is_asked_for(policy: OnPolicy) -> None:
    """The entropy of two normal numbers of deviation e**-2 is 2 * (0.5 + 0.5 log(2 pi) - 2) nats."""
    narrow = policy.model_copy(update={"log_std_start": -2.0})
    algorithm = on_policy(narrow, action=PUSH)
    acts, rng = acting(narrow, algorithm), np.random.default_rng(0)
    _, recorded = acts.act_recording(np.zeros((4000, 4), np.float32), {}, rng)
    np.testing.assert_allclose(recorded["action"].std(axis=0), np.exp(-2.0), rtol=0.05)
    told = numbers(algorithm.learn(batch(rng, action=PUSH)).metrics)
    assert told["entropy"] == pytest.approx(1 + np.log(2 * np.pi) - 4, abs=0.05)  # a mean over updates that change it


@both
def test_correlated_noise_changes_the_order_of_actions_and_not_their_probabilities(policy: OnPolicy) -> None:
    """With the same state at every step, an action minus its mean is the noise."""
    correlated = policy.model_copy(update={"noise_correlation": 0.9})
    acts = acting(correlated, on_policy(policy, action=PUSH))
    rng, observations = np.random.default_rng(0), np.zeros((50, 4), np.float32)
    mean = acts.act(observations, {}, rng, deterministic=True)
    steps = [acts.act_recording(observations, {}, rng)[1] for _ in range(400)]
    noise = np.stack([step["action"] for step in steps]) - mean
    assert np.mean(noise[1:] * noise[:-1]) == pytest.approx(0.9, abs=0.05)
    density = -0.5 * (noise**2).sum(axis=-1) - np.log(2 * np.pi)
    np.testing.assert_allclose(np.stack([step["log_prob"] for step in steps]), density, atol=1e-5)


# --- masks and normalisation
@both
@actions
def test_what_a_reset_slot_holds_changes_nothing(policy: OnPolicy, action: ActionSpec) -> None:
    rng = np.random.default_rng(0)
    rows = batch(rng, action=action)
    worse = {name: column.copy() for name, column in rows.items()}
    reset = ~rows["valid"]
    assert reset.any()
    for name, garbage in (("reward", 1e6), ("log_prob", -50.0), ("action", 77)):
        worse[name][reset] = garbage
    first, second = on_policy(policy, action=action), on_policy(policy, action=action)
    got, expected = numbers(first.learn(worse).metrics), numbers(second.learn(rows).metrics)
    assert got == expected
    assert same(first, second)


@both
def test_observations_are_counted_once_each_and_published(policy: OnPolicy) -> None:
    algorithm, rng = on_policy(policy), np.random.default_rng(0)
    seen: list[np.ndarray] = []
    for _ in range(4):
        rows = batch(rng)
        algorithm.learn(rows)
        seen.append(rows["obs"][:, :-1][rows["valid"]])
    published, whole = algorithm.acting_state(), np.concatenate(seen).astype(np.float64)
    np.testing.assert_allclose(published["observations.mean"], whole.mean(axis=0))
    np.testing.assert_allclose(published["observations.variance"], whole.var(axis=0))
    assert published["observations.count"] == len(whole)


# --- they learn
@pytest.mark.parametrize("kind", ["ppo", "impala"])
def test_a_bandit(kind: str) -> None:
    """Action 1 pays 1, action 0 nothing."""
    policy = PpoConfig(hidden=(8,), epochs=4, minibatches=2) if kind == "ppo" else ImpalaConfig(hidden=(8,))
    observation = ObservationSpec((), "int64", n=2)
    algorithm = on_policy(policy, LearnerConfig(learning_rate=0.02), observation=observation)
    acts, rng = make_policy(experiment(policy), observation, ACTION), np.random.default_rng(0)
    for _ in range(60):
        acts.load_state(algorithm.acting_state())
        taken, recorded = acts.act_recording(np.zeros(32, np.int64), {}, rng)
        rows = {name: np.repeat(column, 32, axis=0) for name, column in one_slot(reward=0, log_prob=0).items()}
        rows |= {"action": taken[:, None], "reward": taken[:, None].astype(np.float32)}
        algorithm.learn(rows | {"log_prob": recorded["log_prob"][:, None]})
    assert acts.act(np.zeros(200, np.int64), {}, rng, deterministic=False).mean() > 0.95
