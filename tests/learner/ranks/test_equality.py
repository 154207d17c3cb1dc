"""Two or three ranks learn from parts of a batch what one rank learns from the whole: weights, metrics, priorities."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.bootstrapped_dqn import BootstrappedDqnConfig
from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.q_learning import DqnConfig, PqnConfig, RainbowConfig
from remuda.config.algorithms.twin_critics import SacConfig, Td3Config
from remuda.config.learning import LearnerConfig
from remuda.learner.loop import on_host
from remuda.learner.ranks.group import RankGroup
from remuda.learner.ranks.parts import joined_result, result_columns, split
from remuda.policy.algorithms import make_algorithm
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.tests.learner.ranks.threads import in_ranks
from remuda.tests.policy import cases
from remuda.tests.policy.algorithms import segments
from remuda.tests.policy.algorithms.rainbow.cases import rainbow as some_rainbow
from remuda.tests.policy.algorithms.twin_critics import cases as twin_critics

CLIPPED = LearnerConfig(max_grad_norm=0.05)
"""The norm of every gradient here is larger, so it matters that it is that of the whole batch."""
UPDATES = 2


def dqn() -> Algorithm:
    return cases.dqn(DqnConfig(hidden=(16, 8), target_update_iters=2), CLIPPED)


def rainbow() -> Algorithm:
    return some_rainbow(RainbowConfig(hidden=(16, 8), target_update_iters=2), CLIPPED)


def rows(rng: np.random.Generator) -> Arrays:
    batch = cases.batch(rng, rows=17)
    batch["weights"] = rng.uniform(0.1, 2.0, 17).astype(np.float32)
    return batch


def ppo(**settings: object) -> Callable[[], Algorithm]:
    normal = {"normalize_observations": True, "normalize_rewards": True, "hidden": (16, 8), "horizon_steps": 9}
    policy = PpoConfig.model_validate(normal | {"epochs": 2, "minibatches": 3} | settings)
    return lambda: segments.on_policy(policy, CLIPPED)


def impala(**settings: object) -> Callable[[], Algorithm]:
    normal = {"normalize_observations": True, "normalize_rewards": True, "hidden": (16, 8), "horizon_steps": 9}
    return lambda: segments.on_policy(ImpalaConfig.model_validate(normal | settings), CLIPPED)


def some_segments(rng: np.random.Generator) -> Arrays:
    return segments.batch(rng, segments=7)


def bootstrapped_dqn() -> Algorithm:
    policy = BootstrappedDqnConfig(hidden=(16, 8), members=3)
    return make_algorithm(cases.config(policy, CLIPPED), cases.OBSERVATION, cases.ACTION, 0)


def pqn() -> Algorithm:
    policy = PqnConfig(hidden=(16, 8), horizon_steps=9, minibatches=5)
    return segments.on_policy(policy, CLIPPED)


def pushes() -> Algorithm:
    policy = PpoConfig(hidden=(16, 8), horizon_steps=9, epochs=2, minibatches=3, value_clip=0.2)
    return segments.on_policy(policy, CLIPPED, action=segments.PUSH)


def push_segments(rng: np.random.Generator) -> Arrays:
    return segments.batch(rng, segments=7, action=segments.PUSH)


def sac() -> Algorithm:
    return twin_critics.made(SacConfig(hidden=(16, 8)), learner=CLIPPED)


def counted_sac() -> Algorithm:
    return twin_critics.made(SacConfig(hidden=(16, 8)), twin_critics.COUNTED, learner=CLIPPED)


def td3() -> Algorithm:
    return twin_critics.made(Td3Config(hidden=(16, 8)), learner=CLIPPED)


def hyperspherical() -> Algorithm:
    widths = {"hidden": (8, 8), "actor_hidden": (8,)}
    policy = CrossQConfig.model_validate({"normalization": "hyperspherical", "policy_delay": 2, **widths})
    return twin_critics.made(policy, learner=CLIPPED)


def transitions(rng: np.random.Generator) -> Arrays:
    return twin_critics.batch(rng, rows=17)


def counted_transitions(rng: np.random.Generator) -> Arrays:
    return twin_critics.batch(rng, twin_critics.COUNTED, rows=17)


Made = Callable[[], Algorithm]
Draws = Callable[[np.random.Generator], Arrays]
CASES: dict[str, tuple[Made, Draws]] = {
    "dqn": (dqn, rows),
    "bootstrapped_dqn": (bootstrapped_dqn, rows),
    "rainbow": (rainbow, rows),
    "ppo": (ppo(), some_segments),
    "ppo with target_kl": (ppo(target_kl=0.001, epochs=6), some_segments),
    "ppo, minibatches of which a rank has none": (ppo(minibatches=30, epochs=1), some_segments),
    "ppo, numbers as actions": (pushes, push_segments),
    "impala": (impala(), some_segments),
    "pqn": (pqn, some_segments),
    "sac": (sac, transitions),
    "sac, counted actions": (counted_sac, counted_transitions),
    "td3": (td3, transitions),
    "crossq, hyperspherical": (hyperspherical, transitions),
}


def learned(algorithm: Algorithm, batches: Sequence[Arrays]) -> list[LearnResult]:
    return [algorithm.learn(batch) for batch in batches]


@pytest.mark.parametrize(("case", "ranks"), [*((case, 2) for case in CASES), ("dqn", 3), ("impala", 3)])
def test_parts_teach_what_the_whole_teaches(case: str, ranks: int) -> None:
    make, draw = CASES[case]
    rng = np.random.default_rng(7)
    batches = [draw(rng) for _ in range(UPDATES)]
    alone, *algorithms = [make() for _ in range(1 + ranks)]  # here: torch's generator is that of all threads
    expected = learned(alone, batches)

    def act(group: RankGroup) -> list[LearnResult]:
        algorithms[group.rank].ranks = group
        return learned(algorithms[group.rank], [split(batch, ranks)[group.rank] for batch in batches])

    results = in_ranks(ranks, act)
    for algorithm in algorithms:
        assert_equal_states(algorithm, alone)
        assert bits(algorithm) == bits(algorithms[0]), "the ranks have the same weights to the last bit"
    for expects, own, *others in zip(expected, *results, strict=True):
        whole = joined_result(own, [result_columns(other) for other in others])
        assert whole.updates == expects.updates
        assert list(whole.metrics) == list(expects.metrics)
        for name, values in expects.metrics.items():
            close(summed_up(whole.metrics[name]), summed_up(values), name)
        assert (whole.priorities is None) == (expects.priorities is None)
        if whole.priorities is not None and expects.priorities is not None:
            close(whole.priorities.numpy(), expects.priorities.numpy(), "priorities")


def bits(algorithm: Algorithm) -> bytes:
    return b"".join(values.tobytes() for values in algorithm.acting_state().values())


def summed_up(values: float | torch.Tensor) -> np.ndarray:
    """What logs show of a metric: whatever the order, and however often all is repeated."""
    numbers = on_host([values])
    return np.array([numbers.mean(), numbers.std(), numbers.min(), numbers.max()])


def assert_equal_states(found: Algorithm, expected: Algorithm) -> None:
    pairs = zip(flat(found.state()), flat(expected.state()), strict=True)
    for (name, value), (_, expects) in pairs:
        close(value, expects, name)


def flat(state: object, name: str = "") -> list[tuple[str, np.ndarray]]:
    """All numbers of a state, by name."""
    if isinstance(state, str):
        return []
    if isinstance(state, dict):
        return [found for key, value in state.items() for found in flat(value, f"{name}/{key}")]
    return [(name, state.detach().double().numpy() if isinstance(state, torch.Tensor) else np.array(state, np.float64))]


def close(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    """To float32's tolerance: sums are in another order."""
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5, err_msg=name)
