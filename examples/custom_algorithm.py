"""An algorithm of your own in one file: Q-learning that draws actions by their value (Boltzmann exploration). `remuda
train examples/custom_algorithm.yaml` (or launch) runs this algorithm; see docs/algorithms.md."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from numpy.random import Generator
from torch import nn

import remuda


class Settings(remuda.AlgorithmConfig):
    """Settings in the section `policy` of a config, besides `type`."""

    hidden: int = 128  # units of the hidden layer
    discount: float = 0.99  # per environment step
    target_update_iters: Annotated[int, remuda.MayChange()] = 200  # updates between copies into the target network


def make_network(setup: remuda.Setup[Settings]) -> nn.Module:  # of both sides, which must agree
    if setup.action.n is None:
        raise remuda.UnsupportedSpaceError("BoltzmannQ values each action: it needs a Discrete action space")
    hidden = setup.settings.hidden
    return nn.Sequential(nn.Linear(setup.observation.features, hidden), nn.ReLU(), nn.Linear(hidden, setup.action.n))


class Acting(remuda.NetworkPolicy):
    """In collectors and evaluators: from observations to actions."""

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        values = self.outputs(observations)
        if not deterministic:  # the largest after Gumbel noise is a draw from softmax(values / temperature)
            values = values + exploration["temperature"] * rng.gumbel(size=values.shape)
        return self.action.to_environment(values.argmax(axis=1))

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        return np.amax(self.outputs(observations), axis=1)


class Learning(remuda.Algorithm):
    """In the learner: from batches to better weights."""

    def __init__(self, setup: remuda.Setup[Settings]) -> None:
        self.observation, self.action, self.settings = setup.observation, setup.action, setup.settings
        self.device = torch.device(setup.config.learner.device)
        self.network, self.target = make_network(setup).to(self.device), make_network(setup).to(self.device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=setup.config.learner.learning_rate)
        self.updates = 0

    def learn(self, batch: Mapping[str, np.ndarray]) -> remuda.LearnResult:
        if self.updates % self.settings.target_update_iters == 0:
            self.target.load_state_dict(self.network.state_dict())
        self.updates += 1
        encoded = {name: self.observation.encode(batch[name]) for name in ("obs", "next_obs")}
        names = ("obs", "action", "reward", "next_obs", "discount", "weights")
        columns = (torch.tensor({**batch, **encoded}[name], device=self.device) for name in names)
        obs, action, reward, next_obs, discount, weights = columns
        wanted = reward + discount * self.target(next_obs).amax(dim=1).detach()
        q_value = self.network(obs).gather(1, (action - self.action.start).unsqueeze(1)).squeeze(1)
        loss = nn.functional.huber_loss(q_value, wanted, weight=weights)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        metrics, errors = {"loss": loss.detach(), "q_value": q_value.detach()}, (q_value - wanted).detach().abs()
        return remuda.LearnResult(metrics, priorities=errors)

    def state(self) -> dict[str, object]:
        parts = {"model": self.network, "target_model": self.target, "optimizer": self.optimizer}
        return {**{key: part.state_dict() for key, part in parts.items()}, "schedules": {"updates": self.updates}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["model"])
        self.target.load_state_dict(state["target_model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["schedules"]["updates"]


class BoltzmannQ(remuda.AlgorithmEntry[Settings]):
    """The class for `policy.type`."""

    settings = Settings

    def declaration(self, config: remuda.ExperimentConfig, settings: Settings) -> remuda.Declaration:
        return remuda.Declaration(
            rows=remuda.Steps(n_step=1, discount=settings.discount),
            reuse="replay",
            monitored=("loss", "q_value"),
            loss_columns={"LossQ": "loss", "AverageQVals": "q_value"},
            exploration={"temperature": ((0, 1.0), (10_000, 0.05))},
        )

    def make_policy(self, setup: remuda.Setup[Settings], *, chosen: object = None, device: str = "cpu") -> Acting:
        return Acting(make_network(setup), setup.observation, setup.action, device=device)

    def make_algorithm(self, setup: remuda.Setup[Settings], seed: int) -> Learning:
        torch.manual_seed(seed)
        return Learning(setup)
