"""Common learning side of SAC, CrossQ, TD3 and IQL: networks, optimizers, targets and state, without update rules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar, cast

import numpy as np
import torch
from torch import nn

from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.algorithms.twin_critics import TargetConfig, TemperedConfig, TwinCriticConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.twin_critics.entries import (
    ACTOR,
    AVERAGED_ACTOR,
    FEATURES,
    TwinCriticLayout,
    numbers_of,
)
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import NetworkLearner, Transitions
from remuda.policy.networks.batch_norm import normalised_perceptron
from remuda.policy.networks.custom import ActorAndCritic, reads, require_separate
from remuda.policy.networks.flat_parameters import FlatParameters, FlatPart
from remuda.policy.networks.hyperspherical import UnitWeights, hyperspherical_perceptron
from remuda.policy.networks.layouts import flat
from remuda.policy.networks.normalisation import Moments
from remuda.policy.networks.optimizers import Optimizers, make_optimizer
from remuda.policy.networks.precision import Lowers, Products
from remuda.policy.networks.stacked import Beside, StackedPerceptron, StackSlice
from remuda.policy.networks.tensors import to_tensor, weights_from
from remuda.policy.networks.torch_networks import RewardScale, RunningMoments
from remuda.policy.networks.trunks import lowered
from remuda.policy.spaces import ActionSpec, ObservationSpec

Stack = StackedPerceptron | Beside
"""Parallel modules of one shape: a single actor, or the critics."""


class TwinCriticNetwork(nn.Module):
    """The actor reads observations. The critics read observations, and actions of a Box."""

    def __init__(
        self,
        actor: Stack | ReadingStack,
        critics: Stack | ReadingStack,
        temperature: float | None,
        state_value: Stack | ReadingStack | None = None,
        *,
        scales_rewards: bool = False,
        normalized: int | None = None,
        averages: bool = False,
    ) -> None:
        """`temperature`: initial temperature, if learned (by its logarithm). `state_value` reads observations.
        `scales_rewards`: keep moments for a RewardScale. `normalized`: numbers of an observation, all of whose readers
        get it normalised; None: no normalisation. `averages`: keep an average of the actor."""
        super().__init__()
        self.observations = None if normalized is None else RunningMoments(normalized)
        self.rewards = RunningMoments(1) if scales_rewards else None
        self.log_temperature = None if temperature is None else nn.Parameter(torch.tensor([math.log(temperature)]))
        self.actor, self.critics, self.state_value = actor, critics, state_value
        self.averaged_actor = copy.deepcopy(actor) if averages else None

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The actor's outputs for encoded observations [n, …]: [n, outputs]."""
        outputs: torch.Tensor = self.actor(observations).squeeze(0)
        return outputs

    def best(self, observations: torch.Tensor) -> torch.Tensor:
        """The averaged actor's outputs, or those of the actor without an average."""
        actor = self.actor if self.averaged_actor is None else self.averaged_actor
        outputs: torch.Tensor = actor(observations).squeeze(0)
        return outputs

    def value_of(self, observations: torch.Tensor) -> torch.Tensor:
        """Values of encoded observations [n, …], whatever the action: [n]."""
        assert self.state_value is not None, "the layout has one"
        values: torch.Tensor = self.state_value(observations)[0, :, 0]
        return values

    def smaller_value(self, observations: torch.Tensor, actions: torch.Tensor | None = None) -> torch.Tensor:
        """Smallest of all critics' values of observations [n, …], and of actions [n, k] if the critics read actions:
        [n, values]."""
        values = self.critics(observations) if actions is None else values_of(self.critics, observations, actions)
        least: torch.Tensor = values.amin(0)
        return least if actions is None else least.unsqueeze(1)

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: outputs of the `actor`; `critic_features`, if a module reads
        observations; values of each critic, by features and actions."""
        (of_actor, actor), (of_critics, critics) = _parts(self.actor), _parts(self.critics)
        first = [] if self.observations is None else [self.observations]
        outputs: dict[str, nn.Module] = {ACTOR: nn.Sequential(*first, *of_actor, _one(actor, 0))}
        if self.averaged_actor is not None:
            of_average, average = _parts(self.averaged_actor)
            outputs[AVERAGED_ACTOR] = nn.Sequential(*first, *of_average, _one(average, 0))
        if first or of_critics:
            outputs[FEATURES] = nn.Sequential(*first, *of_critics)
        count = len(critics) if isinstance(critics, Beside) else len(next(critics.parameters()))
        return outputs | {f"critic_{index}": _one(critics, index) for index in range(count)}


class ReadingStack(nn.Module, Lowers):
    """Parallel modules that read the features of an encoder."""

    def __init__(self, encoder: nn.Module, stack: Stack) -> None:
        super().__init__()
        self.encoder, self.stack = encoder, stack

    def forward(self, observations: torch.Tensor, actions: torch.Tensor | None = None) -> torch.Tensor:
        """Observations [n, …], and actions [n, k] beside their features -> [count, n, outputs]."""
        with lowered(self, self.encoder):
            features: torch.Tensor = self.encoder(observations).float()
        outputs: torch.Tensor = self.stack(features if actions is None else torch.cat((features, actions), dim=1))
        return outputs


def values_of(critics: nn.Module, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Each critic's values of the actions, numbers in -1 … 1 [n, k]: [critics, n]."""
    return outputs_of(critics, observations, actions).squeeze(2)


