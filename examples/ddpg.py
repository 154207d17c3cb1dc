"""A continuous algorithm of your own, made of the pieces in remuda.learning: DDPG (Lillicrap et al. 2016).
`remuda train examples/ddpg.yaml` (or launch) runs it; see docs/learning.md."""

import copy

import torch
from torch import nn

import remuda
from remuda import learning
from remuda.learning import acting


class Settings(remuda.AlgorithmConfig):
    """Settings in the section `policy` of a config, besides `type`."""

    hidden: int = 64  # units of both hidden layers
    discount: float = 0.98
    noise: float = 0.2  # standard deviation of what collectors add to actions in -1 … 1
    target_share: float = 0.02  # the way that the target networks go after each update


class Network(nn.Module):
    """An actor with actions in -1 … 1, and a critic of observations and actions."""

    def __init__(self, setup: remuda.Setup[Settings]) -> None:
        super().__init__()
        units, actions = setup.settings.hidden, setup.action.outputs
        both = remuda.ObservationSpec((setup.observation.features + actions,), "float32")
        first, second = (learning.perceptron(read, hidden=[units, units]) for read in (setup.observation, both))
        self.actor = nn.Sequential(first, nn.Linear(units, actions), nn.Tanh())
        self.critic = nn.Sequential(second, nn.Linear(units, 1))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:  # the actor's action, and last the value of that
        action = self.actor(seen)
        return torch.cat((action, self.critic(torch.cat((seen, action), dim=1))), dim=1)


class Acting(remuda.NetworkPolicy):
    """In collectors and evaluators: from observations to actions."""

    def act(self, observations, exploration, rng, *, deterministic, legal=None, state=None):  # see remuda.Policy
        action = self.outputs(observations)[:, :-1]
        action = action if deterministic else acting.with_normal_noise(action, exploration["noise"], rng)
        return self.action.bounded(by="ddpg").to_environment(action)

    def value(self, observations, *, state=None):
        return self.outputs(observations)[:, -1]


class Learning(learning.TargetLearner[Network, learning.Optimizer]):
    """The learner's side: batches in, better weights out. TargetLearner saves and loads checkpoints."""

    def __init__(self, setup: remuda.Setup[Settings], seed: int) -> None:
        self.settings, self.learner = setup.settings, setup.config.learner
        self.device = torch.device(self.learner.device)
        with learning.weights_from(seed):
            online = Network(setup).to(self.device)
        target = copy.deepcopy(online)
        self.parameters, self.followers = learning.FlatParameters(online), learning.FlatParameters(target).part("")
        optimizer = learning.make_optimizer(setup.config, self.parameters.part(""))
        super().__init__(setup.observation, setup.action, online=online, target=target, optimizer=optimizer)

    def learn(self, batch):
        loss = self.loss(learning.Transitions.of(batch, self.observation, self.action, self.device, as_vector=True))
        self.parameters.backward(loss.total)
        norm = self.parameters.clip_gradient(self.learner.max_grad_norm)
        self._optimizer.step()
        self.followers.follow(self.parameters.vector.detach(), self.settings.target_share)
        return remuda.LearnResult({**loss.metrics, "grad_norm": norm}, loss.priorities)

    def loss(self, rows: learning.Transitions) -> learning.Loss:
        with torch.no_grad():
            target = rows.reward + rows.discount * self._target(rows.next_obs)[:, -1]
        error = self._online.critic(torch.cat((rows.obs, rows.action), dim=1)).squeeze(1) - target
        of_values = (rows.weights * error.square()).mean()
        with self.parameters.part("critic.").constant():  # the actor alone is to follow this
            of_policy = -self._online(rows.obs)[:, -1].mean()
        metrics = {"critic_loss": of_values.detach(), "policy_loss": of_policy.detach()}
        return learning.Loss(of_values + of_policy, metrics, error.detach().abs())


class Ddpg(remuda.AlgorithmEntry[Settings]):
    """The class for `policy.type`."""

    settings = Settings

    def declaration(self, config, settings):
        rows, names = remuda.Steps(n_step=1, discount=settings.discount), ("critic_loss", "policy_loss", "grad_norm")
        noise, columns = {"noise": ((0, settings.noise),)}, {"LossQ": "critic_loss", "LossPi": "policy_loss"}
        return remuda.Declaration(rows=rows, reuse="replay", monitored=names, loss_columns=columns, exploration=noise)

    def make_policy(self, setup, *, chosen=None, device="cpu"):
        return Acting(Network(setup), setup.observation, setup.action, device=device)

    def make_algorithm(self, setup, seed):
        return Learning(setup, seed)
