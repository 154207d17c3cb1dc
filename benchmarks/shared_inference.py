"""Environment steps/s of two collectors that ask an inference worker, against two that compute by themselves.

All on the cores of this machine, and the learner has nothing to do: what limits the pace are environments and networks.
An inference worker then takes the same cores as its collectors do, so it can only gain what a larger batch saves, and
costs its messages. The goal of each figure is what `inference.count: auto` rests on: on CPU cores it never pays.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.in_run import at_env_step, rate_in_run
from remuda.config.schema import ExperimentConfig

NEVER = 1_000_000_000
WINDOW_S = 6.0
CAPACITY = 5_000_000
"""More rows than a measurement collects, so that the learner never begins."""


@dataclass(frozen=True)
class Case:
    """An environment and a network."""

    env: Mapping[str, object]
    policy: Mapping[str, object]
    warm_up_env_steps: int


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "perceptron": Case({"id": "CartPole-v1", "num_envs": 8}, {"type": "dqn"}, 20_000),
        "images": Case({"id": "ALE/Pong-v5", "num_envs": 16, "kwargs": {"num_threads": 1}}, {"type": "dqn"}, 2_000),
        "search": Case(
            {"id": "CartPole-v1", "num_envs": 8},
            {"type": "muzero", "gumbel": True, "simulations": 16, "hidden": [64], "latent": 64, "head_hidden": 32},
            2_000,
        ),
    }
)
"""CartPole's perceptron, the convolutions of Atari (Mnih et al. 2015), and a small Gumbel MuZero."""


def config_of(case: Case, inference: int) -> ExperimentConfig:
    """Two collectors at full speed, with this number of inference workers."""
    return ExperimentConfig.model_validate(
        {
            "name": "shared-inference",
            "env": dict(case.env),
            "policy": dict(case.policy),
            "collector": {"count": 2},
            "inference": {"count": inference},
            "buffer": {"samples_per_insert": None, "capacity": CAPACITY, "min_rows": CAPACITY},
            "evaluator": {"episodes": 1, "interval_env_steps": NEVER, "max_episode_steps": 10},
            "checkpoint": {"interval_env_steps": NEVER},
            "stop": {"max_env_steps": NEVER},
        }
    )


def steps_per_s(case: Case, inference: int) -> float:
    """Of a real herd, by what the coordinator has accepted."""
    config = config_of(case, inference)
    return rate_in_run(config, at_env_step, warm_up=case.warm_up_env_steps, window_s=WINDOW_S)


def figures(peers: bool) -> list[Figure]:
    """Each case; no peer is measured in this way."""
    found: list[Figure] = []
    for name, case in CASES.items() if not peers else ():
        found += compare(
            f"shared_inference_{name}",
            unit="env steps/s",
            goal="<= 1",
            ours=functools.partial(steps_per_s, case, 1),
            references={"own network": functools.partial(steps_per_s, case, 0)},
        )
    return found


if __name__ == "__main__":
    main(figures)