def outputs_of(critics: nn.Module, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Each critic's outputs for the actions, numbers in -1 … 1 [n, k]: [critics, n, values]."""
    if isinstance(critics, ReadingStack):
        return cast("torch.Tensor", critics(observations, actions))
    return cast("torch.Tensor", critics(torch.cat((observations, actions), dim=1)))


def make_network(
    config: TwinCriticConfig,
    observation: ObservationSpec,
    action: ActionSpec,
    source_dir: str | None,
    layout: TwinCriticLayout,
    temperature: float | None = None,
) -> TwinCriticNetwork:
    """See remuda.policy.algorithms.dqn.learning. `temperature`: initial temperature, if learned.

    Actor and critics have separate encoders. Weights start as in nn.Linear, like the implementation of TD3's authors;
    those of a user's network start as the user's code draws them.
    """
    kept = {"scales_rewards": layout.scales_rewards, "averages": config.averaged_share is not None}
    if config.network is not None:
        own, of_own = _own(config, layout, observation, action, source_dir)
        return TwinCriticNetwork(own, of_own, temperature, None, **kept)
    numbers = numbers_of(config, observation)

    def perceptron(count: int, widths: Callable[[int], tuple[int, ...]], *, values: bool) -> Stack | ReadingStack:
        encoder, features = reads(config, observation, source_dir) if numbers is None else (None, numbers)
        stack = _stack(count, widths(features), layout, unit_outputs=not values or layout.returns is not None)
        return stack if encoder is None else ReadingStack(encoder, stack)

    actor = perceptron(1, layout.actor, values=False)
    critics = perceptron(config.critics, layout.critic, values=True)
    state_value = perceptron(1, layout.state_value, values=True) if layout.has_state_value else None
    normalized = numbers if layout.normalizes else None
    return TwinCriticNetwork(actor, critics, temperature, state_value, normalized=normalized, **kept)


def _own(
    config: TwinCriticConfig,
    layout: TwinCriticLayout,
    observation: ObservationSpec,
    action: ActionSpec,
    source_dir: str | None,
) -> tuple[ReadingStack, ReadingStack]:
    """Make actor and critics by separate calls of the user's function. The critics share the encoder of the first
    critic."""
    made = [
        ActorAndCritic.made(
            config,
            observation,
            action,
            source_dir,
            outputs=layout.actor_outputs,
            action_numbers=layout.action_numbers,
            values=layout.values,
        )
        for _ in range(1 + config.critics)
    ]
    require_separate(config, made)
    actor, *critics = made
    of_critics = ReadingStack(critics[0].encoder, Beside(one.critic for one in critics))
    return ReadingStack(actor.encoder, Beside([actor.actor])), of_critics


def _stack(count: int, widths: tuple[int, ...], layout: TwinCriticLayout, *, unit_outputs: bool) -> Stack:
    """Make parallel perceptrons, normalised as in the layout. `unit_outputs`: see `hyperspherical_perceptron`."""
    if layout.is_hyperspherical:
        return Beside(hyperspherical_perceptron(widths, unit_outputs=unit_outputs) for _ in range(count))
    if layout.normalization_share is None:
        return StackedPerceptron(count, widths)
    return Beside(normalised_perceptron(widths, momentum=layout.normalization_share) for _ in range(count))


def _one(stack: Stack, index: int) -> nn.Module:
    return StackSlice(stack, index) if isinstance(stack, StackedPerceptron) else stack[index]


def _parts(module: Stack | ReadingStack) -> tuple[list[nn.Module], Stack]:
    return ([module.encoder], module.stack) if isinstance(module, ReadingStack) else ([], module)


CRITICS, TEMPERATURE, STATE_VALUE = "critics", "log_temperature", "state_value"


Settings = TypeVar("Settings", bound=TwinCriticConfig)


class TwinCriticLearner(NetworkLearner[nn.Module, Optimizers], Generic[Settings]):
    """Learns one vector of all parameters. Actor, critics and temperature are parts of it with an optimizer each; the
    part with target networks is followed by a second vector.

    All gradients of an update refer to the same parameters, so several ranks can average them at once.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        policy: Settings,
        observation: ObservationSpec,
        action: ActionSpec,
        seed: int,
        *,
        layout: TwinCriticLayout,
        followed: str | None,
    ) -> None:
        """`policy`: the settings in `config`. `followed`: name of the part with a target network, "" for all, None for
        no target network."""
        self._learner, self._policy, self._seed = config.learner, policy, seed
        temperature = None
        if isinstance(policy, TemperedConfig) and policy.temperature is None:
            temperature = policy.initial_temperature
        self._as_vector = numbers_of(policy, observation) is not None
        self._device = torch.device(config.learner.device)
        with weights_from(seed):
            made = make_network(policy, observation, action, config.source_dir, layout, temperature)
        self._network = made.to(self._device)
        self._source = self._network.get_submodule(followed or "")
        target = None if followed is None else copy.deepcopy(self._source)
        self._parameters = FlatParameters(self._network)
        self._followed = self._parameters.part(followed or "")
        self._following = None if target is None else FlatParameters(target).part("")
        if policy.lowers_products:
            self.products = Products(self._device).reach(self._network)
        if target is not None:
            self._target = target
            if self.products is not None:
                self.products.reach(target)
        further = {TEMPERATURE: temperature is not None, STATE_VALUE: layout.has_state_value}
        names = (CRITICS, ACTOR, *(name for name, learned in further.items() if learned))
        self._averaged = self._parameters.part(AVERAGED_ACTOR) if policy.averaged_share else None
        self._parts: dict[str, FlatPart] = {name: self._parameters.part(name) for name in names}
        networks = {name: self._network.get_submodule(name) for name in names if name != TEMPERATURE}
        self._unit_weights = {name: UnitWeights(part) for name, part in networks.items() if policy.has_unit_weights}
        average = self._network.averaged_actor if policy.normalization is not None else None
        self._unit_average = None if average is None else UnitWeights(average)
        self._rewards = None if self._network.rewards is None else RewardScale(self._network.rewards)
        optimizer = Optimizers(
            {name: make_optimizer(config, part, learning_rate=self._rate(name)) for name, part in self._parts.items()}
        )
        super().__init__(observation, action, online=self._network, target=target, optimizer=optimizer)
        self._loaded()

    def _loaded(self) -> None:
        super()._loaded()
        observations = self._network.observations
        self._seen = None if observations is None else observations.load()

    def adjust(self, config: ExperimentConfig) -> None:
        super().adjust(config)
        for name in self._parts:
            self._optimizer[name].learning_rate = self._rate(name)

    def _rate(self, name: str) -> float:
        """The learning rate of a part."""
        own = self._policy.actor_learning_rate if name == ACTOR else None
        return self._learner.learning_rate if own is None else own

    # --- parts of an update

    def _rows(self, batch: Arrays) -> Transitions:
        """Move a batch to the device. Rewards are divided, and observations normalised, if at all, by moments that
        include the batch."""
        if self._rewards is not None:
            batch = {**batch, "reward": self._rewards.of_returns(self.ranks, batch)}
        rows = Transitions.of(batch, self.observation, self.action, self._device, as_vector=self._as_vector)
        moments = self._network.observations
        if moments is None or self._seen is None:
            return rows
        self._seen = self._seen.joined(Moments.of_all(self.ranks, flat(self.observation, batch["obs"])))
        moments.store(self._seen)
        return replace(rows, obs=moments.normalised(rows.obs), next_obs=moments.normalised(rows.next_obs))

    def _normal(self, rows: int, each: int) -> torch.Tensor:
        """Draw normal numbers float32 [rows, each] for this update: the same after a resume, and split by rows between
        several ranks."""
        counts = self.ranks.gather(np.array([rows], np.float64))[:, 0]
        before, whole = int(counts[: self.ranks.rank].sum()), int(counts.sum())
        drawn = np.random.default_rng((self._seed, self._updates)).standard_normal((whole, each), np.float32)
        return to_tensor(drawn[before : before + rows], self._device)

    def _descend(self, losses: Mapping[str, Loss], rows: int) -> LearnResult:
        """Take a step with each of these parts on its loss, a mean over `rows` rows, averaged over all ranks. The
        gradient is that of the sum of the losses, so each loss must mark its constants. Target networks follow after a
        step of the actor."""
        self._parameters.backward(*(loss.total for loss in losses.values()))
        metrics: dict[str, float | torch.Tensor] = {"cur_lr": self._learner.learning_rate}
        for loss in losses.values():
            metrics |= loss.metrics
        means = [value for value in metrics.values() if isinstance(value, torch.Tensor) and not value.dim()]
        with torch.no_grad():
            self.ranks.average(rows, *(self._parts[name].gradient for name in losses), *means)
            metrics["grad_norm"] = norm = self._clip(CRITICS)
            if ACTOR in losses:
                metrics["actor_grad_norm"] = actor_norm = self._clip(ACTOR)
                metrics["grad_norm"] = norm.hypot(actor_norm)
            for name in losses:
                self._optimizer[name].step()
            if ACTOR in losses and self._following is not None:
                assert isinstance(self._policy, TargetConfig | CrossQConfig)
                self._following.follow(self._followed.vector, self._policy.target_share or 0.0)
            for name, weights in self._unit_weights.items():
                if name in losses:
                    weights.normalise()
            if ACTOR in losses:
                self._average_actor()
        self._updates += 1
        return LearnResult(metrics, losses[CRITICS].priorities)

    def _average_actor(self) -> None:
        """Move the averaged actor by 1 / (1 + share * earlier steps of the actor) towards the actor. Hyperspherical
        weights are then scaled to length 1 again, since a mean of unit vectors is shorter."""
        average, share = self._network.averaged_actor, self._policy.averaged_share
        if self._averaged is None or average is None or share is None:
            return
        newest = 1.0 / (1.0 + share * (self._updates // self._policy.actor_interval_iters))
        self._averaged.follow(self._parts[ACTOR].vector, newest)
        for kept, buffer in zip(average.buffers(), self._network.actor.buffers(), strict=True):
            kept.copy_(torch.lerp(kept, buffer, newest) if kept.is_floating_point() else buffer)
        if self._unit_average is not None:
            self._unit_average.normalise()

    def _critics_loss(self, total: torch.Tensor, values: torch.Tensor, target: torch.Tensor) -> Loss:
        """Make the critics' Loss, with metrics, from values [critics, n] and their targets [n]."""
        found, target = self._in_own_rewards(values.detach()), self._in_own_rewards(target)
        td_error = (found - target).abs().mean(dim=0)
        metrics = {"critic_loss": total.detach(), "q_value": found[0], "target_q_value": target, "td_error": td_error}
        return Loss(total, metrics, td_error)

    def _in_own_rewards(self, values: torch.Tensor) -> torch.Tensor:
        """Values in the environment's own rewards."""
        return values if self._rewards is None else values * self._rewards.std

    def _clip(self, name: str) -> torch.Tensor:
        """Clip the gradient of a part; returns its norm before clipping."""
        return self._parts[name].clip_gradient(self._learner.max_grad_norm)

    # --- state

    def _copy_to_target(self) -> None:
        if self._following is not None:
            self._target.load_state_dict(self._source.state_dict())

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Start from a saved model, with or without an average; the first update starts a new average."""
        model = state.get("model")
        if isinstance(model, Mapping):
            named = dict(cast("Mapping[str, object]", model))
            average = {f"averaged_{name}": value for name, value in named.items() if name.startswith(f"{ACTOR}.")}
            for name, value in average.items():
                if self._averaged is None:
                    named.pop(name, None)
                else:
                    named.setdefault(name, value)
            state = {**state, "model": named}
        super().load_weights(state)

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy the network to the host, in one transfer."""
        return self._parameters.snapshot()


def squared(values: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Squared distance of each value [critics, n] from the target [n]."""
    squares: torch.Tensor = torch.ops.aten.mse_loss(values, target, 0)  # one node of the graph
    return squares
