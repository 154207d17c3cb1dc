"""An on-policy algorithm of your own, made of the pieces in remuda.learning: advantage actor-critic (Mnih et al. 2016).
`remuda train examples/a2c.yaml` (or launch) runs it; see docs/learning.md."""

import torch
from torch import nn

import remuda
from remuda import learning
from remuda.learning import acting


class Settings(remuda.AlgorithmConfig):
    """Settings in the section `policy` of a config, besides `type`."""

    hidden: int = 64  # units of both hidden layers
    horizon_steps: int = 16  # of one environment, in a segment
    discount: float = 0.98
    entropy_coefficient: float = 0.01
    value_coefficient: float = 0.25


def make_network(setup: remuda.Setup[Settings]) -> nn.Module:  # a logit for each action, and the value
    units, outputs = setup.settings.hidden, setup.action.counted(by="a2c") + 1
    body = learning.perceptron(setup.observation, hidden=[units, units], activation="tanh")
    return nn.Sequential(learning.Preparation(setup.observation), body, nn.Linear(units, outputs))


class Acting(remuda.NetworkPolicy):
    """In collectors and evaluators: from observations to actions."""

    def act(self, observations, exploration, rng, *, deterministic, legal=None, state=None):  # see remuda.Policy
        choice = acting.Categorical(self.outputs(observations)[:, :-1])
        return self.action.to_environment(choice.mode() if deterministic else choice.sample(rng))

    def value(self, observations, *, state=None):
        return self.outputs(observations)[:, -1]


class Learning(remuda.Algorithm):
    """In the learner: from batches to better weights."""

    def __init__(self, setup: remuda.Setup[Settings], seed: int) -> None:
        self.observation, self.action, self.settings = setup.observation, setup.action, setup.settings
        self.learner = setup.config.learner
        with learning.weights_from(seed):
            self.network = make_network(setup).to(self.learner.device)
        self.flat = learning.FlatParameters(self.network)
        self.optimizer = learning.make_optimizer(setup.config, self.flat.part(""))

    def learn(self, batch):
        loss = self.loss(batch)
        self.flat.backward(loss.total)
        norm = self.flat.clip_gradient(self.learner.max_grad_norm)
        self.optimizer.step()
        return remuda.LearnResult({**loss.metrics, "grad_norm": norm})

    def loss(self, batch) -> learning.Loss:
        device, outcome = torch.device(self.learner.device), learning.Outcome.of(batch)
        seen = self.observation.encode(batch["obs"].reshape(-1, *self.observation.shape))
        outputs = self.network(learning.to_tensor(seen, device)).unflatten(0, batch["obs"].shape[:2])  # [B, T + 1, …]
        logits, values = outputs[:, :-1, :-1], outputs[..., -1]
        returns = learning.n_step_returns(outcome, n_step=self.settings.horizon_steps, discount=self.settings.discount)
        targets = returns.bootstrapped(values.detach().cpu().numpy())
        action = self.action.indices(batch["action"])
        valid, target, taken = (learning.to_tensor(column, device) for column in (outcome.valid, targets, action))
        log_prob, entropy = learning.Categorical(logits[valid]).of(taken[valid])
        advantage = (target - values[:, :-1])[valid]
        policy_loss, value_loss = -(log_prob * advantage.detach()).mean(), advantage.square().mean()
        weights = self.settings.value_coefficient, self.settings.entropy_coefficient
        total = policy_loss + weights[0] * value_loss - weights[1] * entropy.mean()
        parts = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy.mean()}
        return learning.Loss(total, {name: part.detach() for name, part in parts.items()})

    def state(self):
        return {"model": self.network.state_dict(), "optimizer": self.optimizer.state()}

    def load_state(self, state):
        self.load_weights(state)
        self.optimizer.load_state(state["optimizer"])


class A2c(remuda.AlgorithmEntry[Settings]):
    """The class for `policy.type`."""

    settings = Settings

    def declaration(self, config, settings):
        rows = remuda.Segments(horizon_steps=settings.horizon_steps, discount=settings.discount)
        monitored = ("policy_loss", "value_loss", "entropy", "grad_norm")
        columns = {"LossPi": "policy_loss", "LossV": "value_loss", "Entropy": "entropy"}
        return remuda.Declaration(rows=rows, reuse="once", monitored=monitored, loss_columns=columns)

    def make_policy(self, setup, *, chosen=None, device="cpu"):
        return Acting(make_network(setup), setup.observation, setup.action, device=device)

    def make_algorithm(self, setup, seed):
        return Learning(setup, seed)
