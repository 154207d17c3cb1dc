"""An algorithm that learns nothing and records the columns of its batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from torch import nn

import remuda
from remuda.config.declaration import RowShape
from remuda.environments.spaces import Array

NOTED: dict[str, Array] = {}
"""The newest batch."""
STATE_SIZE = 3
ROWS: dict[str, RowShape] = {
    "steps": remuda.Steps(n_step=2, discount=0.9),
    "segments": remuda.Segments(horizon_steps=5, discount=0.9),
    "unrolls": remuda.Unrolls(unroll_steps=3, n_step=2, discount=0.9),
    "sequences": remuda.Sequences(burn_in_steps=1, sequence_steps=4, overlap_steps=2, n_step=2, discount=0.9),
}


class Settings(remuda.AlgorithmConfig):
    rows: Literal["steps", "segments", "unrolls", "sequences"] = "steps"


class Acting(remuda.Policy):
    """Takes the first legal action, and carries a state."""

    uses_legal_actions = True
    state_size = STATE_SIZE

    def __init__(self, first: int) -> None:
        self._first = first

    def load_state(self, state: Mapping[str, Array]) -> None:
        pass

    def act(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> Array:
        chosen = np.zeros(len(observations), np.int64) if legal is None else legal.argmax(axis=1)
        return chosen + self._first

    def value(self, observations: Array, *, state: Array | None = None) -> Array:
        return np.zeros(len(observations), np.float32)


class Learning(remuda.Algorithm):
    """Notes, and reports no priorities."""

    def __init__(self, setup: remuda.Setup[Settings]) -> None:
        self.observation, self.action, self.network = setup.observation, setup.action, nn.Linear(1, 1)

    def learn(self, batch: Mapping[str, Array]) -> remuda.LearnResult:
        NOTED.clear()
        NOTED.update({name: np.array(column) for name, column in batch.items()})
        return remuda.LearnResult({"rows": float(len(batch["obs"]))})

    def state(self) -> dict[str, object]:
        return {"model": self.network.state_dict(), "target_model": {}, "optimizer": {}, "schedules": {}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["model"])


class Columns(remuda.AlgorithmEntry[Settings]):
    """For `policy.type` of a config."""

    settings = Settings

    def declaration(self, config: remuda.ExperimentConfig, settings: Settings) -> remuda.Declaration:
        reuse: Literal["once", "replay"] = "once" if settings.rows == "segments" else "replay"
        return remuda.Declaration(rows=ROWS[settings.rows], reuse=reuse, monitored=("rows",))

    def make_policy(self, setup: remuda.Setup[Settings], *, chosen: object = None, device: str = "cpu") -> Acting:
        return Acting(setup.action.start)

    def make_algorithm(self, setup: remuda.Setup[Settings], seed: int) -> Learning:
        return Learning(setup)
