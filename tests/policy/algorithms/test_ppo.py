"""PPO: its losses and steps by hand, its epochs, and learning."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import numpy as np
import pytest
import torch

from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.learner.loop import on_host
from remuda.policy.algorithms.actor_critic.learning import Losses
from remuda.policy.algorithms.actor_critic.ppo import Ppo, Steps
from remuda.policy.base import Algorithm
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.algorithms.segments import batch, numbers, on_policy, one_slot

# --- by hand: two states (one-hot), two actions, no hidden layer: logits and values are tables

TWO_STATES = ObservationSpec((), "int64", n=2)
ONCE = PpoConfig(hidden=(), epochs=1, minibatches=1, normalize_advantages=False)
HALF = math.log(0.5)


def tabular(policy: PpoConfig = ONCE, learner: LearnerConfig | None = None, start: int = 0) -> Algorithm:
    """Both actions equally likely everywhere; states are worth 0.25 and 4."""
    algorithm = on_policy(
        policy,
        learner or LearnerConfig(learning_rate=0.1, max_grad_norm=None),
        observation=TWO_STATES,
        action=ActionSpec(2, start),
    )
    state = algorithm.state()
    model = dict(algorithm.network.state_dict())
    model |= {"policy.0.weight": torch.zeros(2, 2), "value.0.weight": torch.tensor([[0.25, 4.0]])}
    algorithm.load_state(state | {"model": model})
    return algorithm


def learnt(algorithm: Algorithm, rows: dict[str, np.ndarray]) -> dict[str, float]:
    result = algorithm.learn(rows)
    assert result.priorities is None
    return numbers(result.metrics)


@pytest.mark.parametrize(
    ("old_probability", "reward", "loss", "clipped"),
    [
        (0.25, 1.0, -1.2 * 0.75, True),  # ratio 2, a good action: nothing more to gain beyond 1.2
        (0.25, -1.0, 2.0 * 1.25, False),  # ratio 2, a bad action: pushed back from where it is
        (1.0, 1.0, -0.5 * 0.75, False),  # ratio 1/2, a good action: pushed back up
        (1.0, -1.0, 0.8 * 1.25, True),  # ratio 1/2, a bad action: nothing more to gain below 0.8
    ],
)
def test_clipping_by_hand(old_probability: float, reward: float, loss: float, clipped: bool) -> None:
    algorithm = tabular()
    got = learnt(algorithm, one_slot(reward=reward, log_prob=math.log(old_probability)))
    assert got["policy_loss"] == pytest.approx(loss)
    assert got["clip_fraction"] == 1.0
    assert got["approx_kl"] == pytest.approx(0.5 / old_probability - 1 - math.log(0.5 / old_probability), rel=1e-5)
    assert (not algorithm.acting_state()["policy.0.bias"].any()) == clipped, "clipped: no gradient"


@pytest.mark.parametrize("recompute", [False, True])
def test_advantages_and_returns_of_later_passes_by_hand(recompute: bool) -> None:
    """Adam's first step moves the value's bias and the first state's weight by 0.1 each: 0.25 to 0.45, 4 to 4.1. The
    step was truncated, so its return is 1 + 0.99 times the value of the last observation."""
    policy = ONCE.model_copy(update={"epochs": 2, "recompute_advantages": recompute})
    rows = one_slot(reward=1.0, log_prob=HALF) | {"terminated": np.zeros((1, 1), np.bool_)}
    algorithm = tabular(policy)
    result = algorithm.learn(rows)
    losses = on_host([result.metrics["value_loss"]]).tolist()
    later = 1 + 0.99 * (4.1 if recompute else 4.0)
    assert losses == pytest.approx([(1 + 0.99 * 4 - 0.25) ** 2, (later - 0.45) ** 2], rel=1e-4)
    assert on_host([result.metrics["value"]]).tolist() == [0.25]


# --- epochs and minibatches
def steps_of_adam(algorithm: Algorithm) -> object:
    optimizer = algorithm.state()["optimizer"]
    assert isinstance(optimizer, dict)
    return optimizer["step"]  # pyright: ignore


def test_advantages_are_normalised_over_the_valid_steps_of_a_batch() -> None:
    """Ratio 1 everywhere and mean advantage 0: the policy loss is 0, whatever the rewards."""
    algorithm = tabular(ONCE.model_copy(update={"normalize_advantages": True}))
    rows = {name: np.repeat(column, 7, axis=0) for name, column in one_slot(reward=0, log_prob=HALF).items()}
    rows["reward"] = np.arange(100, 107, dtype=np.float32)[:, None]
    assert learnt(algorithm, rows)["policy_loss"] == pytest.approx(0, abs=1e-6)
    assert learnt(algorithm, one_slot(reward=1, log_prob=HALF))["policy_loss"] == pytest.approx(0, abs=1e-6)


def two_slots(*, first: float, second: float) -> dict[str, np.ndarray]:
    """One step from each state, each its own episode, with the rewards `first` and `second`."""
    rows = {name: np.repeat(column, 2, axis=0) for name, column in one_slot(reward=0, log_prob=HALF).items()}
    rows["obs"], rows["reward"] = np.array([[0, 0], [1, 1]]), np.array([[first], [second]], np.float32)
    return rows


def test_values_are_told_in_the_environments_own_rewards() -> None:
    """Returns of 1 and 5 have a deviation of 2: rewards are halved, and an internal value of 0.25
    is reported as 0.5."""
    scaled = tabular(ONCE.model_copy(update={"normalize_rewards": True}))
    told = scaled.learn(two_slots(first=1, second=5)).metrics
    assert on_host([told["value"]]).tolist() == pytest.approx([0.5, 8.0])


@pytest.mark.parametrize("target_kl", [None, 1e-3])
def test_every_update_is_told_and_how_many_a_batch_had(target_kl: float | None) -> None:
    policy = PpoConfig(hidden=(8,), epochs=5, minibatches=4, target_kl=target_kl)
    algorithm = on_policy(policy, LearnerConfig(learning_rate=0.05))
    rows = batch(np.random.default_rng(0))
    rows["log_prob"] = np.full_like(rows["log_prob"], HALF)  # nearly what a new policy says
    result = algorithm.learn(rows)
    told = {name: on_host([value]) for name, value in result.metrics.items()}
    assert told["stop_iter"].tolist() == [result.updates] == [steps_of_adam(algorithm)]
    assert result.updates == 20 if target_kl is None else 1 <= result.updates < 20
    assert {len(told[name]) for name in ("total_loss", "policy_loss", "value_loss", "entropy", "grad_norm")} == {
        result.updates
    }


def test_a_batch_that_is_stopped_before_its_first_update_tells_of_no_losses() -> None:
    algorithm = tabular(ONCE.model_copy(update={"target_kl": 1e-3}))
    result = algorithm.learn(one_slot(reward=1.0, log_prob=math.log(0.1)))
    assert (result.updates, result.metrics["stop_iter"]) == (0, 0)
    assert on_host([result.metrics["value"]]).tolist() == [0.25]
    assert not {"total_loss", "grad_norm"} & set(result.metrics)


class Curious(Ppo):
    """A variant with a cost of its own, and a module and an optimizer beside the network."""

    def __init__(self, config: ExperimentConfig) -> None:
        super().__init__(config, TWO_STATES, ActionSpec(2), 0)
        self.judge = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.Adam(self.judge.parameters())
        self.also_save(judge=self.judge, judge_optimizer=self.optimizer)

    def loss(self, steps: Steps, *, clip: float) -> Losses:
        losses = super().loss(steps, clip=clip)
        cost = losses.log_ratio.square().mean()
        return losses._replace(total=losses.total + cost, metrics={"cost": cost})


def curious() -> Curious:
    policy = PpoConfig(hidden=(8,), epochs=3, minibatches=1)
    return Curious(ExperimentConfig(name="a", env=EnvConfig(id="x"), policy=policy))


def test_a_variant_tells_its_own_metrics_of_every_update() -> None:
    told = curious().learn(one_slot(reward=1.0, log_prob=HALF)).metrics
    assert len(on_host([told["cost"]])) == len(on_host([told["total_loss"]])) == 3


def test_further_modules_and_optimizers_of_a_variant_are_saved_and_missed() -> None:
    first, second = curious(), curious()
    first.judge(torch.ones(1, 2)).sum().backward()
    first.optimizer.step()
    second.optimizer.param_groups[0]["lr"] = 0.25
    second.load_state(copy.deepcopy(first.state()))
    assert second.optimizer.param_groups[0]["lr"] == 0.25, "of the config"
    assert torch.equal(second.judge.weight, first.judge.weight)
    assert second.optimizer.state_dict()["state"][0]["step"] == 1
    state = copy.deepcopy(first.state())
    further = cast("dict[str, dict[str, dict[str, Any]]]", state["schedules"])["further"]
    further["judge_optimizer"]["param_groups"][0]["params"].pop()
    with pytest.raises(StateMismatchError, match="does not fit: judge_optimizer: ValueError"):
        second.load_state(state)
    further.clear()
    with pytest.raises(StateMismatchError, match=r"judge: missing.*judge_optimizer: missing"):
        second.load_state(state)


def test_explained_variance() -> None:
    exact, flat = two_slots(first=0.25, second=4.0), two_slots(first=1.0, second=1.0)
    assert learnt(tabular(), exact)["explained_variance"] == pytest.approx(1.0)
    assert learnt(tabular(), flat)["explained_variance"] == 0.0
