"""The settings of PQN."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import JsonValue

from remuda.config.algorithms.base import Spaces
from remuda.config.algorithms.encoded import NetworkConfig
from remuda.config.algorithms.q_learning import ActionValueConfig
from remuda.config.changing import MayChange
from remuda.config.numbers import Fraction, Horizon, Positive
from remuda.config.stored import FOLDER


class PqnConfig(NetworkConfig, ActionValueConfig):
    """Parallelised Q-networks (Gallici et al. 2025): Q-learning without replay and target network, on-policy: each
    segment of experience is used once. Layer normalisation keeps the values from growing. Actions must be Discrete."""

    defaults: ClassVar[Mapping[str, JsonValue]] = MappingProxyType(
        {
            "env.num_envs": 32,
            "learner.learning_rate": 2.5e-4,
            "learner.optimizer_settings": {"eps": 1e-5},
            "learner.segments_per_update": 32,
        }
    )
    """Gallici et al. 2025, appendix (Atari), with a quarter of its 128 environments; the norm of 10 is the schema's."""
    stored_configs: ClassVar[Mapping[str, Path]] = MappingProxyType({"CartPole-v1": FOLDER / "cartpole_pqn.yaml"})
    replaced: ClassVar[tuple[str, ...]] = (*NetworkConfig.replaced, "layer_norm")

    type: Literal["pqn"] = "pqn"  # pyright: ignore[reportIncompatibleVariableOverride]  # is never assigned to
    """Which algorithm."""
    layer_norm: bool = True
    """Normalise each hidden layer before its activation (Ba et al. 2016). Without a target network values may grow
    without bound where the layers are not normalised."""
    horizon_steps: Horizon = 32
    """Steps of one environment in a segment."""
    q_lambda: Annotated[Fraction, MayChange()] = 0.65
    """Targets of values, from 0, which trusts the value of the next observation, to 1, which trusts the rewards of the
    whole segment."""
    epochs: Annotated[Positive, MayChange()] = 2
    """Passes over each batch."""
    minibatches: Annotated[Positive, MayChange()] = 8
    """Shares of a batch, with one gradient step for each."""

    @classmethod
    def settings_for(cls, spaces: Spaces, *, in_parts: bool) -> Mapping[str, JsonValue]:
        """See AlgorithmConfig."""
        if spaces != "images":
            return {}
        return {"policy.epsilon_end": 0.001, "collector.count": 1, "stop.max_env_steps": 10_000_000}

    @property
    def segment_steps(self) -> int | None:
        """Environment steps in a segment."""
        return self.horizon_steps
